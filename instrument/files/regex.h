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

class Regex {
 public:
  /// Errors: too long or empty; no expression, with the offset of what is wrong.
  static Result<Regex> compile(std::string_view pattern, RegexSyntax syntax, const RegexLimits& limits);

  /// Matches of one expression, one after another; reuses its memory.
  class Matcher {
   public:
    explicit Matcher(const Regex& regex);
    /// Whether there is a match at `from` or after it. Error: it takes more than it may.
    Result<bool> find(std::string_view subject, std::size_t from, bool may_be_empty);
    /// Groups of the last match, its whole as group 0.
    std::size_t groups() const;
    /// Where a group begins and ends; kUnset for one that took no part. \K can put a beginning behind its end.
    std::size_t begin(std::size_t group) const;
    std::size_t end(std::size_t group) const;

   private:
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
