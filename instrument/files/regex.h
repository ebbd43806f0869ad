#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/result.h"

/// Regular expressions (PCRE2, over UTF-8; bytes that are none match nothing) that come from files: what compiling and
/// matching may cost is limited.
namespace nanscope {

struct RegexLimits {
  std::size_t pattern_bytes = 0;
  std::uint32_t steps = 0;     ///< of one match, backtracking counted
  std::uint32_t heap_kib = 0;  ///< of one match
};

enum class RegexSyntax : std::uint8_t {
  ascii,    ///< \w, \d and \s are those of ASCII
  unicode,  ///< those of Unicode
  literal,  ///< no metacharacters
};

/// What an expression is matched against.
enum class RegexSubject : std::uint8_t {
  bytes,  ///< any; PCRE2 looks for what is no UTF-8 at every match, so that n matches in one text cost its square
  utf8,   ///< stretches that the caller knows to be UTF-8
};

class Regex {
 public:
  /// Errors: too long or empty; no expression, with the offset of what is wrong.
  static Result<Regex> compile(std::string_view pattern, RegexSyntax syntax, const RegexLimits& limits,
                               RegexSubject subject = RegexSubject::bytes);

  /// Matches of one expression, one after another; reuses its memory.
  class Matcher {
   public:
    explicit Matcher(const Regex& regex);
    /// Whether there is a match at `from` or after it. Error: it takes more than it may.
    Result<bool> find(std::string_view subject, std::size_t from, bool may_be_empty);
    /// The same for a match that is not empty, in a stretch of a text; of an expression for RegexSubject::utf8. The
    /// stretch must be UTF-8, `from` at a character. `^` and `$` do not match where the text goes on.
    Result<bool> find_in_stretch(std::string_view stretch, std::size_t from, bool begins_text, bool ends_text);
    /// Groups of the last match, its whole as group 0.
    std::size_t groups() const;
    /// Where a group begins and ends; kUnset for one that took no part. \K can put a beginning behind its end.
    std::size_t begin(std::size_t group) const;
    std::size_t end(std::size_t group) const;

   private:
    Result<bool> match(std::string_view subject, std::size_t from, std::uint32_t options);

    std::shared_ptr<const void> code_;
    std::shared_ptr<void> match_;
    std::shared_ptr<void> context_;
  };
  static constexpr std::size_t kUnset = ~std::size_t{0};

 private:
  std::shared_ptr<const void> code_;  // a pcre2_code, immutable once compiled
  RegexLimits limits_;
};

}  // namespace nanscope
