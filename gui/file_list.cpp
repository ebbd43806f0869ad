#include "gui/file_list.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "core/system_reason.h"

namespace nanscope::gui {

namespace fs = std::filesystem;

namespace {

std::string small_letters(std::string_view text) {
  std::string small(text);
  for (char& c : small) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return small;
}

bool before(const FileEntry& a, const FileEntry& b) {
  if (a.folder != b.folder) return a.folder;
  const std::string x = small_letters(a.name);
  const std::string y = small_letters(b.name);
  return x != y ? x < y : a.name < b.name;
}

void add(std::vector<Shortcut>& all, std::string name, const fs::path& folder) {
  std::error_code error;
  const fs::path clean = folder.lexically_normal();
  if (folder.empty() || !fs::is_directory(clean, error)) return;
  const bool known = std::ranges::any_of(all, [&](const Shortcut& one) { return one.folder == clean; });
  if (!known) all.push_back({std::move(name), clean});
}

}  // namespace

FileList list_folder(const fs::path& folder, bool hidden) {
  FileList list;
  list.folder = folder;
  std::error_code error;
  fs::directory_iterator next(folder, error);
  for (; !error && next != fs::directory_iterator(); next.increment(error)) {
    const std::string name = next->path().filename().string();
    if (!hidden && name.starts_with('.')) continue;
    struct stat facts {};
    // Through links, as opening goes; one that leads nowhere cannot be opened.
    if (::stat(next->path().c_str(), &facts) != 0) continue;
    if (!S_ISDIR(facts.st_mode) && !S_ISREG(facts.st_mode)) continue;
    if (list.entries.size() == kMostListed) {
      list.cut = true;
      break;
    }
    list.entries.push_back({.name = name,
                            .folder = S_ISDIR(facts.st_mode),
                            .bytes = static_cast<std::uintmax_t>(facts.st_size),
                            .changed = facts.st_mtime});
  }
  if (error) list.problem = system_reason(error.value());
  std::sort(list.entries.begin(), list.entries.end(), before);
  return list;
}

TypedPath understand_path(const fs::path& folder, std::string_view typed, const fs::path& home) {
  const std::size_t slash = typed.rfind('/');
  const bool of_home = !home.empty() && (typed == "~" || typed.starts_with("~/"));
  if (of_home && slash == std::string_view::npos) return {home, {}};
  if (slash == std::string_view::npos) return {folder, std::string(typed)};
  fs::path start(typed.substr(0, slash + 1));
  if (of_home) start = home / start.string().substr(std::min<std::size_t>(2, start.string().size()));
  fs::path shown = (start.is_absolute() ? start : folder / start).lexically_normal();
  if (!shown.has_filename() && shown.has_relative_path()) shown = shown.parent_path();
  return {shown, std::string(typed.substr(slash + 1))};
}

std::vector<std::size_t> matching(std::span<const FileEntry> entries, std::string_view text) {
  const std::string wanted = small_letters(text);
  std::vector<std::size_t> begins;
  std::vector<std::size_t> holds;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::size_t at = small_letters(entries[i].name).find(wanted);
    if (at != std::string::npos) (at == 0 ? begins : holds).push_back(i);
  }
  begins.insert(begins.end(), holds.begin(), holds.end());
  return begins;
}

std::vector<Shortcut> shortcuts(const fs::path& home, std::span<const fs::path> recent) {
  std::vector<Shortcut> all;
  std::error_code error;
  add(all, "Home", home);
  add(all, "Working folder", fs::current_path(error));
  for (const fs::path& file : recent) add(all, file.parent_path().filename().string(), file.parent_path());
  add(all, "Temporary files", fs::temp_directory_path(error));
  add(all, "File system", "/");
  return all;
}

fs::path with_home(std::string_view typed) {
  const fs::path home = home_folder();
  if (home.empty() || (typed != "~" && !typed.starts_with("~/"))) return typed;
  return typed.size() > 2 ? home / typed.substr(2) : home;
}

fs::path home_folder() {
  const char* home = std::getenv("HOME");
  return home != nullptr ? fs::path(home) : fs::path();
}

}  // namespace nanscope::gui
