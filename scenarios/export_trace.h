#pragma once
#include <cstdint>
#include <filesystem>

#include "core/files/output_file.h"
#include "core/recording/reader.h"
#include "core/result.h"

namespace nanscope::scenarios {

/// What a trace shows.
struct TraceCounts {
  std::int64_t ops = 0;        ///< that have activity
  std::int64_t kernels = 0;    ///< pieces of work and markers
  std::int64_t dropped = 0;    ///< records that were lost while it was recorded
  std::int64_t senseless = 0;  ///< rows whose times no clock can have given; left out
};

/// Writes the kernel activity of a recording in Chrome's trace event format, which Perfetto and chrome://tracing read
/// ("Trace Event Format", Google, 2016): a track of steps, one of ops, one for each stream, times in microseconds from
/// the first start. Ops that hold a NaN or an Inf are marked. Errors: no activity is recorded, rows cannot be read, the
/// file cannot be written.
Result<TraceCounts> export_trace(const Recording& recording, const std::filesystem::path& path,
                                 const OutputOptions& output = {});

}  // namespace nanscope::scenarios
