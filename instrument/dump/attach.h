#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "core/files/output_file.h"
#include "instrument/dump/open_dump.h"

namespace nanscope {

struct AttachOptions {
  OutputOptions output{.mode = 0644};  ///< whether an existing file is replaced, and what is read meanwhile
  bool elements = true;                ///< store the elements; else health and hashes alone
  std::string version;                 ///< of nanscope, for the recording
  std::string created;                 ///< UTC, ISO 8601
  std::function<void(std::int64_t done, std::int64_t total)> progress;  ///< tensors
  std::stop_token stop;
};

struct Attached {
  std::int64_t tensors = 0;    ///< that were dumped
  std::int64_t converted = 0;  ///< stored in a wider format, because nanscope has none for their dtype
  std::int64_t stated = 0;     ///< statistics alone: their elements are not known
  std::int64_t left_out = 0;   ///< of which the run knows nothing, and statistics of shapes that no recording can hold
};

/// Writes a dump as a recording: what its run looks like as a view, see DumpRun, with elements a block at a time. Its
/// configuration is empty: it cannot be replayed. Errors: those of
/// check_output(), the disk is full, stopped, elements cannot be read; then no file is left, and the one that was there
/// is.
Result<Attached> attach(OpenDump& dump, const std::filesystem::path& recording, const AttachOptions& options);

}  // namespace nanscope
