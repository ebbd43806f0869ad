#include "gui/place_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

namespace nanscope::gui {
namespace {

bool is_plain(char c) {
  constexpr std::string_view kAlso = "/._-+=:,@%";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kAlso.find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_word(std::string_view text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string shell_file(const std::filesystem::path& run) {
  std::error_code failed;
  const std::filesystem::path whole = std::filesystem::absolute(run, failed);
  return shell_word((failed ? run : whole).lexically_normal().string());
}

std::string link_to(const std::filesystem::path& run, const Place& place) {
  const std::string file = shell_file(run);
  const std::string at = to_string(place);
  return fmt::format("nanscope gui {}{}{}", file, at.empty() ? "" : " --at ", at.empty() ? "" : shell_word(at));
}

}  // namespace nanscope::gui
