#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/result.h"
#include "instrument/facts/dump_facts.h"

namespace nanscope {

/// A file of facts begins with this line. Records follow: their size, size_check(), the XXH3 of their bytes
/// (8 bytes each), the bytes.
inline constexpr std::string_view kFactsMagic = "nanscope facts 1\n";

/// The records of facts, as they stand in a file.
namespace facts_records {
std::string origin(const FactsOrigin& origin);
std::string part(std::int64_t number, const FactsPart& part);
std::string file(const DumpFileState& file);
std::string tensor(const FactKey& key, const TensorFact& fact);
std::string judgement(const FactKey& key, const Recomputed& judged);
/// What stands behind a record's size: a wrong size is told from a record that was not written to its end.
std::uint64_t size_check(std::uint64_t size);
/// With its size and its hash.
std::string framed(const std::string& record);
}  // namespace facts_records

/// Appends facts to a file, each at once: what a killed process computed stays.
class FactsFile {
 public:
  /// A new file, or one that a process left unfinished, whose facts `known` then holds. Errors: it is no file of facts,
  /// is damaged, is of another dump or part, or another process writes it.
  static Result<FactsFile> open(const std::filesystem::path& path, const FactsOrigin& origin, std::int64_t part,
                                DumpFacts& known);
  FactsFile(FactsFile&& other) noexcept;
  FactsFile& operator=(FactsFile&&) = delete;
  FactsFile(const FactsFile&) = delete;
  FactsFile& operator=(const FactsFile&) = delete;
  ~FactsFile();

  void add(const std::string& record);
  /// Records that are framed() already.
  void add_framed(const std::string& records) { write(records); }
  /// Error: a record could not be written.
  const Status& status() const { return status_; }

 private:
  FactsFile(std::filesystem::path path, int file) : path_(std::move(path)), file_(file) {}
  void write(std::string_view bytes);

  std::filesystem::path path_;
  int file_ = -1;
  Status status_;
};

}  // namespace nanscope
