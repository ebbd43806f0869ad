#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace nanscope {

/// A regular expression (PCRE2) that somebody wrote into a file: what one match may cost is limited.
class Pattern {
 public:
  /// Error: no expression, with the offset of what is wrong.
  static Result<Pattern> compile(std::string_view text);

  const std::string& text() const { return text_; }
  /// The first match anywhere in `subject`: the whole of it, then each group, empty where it took no part. Nothing
  /// when there is none. Error: the match takes more steps than it may.
  Result<std::optional<std::vector<std::string>>> find(std::string_view subject) const;

 private:
  std::string text_;
  std::shared_ptr<const void> code_;  // a pcre2_code, immutable once compiled
};

/// `text` with $1 to $9 replaced by the groups of a match.
std::string filled_in(std::string_view text, const std::vector<std::string>& groups);

}  // namespace nanscope
