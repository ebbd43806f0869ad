#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "instrument/diagnosis/provenance/rule.h"

/// Which rows of keys and values a row of attention goes over: those of a step, of a cache, or of a pool of slots.
namespace nanscope {

/// Where an element of an attention stands.
struct HeadPlace {
  std::int64_t head = 0;
  std::int64_t kv_head = 0;
  std::int64_t width = 1;  ///< of a head of queries and of keys
  std::int64_t inside = 0;
};

/// `width` is what a head of the explained tensor is wide.
HeadPlace head_place(const Subject& subject, std::int64_t heads, const std::optional<std::int64_t>& kv_heads,
                     const Tensor& kv, std::int64_t head, std::int64_t width);

/// Whether `channels` are `heads` heads, and `kv_channels` some of the same width.
bool whole_heads(std::int64_t channels, std::int64_t heads, std::int64_t kv_channels,
                 const std::optional<std::int64_t>& kv_heads);

/// The row of `kv` that holds key number `key` of `keys`.
std::optional<std::int64_t> row_of_key(const Subject& subject, const Tensor& kv, std::int64_t key, std::int64_t keys);

/// Keys or values that were read out of a cache, sequence by sequence and by position, though they look like a pool.
bool is_gathered(Facts& facts, const Tensor& kv);

struct Gathered {
  const Span* span = nullptr;
  std::int64_t position = 0;
};

/// Whose key a row of gathered ones is; of several sequences, each has as many rows.
std::optional<Gathered> gathered_at(const Step& step, const Tensor& kv, std::int64_t row);

struct KeyAt {
  std::int64_t position = 0;
  std::int64_t row = 0;  ///< of the keys or values
  bool padding = false;  ///< of the sequence's frame in a batch
};

/// Keys or values that were quantized in blocks along the tokens.
struct SharedScales {
  const Tensor* source = nullptr;  ///< before that
  std::int64_t block = 1;          ///< rows

  /// The row that decides on the scale of another one's block, in a channel: that of the largest magnitude.
  std::int64_t owner(Facts& facts, std::int64_t row, std::int64_t channel) const;
};
/// Nothing where those that are read were not, or are not known.
std::optional<SharedScales> shared_scales(Facts& facts, const Tensor& kv);

/// Bad rows among those that the sequence attends to, the ones that the explained row may see before the others, and
/// last those between the sequence's end and that of its last block.
std::vector<KeyAt> bad_keys(const Subject& subject, const Tensor& kv);

/// A bad channel of a row that the explained element should not have read. Of a dump alone, whose heads may lie
/// otherwise than its shapes were read.
std::optional<Element> bad_beside(const Subject& subject, const Tensor& tensor, std::int64_t row);

/// Why the explained row should not have seen a key; empty where it may.
std::string hidden_text(const Subject& subject, const KeyAt& key);

}  // namespace nanscope
