#pragma once
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Folders as the file browser shows them.
namespace nanscope::gui {

inline constexpr std::size_t kMostListed = 20000;

struct FileEntry {
  std::string name;
  bool folder = false;
  std::uintmax_t bytes = 0;  ///< of a file
  std::time_t changed = 0;   ///< 0: not known
};

struct FileList {
  std::filesystem::path folder;
  std::vector<FileEntry> entries;  ///< folders first, each by name, capitals as small letters
  bool cut = false;                ///< there are more than kMostListed
  std::string problem;             ///< not empty: why the folder cannot be read
};

/// Reads a folder, without names that begin with a dot unless `hidden`. Sockets, pipes and devices are left out.
FileList list_folder(const std::filesystem::path& folder, bool hidden);

/// What a typed text means while `folder` is shown.
struct TypedPath {
  std::filesystem::path folder;  ///< to be shown
  std::string name;              ///< of an entry, or a part of one; empty: all
};
/// "cap" filters; "cap/" or "../" goes on into a folder; "/tmp/ca", "~/ca" begin anew. `home` empty: there is none.
TypedPath understand_path(const std::filesystem::path& folder, std::string_view typed,
                          const std::filesystem::path& home);

/// Entries whose names hold the text, those that begin with it first; capitals count as small letters.
std::vector<std::size_t> matching(std::span<const FileEntry> entries, std::string_view text);

/// A folder to begin from.
struct Shortcut {
  std::string name;
  std::filesystem::path folder;
};
/// Home, the working folder, the folders of recent files, temporary files, the root; each once, those that exist.
std::vector<Shortcut> shortcuts(const std::filesystem::path& home, std::span<const std::filesystem::path> recent);

/// "~/x" as a path in the user's home; anything else as it is.
std::filesystem::path with_home(std::string_view typed);

/// The user's home; empty when there is none.
std::filesystem::path home_folder();

}  // namespace nanscope::gui
