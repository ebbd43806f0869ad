#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "instrument/files/regex.h"

namespace nanscope {

/// GPT-2's pre-tokenization pattern: contractions, words, numbers and other runs with the space
/// before them, then white space (released with the GPT-2 code; used by every ByteLevel tokenizer).
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// What becomes of the matches of a split.
struct SplitRule {
  enum class Behavior : std::uint8_t {
    isolated,              ///< every match is a piece, and so is every stretch between matches
    removed,               ///< only the stretches between matches are pieces
    merged_with_previous,  ///< a match ends the piece of the stretch before it
    merged_with_next,      ///< a match begins the piece of the stretch behind it
  };
  Behavior behavior = Behavior::isolated;
  bool invert = false;  ///< matches and stretches between them change places
};

/// Cuts text into pieces with a regular expression (PCRE2, UTF and Unicode properties on). Bytes that
/// are no valid UTF-8 match nothing and stay in the stretches between matches, so no byte is lost;
/// `\A`, `\z` and their like take them for the text's bounds, `^` and `$` do not. Other tokenizers
/// differ in two things: PCRE2 counts U+180E as white space, which Unicode has not done since version
/// 6.3, and characters that are newer than its Unicode (14 in Debian 12) are neither letters nor digits.
class Splitter {
 public:
  /// Errors: the pattern is no regular expression, with the offset of what is wrong in it.
  static Result<Splitter> regex(std::string_view pattern, SplitRule rule = {});
  /// The same for a text that is searched for as it stands.
  static Result<Splitter> literal(std::string_view text, SplitRule rule = {});

  /// Appends the pieces of `text`, views into it. Error: a pattern that backtracks beyond PCRE2's
  /// limits on this text.
  Status split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  Splitter(Regex regex, SplitRule rule) : regex_(std::move(regex)), rule_(rule) {}
  static Result<Splitter> compile(std::string_view pattern, RegexSyntax syntax, SplitRule rule);

  Regex regex_;
  SplitRule rule_;
};

}  // namespace nanscope
