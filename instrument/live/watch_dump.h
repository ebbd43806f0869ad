#pragma once
#include <cstdint>
#include <filesystem>

#include "core/result.h"
#include "instrument/live/watcher.h"

namespace nanscope::live {

/// Writes what a finding kept as a dump that `nanscope diagnose` reads: tensors.safetensors, its tensors named
/// launch_000012.KERNEL.input.ARGUMENT or .output.ARGUMENT, and finding.txt with the sentence. Gives the number of
/// tensors; none when every buffer was too large to be kept. Errors: the folder cannot be written.
Result<std::int64_t> write_watch_dump(const Finding& finding, const std::filesystem::path& folder);

}  // namespace nanscope::live
