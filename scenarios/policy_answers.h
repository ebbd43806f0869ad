#pragma once
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "core/recording/reader.h"
#include "core/result.h"
#include "instrument/engine/cost.h"
#include "instrument/policies/evaluate.h"
#include "scenarios/run_spec.h"

namespace nanscope::scenarios {

struct PolicyAnswerOptions {
  std::stop_token stop;
  RunLimits limits = kReplayLimits;      ///< of all runs together
  const Recording* recording = nullptr;  ///< of the run: its weights have to be those that the runs would have
  std::function<void(std::int64_t done, std::int64_t total, const std::string& policy)> progress;
};

/// Runs the requests again with the cache under each policy, and compares what they answer, and the logits of their
/// prompts, with those of a cache in f32: PolicyResult::answer. Claims that need a run get its figures. Errors: the run
/// cannot be made; all of the runs would take more than the limits; stopped.
Status run_policies(const RunSpec& spec, PolicyReport& report, const PolicyAnswerOptions& options = {});

}  // namespace nanscope::scenarios
