#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "instrument/diagnosis/cascade.h"
#include "instrument/diagnosis/diagnosis.h"
#include "instrument/diagnosis/front.h"
#include "core/run/run_data.h"
#include "core/run/tensor_source.h"
#include "core/recording/reader.h"
#include "core/result.h"

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
  std::string target;  ///< the recording's name
  RunInfo info;
  RecordingCounts counts;
  std::vector<RequestOutcome> requests;
  Diagnosis diagnosis;
  Cascade cascade;
  std::optional<Front> front;  ///< of the step where things break first; nothing when clean
  std::uint64_t digest = 0;    ///< of every tensor's hash, in order
};

/// Errors: rows cannot be read.
Result<Analysis> analyse(const Recording& recording, TensorSource& tensors, std::string target);

/// XXH3 over (id, hash) of every tensor in logical order: equal digests, equal runs.
Result<std::uint64_t> digest_of(const Recording& recording);

/// The requests of a run and what became of them.
Result<std::vector<RequestOutcome>> request_outcomes(RunData& run);

}  // namespace nanscope::scenarios
