#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "instrument/dump/open_dump.h"

namespace nanscope {

struct AttachOptions {
  bool overwrite = false;
  bool elements = true;  ///< store the elements; else health and hashes alone
  std::string version;   ///< of nanscope, for the recording
  std::string created;   ///< UTC, ISO 8601
  std::function<void(std::int64_t done, std::int64_t total)> progress;  ///< tensors
  std::stop_token stop;
};

struct Attached {
  std::int64_t tensors = 0;
  std::int64_t converted = 0;  ///< stored in a wider format, because nanscope has none for their dtype
  std::int64_t stated = 0;     ///< of those, statistics alone: their elements are not known
  std::int64_t left_out = 0;   ///< integers beyond 32 bits, statistics of shapes that no recording can hold
};

/// Writes a dump as a recording: a request for each run, request and rank, a step a pass, an op for each module that
/// was dumped. Its configuration is empty: it cannot be replayed. Errors: the file exists, cannot be written, stopped;
/// then no file is left.
Result<Attached> attach(OpenDump& dump, const std::filesystem::path& recording, const AttachOptions& options);

}  // namespace nanscope
