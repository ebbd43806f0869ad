#pragma once
#include <filesystem>
#include <string>

#include "core/files/output_file.h"
#include "core/recording/capture_policy.h"
#include "core/recording/reader.h"
#include "core/recording/rows.h"
#include "core/result.h"
#include "instrument/engine/engine.h"
#include "kernels/device.h"
#include "scenarios/run_spec.h"
#include "scenarios/workbench.h"

namespace nanscope::scenarios {

struct RecordOptions {
  std::filesystem::path path;          ///< empty: in memory
  OutputOptions output{.mode = 0644};  ///< whether an existing file is replaced, and what is read meanwhile
  std::string capture = "none";        ///< a CapturePolicy's text
  bool trace = false;                  ///< also when the work of each op ran, see instrument/trace
  RunControl control;
};

struct Recorded {
  Recording recording;
  RunResult result;
  double seconds = 0;        ///< of the run itself, the model being loaded
  double total_seconds = 0;  ///< from the engine's making to the closed file
};

/// What a recording of `spec` says of itself when it is begun.
RunInfo run_info_of(const RunSpec& spec, const kernels::DeviceInfo& device, const CapturePolicy& capture);

/// Runs `spec` and records it. Errors: the file may not be written, the run cannot be started, or
/// was stopped, or cannot be traced; what was committed until then stays in the file, which counts as interrupted,
/// unless it was to replace another: that stays then.
Result<Recorded> record(Workbench& workbench, const RunSpec& spec, const RecordOptions& options = {});
/// The same into a file that was made for it before; the path and the output of `options` are not used.
Result<Recorded> record_to(OutputFile file, Workbench& workbench, const RunSpec& spec, const RecordOptions& options);

}  // namespace nanscope::scenarios
