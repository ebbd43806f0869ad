#include "instrument/tokenizer/splitter.h"

#include <cstddef>
#include <utility>

namespace nanscope {
namespace {

constexpr RegexLimits kLimits{.pattern_bytes = 65536, .steps = 10'000'000, .heap_kib = 64 * 1024};

}  // namespace

Result<Splitter> Splitter::compile(std::string_view pattern, RegexSyntax syntax, Keep keep) {
  Result<Regex> regex = Regex::compile(pattern, syntax, kLimits);
  if (!regex) return fail("split pattern is " + regex.error().message);
  return Splitter(std::move(*regex), keep);
}

Result<Splitter> Splitter::regex(std::string_view pattern, Keep keep) {
  return compile(pattern, RegexSyntax::unicode, keep);
}

Result<Splitter> Splitter::literal(std::string_view text, Keep keep) {
  return compile(text, RegexSyntax::literal, keep);
}

Status Splitter::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  const auto add = [&](std::size_t begin, std::size_t end, bool is_match) {
    if (begin == end || (keep_ == Keep::matches && !is_match) || (keep_ == Keep::gaps && is_match)) return;
    pieces.push_back(text.substr(begin, end - begin));
  };
  Regex::Matcher matcher(regex_);
  std::size_t done = 0;  // everything before has become a piece
  while (done < text.size()) {
    const Result<bool> found = matcher.find(text, done, false);
    if (!found) {
      return fail("split pattern fails at byte " + std::to_string(done) + " of the text: " + found.error().message);
    }
    if (!*found) break;
    // \K can put the start of a match behind its end or before the search's start.
    if (matcher.begin(0) < done || matcher.end(0) <= matcher.begin(0))
      return fail("split pattern moves the start of its match");
    add(done, matcher.begin(0), false);
    add(matcher.begin(0), matcher.end(0), true);
    done = matcher.end(0);
  }
  add(done, text.size(), false);
  return {};
}

}  // namespace nanscope
