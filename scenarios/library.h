#pragma once
#include <filesystem>
#include <string>

#include "core/result.h"

namespace nanscope::scenarios {

/// Where the scenarios that come with nanscope are: the folder that $NANSCOPE_SCENARIOS names, else the one that was
/// installed or built with the program, else `scenarios` here.
std::filesystem::path library_folder();

/// A scenario file or folder as it was typed: a path, or the name of a scenario of the library.
/// Errors name what was looked for and where.
Result<std::filesystem::path> find_scenario(const std::string& typed);

}  // namespace nanscope::scenarios
