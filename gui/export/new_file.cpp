#include "gui/export/new_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <system_error>

namespace nanscope::gui {

namespace fs = std::filesystem;

namespace {

constexpr int kMostNames = 10'000;

/// 0, or the reason as errno has it.
int create(const fs::path& path) {
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
  if (file < 0) return errno;
  ::close(file);
  return 0;
}

}  // namespace

std::vector<fs::path> folders_beside(const fs::path& recording) {
  std::vector<fs::path> folders;
  const auto add = [&](const fs::path& folder) {
    if (!folder.empty() && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(folder);
  };
  std::error_code ignored;
  add(fs::absolute(recording, ignored).parent_path());
  add(fs::current_path(ignored));
  const char* home = std::getenv("HOME");
  if (home != nullptr) add(home);
  return folders;
}

Result<fs::path> create_new_file(std::span<const fs::path> folders, const std::string& stem,
                                 std::string_view extension) {
  std::string reasons;
  for (const fs::path& folder : folders) {
    int reason = EEXIST;
    for (int number = 1; reason == EEXIST && number <= kMostNames; ++number) {
      const std::string name =
          number == 1 ? fmt::format("{}.{}", stem, extension) : fmt::format("{}-{}.{}", stem, number, extension);
      reason = create(folder / name);
      if (reason == 0) return folder / name;
    }
    reasons +=
        fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", folder.string(), std::generic_category().message(reason));
  }
  return fail(fmt::format("{}.{} cannot be written ({})", stem, extension, reasons.empty() ? "no folder" : reasons));
}

Status write_text(const fs::path& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (!out) return fail(fmt::format("{} cannot be written: {}", path.string(), std::generic_category().message(errno)));
  out << text;
  out.close();
  if (!out) return fail(fmt::format("{} cannot be written: is the disk full?", path.string()));
  return {};
}

}  // namespace nanscope::gui
