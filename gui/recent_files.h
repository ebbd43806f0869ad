#pragma once
#include <filesystem>
#include <vector>

/// The recordings and dumps that were opened last, in a file of the user's. What cannot be read or written is
/// left: nobody wants to be told of it.
namespace nanscope::gui {

inline constexpr std::size_t kMostRecent = 12;

/// Empty when there is no home.
std::filesystem::path recent_files_path();

/// The newest first; those that are gone are left out.
std::vector<std::filesystem::path> recent_files(const std::filesystem::path& list);

/// Puts `opened` at the front.
void remember(const std::filesystem::path& list, const std::filesystem::path& opened);

}  // namespace nanscope::gui
