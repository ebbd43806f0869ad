#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/files/regex.h"

namespace nanscope {

/// A regular expression that somebody wrote into nanscope.toml.
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
  Regex regex_;
};

/// `text` with $1 to $9 replaced by the groups of a match.
std::string filled_in(std::string_view text, const std::vector<std::string>& groups);

}  // namespace nanscope
