#pragma once
#include <cstdint>
#include <filesystem>

#include "core/result.h"
#include "instrument/live/watcher.h"

namespace nanscope::live {

struct WatchDump {
  std::filesystem::path folder;
  std::int64_t tensors = 0;  ///< none when every buffer was too large to be kept
};

/// Writes what a finding kept as a dump that `nanscope diagnose` reads: tensors.safetensors, its tensors named
/// launch_000012.KERNEL.input.ARGUMENT or .output.ARGUMENT, and finding.txt with the sentence. Where `folder` exists it
/// is left alone, and the dump is in `folder`-2, or -3 and so on. Only the user can read it. Errors: the folder cannot
/// be written.
Result<WatchDump> write_watch_dump(const Finding& finding, const std::filesystem::path& folder);

}  // namespace nanscope::live
