#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "core/tensor/fact_key.h"
#include "instrument/dump/tensor_facts.h"
#include "instrument/recompute/recompute.h"

/// Facts of a dump that several processes computed, each of its share: docs/scale.md.
namespace nanscope {

/// What facts are of, and who computes them.
struct FactsOrigin {
  std::string made_by;     ///< the nanscope; another one may compute other numbers
  FactKey dump;            ///< its files
  std::int64_t parts = 1;  ///< that the work was divided into
  bool operator==(const FactsOrigin&) const = default;
};

/// A share of the work.
struct FactsPart {
  std::int64_t tensors = 0;  ///< to be scanned
  bool complete = false;
};

class DumpFacts final : public TensorFacts {
 public:
  /// Errors, in one line: it cannot be read, is none, is damaged. A record that a killed writer left half-written
  /// counts as not there.
  /// `growing`: another process appends to it meanwhile.
  static Result<DumpFacts> read(const std::filesystem::path& path, bool growing = false);

  DumpFacts() = default;
  /// None yet.
  explicit DumpFacts(FactsOrigin origin) : origin_(std::move(origin)), has_origin_(true) {}
  /// Adds records as they stand in a file, which another process sent. Error: they are damaged.
  Status take_records(std::span<const std::byte> records);

  /// Adds those of another part. Errors: of another dump, or by another nanscope; both have the same part.
  Status merge(DumpFacts other);
  /// Writes all to a new file. Errors: those of OutputFile.
  Status write(const std::filesystem::path& path, bool replace, std::vector<std::filesystem::path> inputs) const;

  const std::filesystem::path& path() const { return path_; }
  const FactsOrigin& origin() const { return origin_; }
  /// By their numbers, from 1.
  const std::map<std::int64_t, FactsPart>& parts() const { return parts_; }
  /// Bytes of whole records.
  std::uint64_t whole_bytes() const { return whole_bytes_; }
  std::size_t tensors() const { return tensors_.size(); }
  std::size_t judgements() const { return judgements_.size(); }

  Status check_files(std::span<const DumpFileState> files) const override;
  const TensorFact* find(const FactKey& tensor) const override;
  const Recomputed* find_judgement(const FactKey& judgement) const;
  bool has_file(const DumpFileState& file) const;

 private:
  friend class FactsFile;
  bool take(std::span<const std::byte> record);
  /// Bytes of whole records; where one is damaged, its place.
  tl::expected<std::size_t, std::size_t> take_whole(std::span<const std::byte> bytes, std::size_t at);

  std::filesystem::path path_;
  FactsOrigin origin_;
  bool has_origin_ = false;
  std::map<std::int64_t, FactsPart> parts_;
  std::map<std::string, FactKey> files_;
  std::unordered_map<FactKey, TensorFact, FactKey::Hash> tensors_;
  std::unordered_map<FactKey, Recomputed, FactKey::Hash> judgements_;
  std::uint64_t whole_bytes_ = 0;
};

}  // namespace nanscope
