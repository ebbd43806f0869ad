#include "scenarios/serve/question.h"

#include <algorithm>
#include <string_view>

namespace nanscope::serve {

SoFar cut_at_stop(std::string text, const std::vector<std::string>& stops) {
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops) first = std::min(first, text.find(stop));
  if (first == std::string::npos) return {std::move(text), false};
  text.resize(first);
  return {std::move(text), true};
}

namespace {

/// Bytes at the end that begin a character of UTF-8 and do not complete it.
std::size_t incomplete(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::size_t certain(const std::string& text, const std::vector<std::string>& stops) {
  std::size_t held = incomplete(text);
  for (const std::string& stop : stops) {
    for (std::size_t part = std::min(stop.size(), text.size()); part > held; --part) {
      if (text.ends_with(std::string_view(stop).substr(0, part))) held = part;
    }
  }
  return text.size() - held;
}

}  // namespace nanscope::serve
