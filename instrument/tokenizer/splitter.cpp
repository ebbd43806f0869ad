#include "instrument/tokenizer/splitter.h"

#include <cstddef>
#include <utility>

#include "instrument/files/utf8.h"

namespace nanscope {
namespace {

constexpr RegexLimits kLimits{.pattern_bytes = 65536, .steps = 10'000'000, .heap_kib = 64 * 1024};

/// Makes pieces of matches and the stretches between them, which it is told from left to right.
class PieceCollector {
 public:
  PieceCollector(std::string_view text, SplitRule rule, std::vector<std::string_view>& pieces)
      : text_(text), rule_(rule), pieces_(pieces) {}

  void operator()(std::size_t begin, std::size_t end, bool is_match) {
    using Behavior = SplitRule::Behavior;
    if (begin == end) return;
    const bool matched = is_match != rule_.invert;
    const bool follows_other = before_ != Before::nothing && matched != (before_ == Before::match);
    before_ = matched ? Before::match : Before::stretch;
    if (rule_.behavior == Behavior::removed && matched) return;
    const bool joins = follows_other && ((rule_.behavior == Behavior::merged_with_previous && matched) ||
                                         (rule_.behavior == Behavior::merged_with_next && !matched));
    if (joins) {
      begin -= pieces_.back().size();
      pieces_.pop_back();
    }
    pieces_.push_back(text_.substr(begin, end - begin));
  }

 private:
  enum class Before { nothing, match, stretch };

  std::string_view text_;
  SplitRule rule_;
  std::vector<std::string_view>& pieces_;
  Before before_ = Before::nothing;
};

}  // namespace

Result<Splitter> Splitter::compile(std::string_view pattern, RegexSyntax syntax, SplitRule rule) {
  Result<Regex> regex = Regex::compile(pattern, syntax, kLimits, RegexSubject::utf8);
  if (!regex) return fail("split pattern is " + regex.error().message);
  return Splitter(std::move(*regex), rule);
}

Result<Splitter> Splitter::regex(std::string_view pattern, SplitRule rule) {
  return compile(pattern, RegexSyntax::unicode, rule);
}

Result<Splitter> Splitter::literal(std::string_view text, SplitRule rule) {
  return compile(text, RegexSyntax::literal, rule);
}

Status Splitter::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  PieceCollector add(text, rule_, pieces);
  Regex::Matcher matcher(regex_);
  std::size_t done = 0;  // everything before has become a piece
  for (std::size_t start = 0; start < text.size(); ++start) {
    const std::string_view stretch = text.substr(start, utf8_prefix(text.substr(start)));
    const std::size_t end = start + stretch.size();
    for (std::size_t from = start; from < end; from = done) {
      const Result<bool> found = matcher.find_in_stretch(stretch, from - start, start == 0, end == text.size());
      if (!found) {
        return fail("split pattern fails at byte " + std::to_string(from) + " of the text: " + found.error().message);
      }
      if (!*found) break;
      // \K can put the start of a match behind its end or before the search's start.
      if (start + matcher.begin(0) < from || matcher.end(0) <= matcher.begin(0)) {
        return fail("split pattern moves the start of its match");
      }
      add(done, start + matcher.begin(0), false);
      add(start + matcher.begin(0), start + matcher.end(0), true);
      done = start + matcher.end(0);
    }
    start = end;  // and over the byte that is no UTF-8
  }
  add(done, text.size(), false);
  return {};
}

}  // namespace nanscope
