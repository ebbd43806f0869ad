#include "gui/state_file.h"

#include <cstdlib>
#include <fstream>
#include <system_error>
#include <tuple>

#include "core/files/output_file.h"

namespace nanscope::gui {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostLines = 1000;  ///< more are none of ours

}  // namespace

fs::path state_file(std::string_view name) {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state != '\0') return fs::path(state) / "nanscope" / name;
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return fs::path(home) / ".local" / "state" / "nanscope" / name;
}

std::vector<std::string> read_lines(const fs::path& file) {
  std::vector<std::string> lines;
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return lines;
  std::ifstream in(file);
  for (std::string line; lines.size() < kMostLines && std::getline(in, line);) lines.push_back(std::move(line));
  return lines;
}

void write_lines(const fs::path& file, std::span<const std::string> lines) {
  if (file.empty()) return;
  std::error_code failed;
  fs::create_directories(file.parent_path(), failed);
  std::string text;
  for (const std::string& line : lines) text.append(line).push_back('\n');
  std::ignore = write_output(file, text, {.replace = true});
}

}  // namespace nanscope::gui
