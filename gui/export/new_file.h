#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/output_file.h"
#include "core/result.h"

namespace nanscope::gui {

/// Where something about a recording is kept: beside it, else in the current folder, else at home.
std::vector<std::filesystem::path> folders_beside(const std::filesystem::path& recording);

/// Writes a file under a name that no file has, `stem.extension` or `stem-2.extension` and so on, in the first of the
/// folders that takes one. Errors: none does; all names are taken; what `fill` says. Then there is no file.
Result<std::filesystem::path> write_new_file(std::span<const std::filesystem::path> folders, const std::string& stem,
                                             std::string_view extension,
                                             const std::function<Status(OutputFile&)>& fill);

}  // namespace nanscope::gui
