#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/recording/reader.h"
#include "core/result.h"
#include "core/run/run_view.h"
#include "core/run/tensor_source.h"
#include "instrument/diagnosis/diagnosis.h"
#include "instrument/diagnosis/front.h"
#include "scenarios/open_run.h"

namespace nanscope::scenarios {

/// A request as a person wants to see it first: what it was, what it answered, whether it is broken.
struct RequestOutcome {
  RequestRow row;
  std::int64_t prompt_tokens = 0;
  std::int64_t image_tokens = 0;
  bool nan_logits = false;  ///< some row of logits that a token was taken from holds a NaN
  bool all_bang = false;    ///< it answered, and with token 0 alone
};

/// Everything that is said about one run, from its recorded numbers alone.
struct Analysis {
  std::string target;  ///< the recording's or the dump's name
  RunInfo info;
  RecordingCounts counts;
  std::vector<RequestOutcome> requests;
  Diagnosis diagnosis;
  std::optional<Front> front;           ///< of the step where things break first; nothing when nothing does
  std::optional<std::uint64_t> digest;  ///< of every tensor's hash, in order; of recordings alone
  bool dumped() const { return info.device == kDumpDevice; }
};

/// Diagnoses a run, and gathers what is shown with it. Errors: rows cannot be read; stopped.
Result<Analysis> analyse(RunView& run, const DiagnoseOptions& options);
/// The same of an open recording, with its digest, or of an open dump, with what of its files could not be read. Errors
/// begin with the target; a dump that was written to meanwhile is one.
Result<Analysis> analyse(OpenRun& run, const DiagnoseOptions& options);
Result<Analysis> analyse(const Recording& recording, TensorSource& tensors, std::string target);

/// What the configuration of OpenRunOptions::model says of the run's ops. The run must outlive it.
KnownModel known_model(OpenRun& run);

/// XXH3 over (id, hash) of every tensor in logical order: equal digests, equal runs.
Result<std::uint64_t> digest_of(const Recording& recording);

/// The requests of a run and what became of them.
Result<std::vector<RequestOutcome>> request_outcomes(RunView& run);

}  // namespace nanscope::scenarios
