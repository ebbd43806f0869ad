#include "gui/export/new_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "core/files/output_file.h"

namespace nanscope::gui {

namespace fs = std::filesystem;

namespace {

constexpr int kMostNames = 10'000;

/// Gives a file the first name that is free.
Result<fs::path> name_it(OutputFile& file, const fs::path& folder, const std::string& stem,
                         std::string_view extension) {
  for (int number = 1; number <= kMostNames; ++number) {
    const std::string name =
        number == 1 ? fmt::format("{}.{}", stem, extension) : fmt::format("{}-{}.{}", stem, number, extension);
    const Result<bool> named = file.commit_as(folder / name);
    if (!named) return tl::unexpected(named.error());
    if (*named) return folder / name;
  }
  return fail(fmt::format("{}: all names are taken", (folder / stem).string()));
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

Result<fs::path> write_new_file(std::span<const fs::path> folders, const std::string& stem, std::string_view extension,
                                const std::function<Status(OutputFile&)>& fill) {
  std::string reasons;
  for (const fs::path& folder : folders) {
    auto file = OutputFile::create_beside(folder / fmt::format("{}.{}", stem, extension), {});
    if (!file) {
      reasons += (reasons.empty() ? "" : "; ") + file.error().message;
      continue;
    }
    if (Status filled = fill(*file); !filled) return tl::unexpected(filled.error());
    return name_it(*file, folder, stem, extension);
  }
  return fail(fmt::format("{}.{} cannot be written ({})", stem, extension, reasons.empty() ? "no folder" : reasons));
}

}  // namespace nanscope::gui
