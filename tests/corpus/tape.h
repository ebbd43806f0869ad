#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/numbers/format.h"
#include "core/result.h"

/// What a producer's hooks would have written: tensors by name, without a word about the server.
namespace nanscope::corpus {

/// What a diagnosis calls a tensor of a folder.
std::string below(const std::string& folder, const std::string& name);

/// Kinds of tensors that somebody may have dumped or not.
enum Group : unsigned {
  kInputs = 1U,        ///< of modules
  kOutputs = 2U,       ///< of modules
  kWeights = 4U,       ///< and biases
  kScales = 8U,        ///< of caches, weights, activations; histories of absmax
  kCodes = 16U,        ///< caches and quantized activations
  kRead = 32U,         ///< what a kernel made of codes
  kHeads = 64U,        ///< q, k and v as attention gets them
  kScores = 128U,      ///< scores and probabilities
  kMasks = 256U,       ///< masks, lengths
  kLogits = 512U,      ///< logits and chosen tokens
  kRouting = 1024U,    ///< the weights and ids of chosen experts, the bias of the choice
  kResiduals = 2048U,  ///< inputs and outputs of whole layers
  kTokens = 4096U,     ///< ids that went in
};

/// What was dumped: groups, and exceptions by tag. A tag is "part.what": "k.output", "attn.k_scale", "down.weight".
struct Dumped {
  unsigned groups = 0;
  std::vector<std::string> with = {};
  std::vector<std::string> without = {};

  bool keeps(Group group, std::string_view tag) const;
};

/// A tensor as it goes into a file.
struct TapeEntry {
  std::string folder;
  std::string name;
  std::string tag;  ///< "part.what"; empty for what no module has
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

class Tape {
 public:
  explicit Tape(Dumped dumped) : dumped_(std::move(dumped)) {}

  /// Folder of what follows; empty for none.
  void enter(std::string folder) { folder_ = std::move(folder); }
  /// While off, nothing is written down: passes and layers that nobody dumped.
  void record(bool on) { on_ = on; }
  void choose(Dumped dumped) { dumped_ = std::move(dumped); }

  /// Values that the server keeps in `format`; they are rounded to it.
  void add(Group group, std::string_view tag, const std::string& name, Format format, std::vector<std::int64_t> shape,
           std::span<const float> values);
  /// Stored codes; `dtype` is what the file says they are.
  void add_codes(Group group, std::string_view tag, const std::string& name, std::string_view dtype,
                 std::vector<std::int64_t> shape, std::span<const std::uint32_t> codes);
  void add_ids(Group group, std::string_view tag, const std::string& name, std::span<const std::int64_t> ids);

  /// Whether a tensor of this name, folder included, was dumped.
  bool holds(std::string_view name) const;
  /// Whether two dumped tensors of one shape hold the same in their first `rows` rows.
  bool same_rows(std::string_view a, std::string_view b, std::int64_t rows) const;
  /// The first dumped tensor with a NaN or Inf that no mask put there, as the server computed them; empty when all
  /// are finite. Bytes of caches do not count.
  const std::string& first_not_finite() const { return first_not_finite_; }
  /// How many such tensors there are.
  int not_finite() const { return not_finite_; }
  std::span<const TapeEntry> entries() const { return entries_; }
  /// As it is, whatever is dumped.
  void put(TapeEntry entry) { entries_.push_back(std::move(entry)); }
  void put_ids(const std::string& folder, const std::string& name, std::vector<std::int64_t> shape,
               std::span<const std::int64_t> ids);
  /// One safetensors file a folder.
  Status write(const std::filesystem::path& root) const;

 private:
  using Entry = TapeEntry;
  const Entry* find(std::string_view name) const;
  Entry* entry(Group group, std::string_view tag, const std::string& name);

  Dumped dumped_;
  std::string folder_;
  bool on_ = true;
  std::vector<Entry> entries_;
  std::string first_not_finite_;
  int not_finite_ = 0;
};

}  // namespace nanscope::corpus
