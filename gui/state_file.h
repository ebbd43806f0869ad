#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Small files of the user's that outlive a window. What cannot be read or written is left: nobody wants to be told
/// of it.
namespace nanscope::gui {

/// $XDG_STATE_HOME/nanscope/NAME, else below ~/.local/state; empty when there is no home.
std::filesystem::path state_file(std::string_view name);

std::vector<std::string> read_lines(const std::filesystem::path& file);
/// Replaces the file as a whole: another window that reads it meanwhile sees the old lines or the new ones.
void write_lines(const std::filesystem::path& file, std::span<const std::string> lines);

}  // namespace nanscope::gui
