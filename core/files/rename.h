#pragma once
#include <filesystem>

#include "core/files/output_file.h"
#include "core/result.h"

/// How a finished file gets its name. Private to core/files. Errors name the new name.
namespace nanscope::files {

/// To a name that nothing has, a folder too. False: something has it.
Result<bool> rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to);

/// Over whatever file has the name.
Status rename_over(const std::filesystem::path& from, const std::filesystem::path& to);

/// Over one file and no other. False: another has the name now.
Result<bool> rename_over(const std::filesystem::path& from, const std::filesystem::path& to,
                         const FileIdentity& expected);

}  // namespace nanscope::files
