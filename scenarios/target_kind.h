#pragma once
#include <filesystem>
#include <string>

#include "core/result.h"

/// What a path leads to, for commands that take one thing and are given another.
namespace nanscope::scenarios {

enum class TargetKind : std::uint8_t {
  missing,
  recording,
  recorded_dump,  ///< a recording that holds a dump (`nanscope attach`), which cannot be run again
  scenario,
  scenarios,   ///< a folder of them
  recordings,  ///< a folder in which there are some, and no tensors
  dump,        ///< a file or a folder of tensors
  other,       ///< a file that is none of these, or cannot be read
};
/// By names and first bytes alone; of a recording its head.
TargetKind kind_of(const std::string& path);

/// What a command takes.
enum class Takes : std::uint8_t { scenarios, recordings, dumps, runs };  ///< runs: recordings and dumps

/// Whether it is a folder with a config.json.
bool is_checkpoint(const std::filesystem::path& folder);

/// Errors: nothing is there, with what may have been meant; or another thing than the command takes, with the command
/// that takes it. What is neither passes: whoever reads it says best what is wrong in it.
Status check_target(const std::string& path, Takes takes);

}  // namespace nanscope::scenarios
