#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace nanscope::gui {

/// Where something about a recording is kept: beside it, else in the current folder, else at home.
std::vector<std::filesystem::path> folders_beside(const std::filesystem::path& recording);

/// Makes an empty file of a name that no file has, `stem.extension` or `stem-2.extension` and so on, in the first of
/// the folders that takes one. Errors: none does; all names are taken.
Result<std::filesystem::path> create_new_file(std::span<const std::filesystem::path> folders, const std::string& stem,
                                              std::string_view extension);

/// Errors: the file cannot be opened, the disk is full.
Status write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace nanscope::gui
