#include "gui/recent_files.h"

#include <algorithm>
#include <string>
#include <system_error>

#include "gui/state_file.h"

namespace nanscope::gui {

namespace fs = std::filesystem;

fs::path recent_files_path() { return state_file("recent"); }

std::vector<fs::path> recent_files(const fs::path& list) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const std::string& line : read_lines(list)) {
    if (files.size() < kMostRecent && !line.empty() && fs::exists(line, ignored)) files.emplace_back(line);
  }
  return files;
}

void remember(const fs::path& list, const fs::path& opened) {
  if (list.empty()) return;
  std::error_code failed;
  const fs::path whole = fs::absolute(opened, failed);
  // A line is a path: one with a line break cannot be kept.
  if (failed || whole.string().find('\n') != std::string::npos) return;
  std::vector<std::string> lines{whole.string()};
  for (const fs::path& file : recent_files(list)) {
    if (file != whole && lines.size() < kMostRecent) lines.push_back(file.string());
  }
  write_lines(list, lines);
}

}  // namespace nanscope::gui
