#pragma once
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

/// Cuts text into pieces with a regular expression (PCRE2, UTF and Unicode properties on). Every
/// match is a piece, and so is every stretch between matches. Bytes that are no valid UTF-8 match
/// nothing and stay in such stretches, so no byte is lost; `\A`, `\z` and their like take them for the
/// text's bounds, `^` and `$` do not. PCRE2 counts U+180E as white space, which Unicode has not done
/// since version 6.3 and other tokenizers do not: the one known difference.
class Splitter {
 public:
  /// Which pieces survive.
  enum class Keep { all, matches, gaps };

  /// Errors: the pattern is no regular expression, with the offset of what is wrong in it.
  static Result<Splitter> regex(std::string_view pattern, Keep keep = Keep::all);
  /// The same for a text that is searched for as it stands.
  static Result<Splitter> literal(std::string_view text, Keep keep = Keep::all);

  /// Appends the pieces of `text`, views into it. Error: a pattern that backtracks beyond PCRE2's
  /// limits on this text.
  Status split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  Splitter(Regex regex, Keep keep) : regex_(std::move(regex)), keep_(keep) {}
  static Result<Splitter> compile(std::string_view pattern, RegexSyntax syntax, Keep keep);

  Regex regex_;
  Keep keep_;
};

}  // namespace nanscope
