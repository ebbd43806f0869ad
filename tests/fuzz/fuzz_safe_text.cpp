#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/text/safe_text.h"

namespace {

void expect(bool kept) {
  if (!kept) std::abort();
}

bool is_visible_text(std::string_view text, bool lines) {
  for (std::size_t at = 0; at < text.size();) {
    const nanscope::Character character = nanscope::character_at(text, at);
    const std::string_view raw = text.substr(at, character.length);
    if (!nanscope::is_visible(character.codepoint) && !(lines && raw == "\n")) return false;
    at += character.length;
  }
  return true;
}

}  // namespace

/// Whatever a text holds, each kind of output shows it and nothing obeys it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nanscope;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  expect(is_visible_text(one_line(bytes), false));
  expect(is_visible_text(safe_lines(bytes), true));
  expect(is_visible_text(xml_text(bytes), true));
  expect(is_visible_text(csv_cell(bytes), false));
  expect(is_visible_text(visible_json(one_line(bytes)), false));
  const std::string markdown = markdown_text(bytes);
  expect(is_visible_text(markdown, false) && markdown.find('<') == std::string::npos);
  const std::string code = markdown_code(bytes);
  expect(is_visible_text(code, true) && code.find_first_of("<`") == std::string::npos);
  const std::string error = error_line(bytes);
  expect(is_visible_text(error, false) && error.size() <= 4 * kLongestError);
  return 0;
}
