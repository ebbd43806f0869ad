#include "gui/recent_files.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <system_error>

namespace nanscope::gui {

namespace fs = std::filesystem;

fs::path recent_files_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state != '\0') return fs::path(state) / "nanscope" / "recent";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return fs::path(home) / ".local" / "state" / "nanscope" / "recent";
}

std::vector<fs::path> recent_files(const fs::path& list) {
  std::vector<fs::path> files;
  std::ifstream lines(list);
  for (std::string line; files.size() < kMostRecent && std::getline(lines, line);) {
    std::error_code ignored;
    if (!line.empty() && fs::is_regular_file(line, ignored)) files.emplace_back(line);
  }
  return files;
}

void remember(const fs::path& list, const fs::path& opened) {
  if (list.empty()) return;
  std::error_code failed;
  const fs::path whole = fs::absolute(opened, failed);
  // A line is a path: one with a line break cannot be kept.
  if (failed || whole.string().find('\n') != std::string::npos) return;
  std::vector<fs::path> files = recent_files(list);
  files.erase(std::remove(files.begin(), files.end(), whole), files.end());
  files.insert(files.begin(), whole);
  if (files.size() > kMostRecent) files.resize(kMostRecent);
  fs::create_directories(list.parent_path(), failed);
  std::ofstream out(list, std::ios::trunc);
  for (const fs::path& file : files) out << file.string() << '\n';
}

}  // namespace nanscope::gui
