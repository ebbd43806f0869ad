#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
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

/// What a piece is made of before merging, in a model over bytes: by byte, its token; -1: none.
using ByteTokens = std::array<std::int32_t, 256>;

/// The same in a model over characters, as SentencePiece trains it.
struct CharacterTokens {
  std::unordered_map<std::int32_t, std::int32_t> tokens;  ///< by code point
  ByteTokens bytes{};                                     ///< for characters without a token, and for what is no UTF-8
  std::int32_t unknown = -1;                              ///< where there are not all of its bytes either; -1: none
  bool fuse_unknown = false;                              ///< one for several such characters in a row
};

/// Byte-pair encoding (Sennrich et al. 2016, "Neural machine translation of rare words with subword
/// units"): starting from single bytes or characters, the merge that was learned first is applied
/// first, leftmost first, until none applies.
class BpeModel {
 public:
  /// `merges` in the order learned. `whole_pieces`: pieces that are a token as they stand, taken
  /// without merging (the `ignore_merges` of some models). A model over bytes needs all of them.
  BpeModel(std::variant<ByteTokens, CharacterTokens> alphabet, const std::vector<BpeMerge>& merges,
           std::unordered_map<std::string, std::int32_t> whole_pieces = {});

  /// Appends the tokens of one piece. O(n log n) in its length. Error: it has a character without
  /// any token; a model over bytes, or with all bytes, has none.
  Status encode(std::string_view piece, std::vector<std::int32_t>& ids) const;

 private:
  struct Ranked {
    std::uint32_t rank;
    std::int32_t result;
  };

  /// Null when the two tokens do not merge.
  const Ranked* find(std::int32_t left, std::int32_t right) const;

  Status begin(std::string_view piece, std::vector<std::int32_t>& tokens) const;
  void merge(std::vector<std::int32_t>& tokens) const;

  std::variant<ByteTokens, CharacterTokens> alphabet_;
  std::unordered_map<std::uint64_t, Ranked> merges_;
  std::unordered_map<std::string, std::int32_t> whole_pieces_;
};

}  // namespace nanscope
