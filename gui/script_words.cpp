#include "gui/script_words.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace nanscope::gui {
namespace {

constexpr std::string_view kSpaces = " \t\r";

/// What stands between quotation marks; `line` begins behind the first one and ends behind the second.
Result<std::string> quoted(std::string_view& line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      line.remove_prefix(i + 1);
      return text;
    }
    if (line[i] == '\\' && i + 1 < line.size()) ++i;
    text += line[i];
  }
  return fail("a quotation mark is not closed");
}

}  // namespace

Result<std::vector<Word>> split_words(std::string_view line) {
  std::vector<Word> words;
  for (;;) {
    const std::size_t begin = line.find_first_not_of(kSpaces);
    if (begin == std::string_view::npos || line[begin] == '#') return words;
    line.remove_prefix(begin);
    if (line.front() == '"') {
      line.remove_prefix(1);
      Result<std::string> text = quoted(line);
      if (!text) return tl::unexpected(std::move(text.error()));
      words.push_back({std::move(*text), true});
      continue;
    }
    const std::size_t end = std::min(line.find_first_of(kSpaces), line.size());
    words.push_back({std::string(line.substr(0, end)), false});
    line.remove_prefix(end);
  }
}

bool Words::take_if(std::string_view word) {
  if (done() || words_[at_].quoted || words_[at_].text != word) return false;
  ++at_;
  return true;
}

std::optional<double> Words::take_number() {
  if (done() || words_[at_].quoted) return std::nullopt;
  const std::string& text = words_[at_].text;
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc{} || read.ptr != text.data() + text.size() || !std::isfinite(number)) return std::nullopt;
  ++at_;
  return number;
}

Result<std::string> Words::take_text(std::string_view expected) {
  const Word* word = take();
  if (word == nullptr) return fail(fmt::format("expected {}", expected));
  return word->text;
}

}  // namespace nanscope::gui
