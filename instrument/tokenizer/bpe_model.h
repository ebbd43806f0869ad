#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/result.h"

namespace nanscope {

/// One learned merge: tokens `left` and `right`, side by side, become `result`.
struct BpeMerge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t result = 0;
  bool operator==(const BpeMerge&) const = default;
};

/// Byte-pair encoding over bytes (Sennrich et al. 2016, "Neural machine translation of rare words
/// with subword units"): starting from single bytes, the merge that was learned first is applied
/// first, leftmost first, until none applies.
class BpeModel {
 public:
  /// `byte_tokens[b]` is the token of byte b; `merges` in the order learned. `whole_pieces`: pieces
  /// that are a token as they stand, taken without merging (the `ignore_merges` of some models).
  BpeModel(const std::array<std::int32_t, 256>& byte_tokens, const std::vector<BpeMerge>& merges,
           std::unordered_map<std::string, std::int32_t> whole_pieces = {});

  /// Appends the tokens of one piece. O(n log n) in its length.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const;

 private:
  struct Ranked {
    std::uint32_t rank;
    std::int32_t result;
  };

  /// Null when the two tokens do not merge.
  const Ranked* find(std::int32_t left, std::int32_t right) const;

  std::array<std::int32_t, 256> byte_tokens_;
  std::unordered_map<std::uint64_t, Ranked> merges_;
  std::unordered_map<std::string, std::int32_t> whole_pieces_;
};

}  // namespace nanscope
