#include "instrument/dump/pattern.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

namespace nanscope {
namespace {

constexpr RegexLimits kLimits{.pattern_bytes = 4096, .steps = 100'000, .heap_kib = 4 * 1024};

}  // namespace

Result<Pattern> Pattern::compile(std::string_view text) {
  Result<Regex> regex = Regex::compile(text, RegexSyntax::ascii, kLimits);
  if (!regex) return tl::unexpected(regex.error());
  Pattern pattern;
  pattern.text_ = text;
  pattern.regex_ = std::move(*regex);
  return pattern;
}

Result<std::optional<std::vector<std::string>>> Pattern::find(std::string_view subject) const {
  Regex::Matcher matcher(regex_);
  const Result<bool> found = matcher.find(subject, 0, true);
  if (!found) return fail(fmt::format("the pattern {} fails on {}: {}", text_, subject, found.error().message));
  if (!*found) return std::optional<std::vector<std::string>>();
  std::vector<std::string> groups;
  for (std::size_t i = 0; i < matcher.groups(); ++i) {
    // \K can put the start of a match behind its end.
    const bool took_part = matcher.begin(i) != Regex::kUnset && matcher.begin(i) <= matcher.end(i);
    groups.emplace_back(took_part ? subject.substr(matcher.begin(i), matcher.end(i) - matcher.begin(i))
                                  : std::string_view());
  }
  return std::optional(std::move(groups));
}

std::string filled_in(std::string_view text, const std::vector<std::string>& groups) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool reference = text[i] == '$' && i + 1 < text.size() && text[i + 1] >= '1' && text[i + 1] <= '9';
    if (!reference) {
      out += text[i];
      continue;
    }
    const auto group = static_cast<std::size_t>(text[++i] - '0');
    if (group < groups.size()) out += groups[group];
  }
  return out;
}

}  // namespace nanscope
