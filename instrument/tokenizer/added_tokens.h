#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nanscope {

/// A token that is cut out of the text before anything else looks at it.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;      ///< a control token: decode() can leave it out
  bool normalized = false;   ///< looked for in the normalized text
  bool single_word = false;  ///< only where no word character touches it
  bool lstrip = false;       ///< takes the white space before it along
  bool rstrip = false;       ///< takes the white space behind it along
};

/// A stretch of a text: a token, or what lies between tokens (id -1).
struct TextSection {
  std::string_view text;
  std::int32_t id = -1;
};

/// Finds added tokens in texts: from left to right, at each place the longest.
class AddedTokenFinder {
 public:
  struct Entry {
    std::string sought;  ///< what the token looks like in the text, not empty
    AddedToken token;
  };

  AddedTokenFinder() = default;
  /// Of entries that look the same the first counts.
  explicit AddedTokenFinder(std::vector<Entry> entries);

  /// The sections of `text`, none of them empty, which are views into it. White space that a token takes along is in
  /// its section, unless another token begins in it: as in the `tokenizers` package that one is found all the same, and
  /// what lies behind it is no longer taken. Time: in proportion to the text, times the length of the longest token.
  std::vector<TextSection> cut(std::string_view text) const;

 private:
  const Entry* longest(std::string_view text) const;

  std::vector<Entry> entries_;  // sorted by `sought`
  std::array<bool, 256> begins_{};
};

}  // namespace nanscope
