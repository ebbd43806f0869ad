#include "cli/investigate.h"

#include <string>

#include "cli/progress.h"
#include "scenarios/replay.h"

namespace nanscope::cli {

Result<scenarios::Counterfactuals> investigate(const Recording& recording, const Interrupt& interrupt,
                                               const RunLimits& limits) {
  const auto spec = scenarios::run_spec_of(recording);
  if (!spec) return tl::unexpected(spec.error());
  auto bench = scenarios::Workbench::open(spec->config, limits);
  if (!bench) return tl::unexpected(bench.error());
  ProgressLine progress("runs");
  scenarios::CounterfactualOptions options;
  options.stop = interrupt.token();
  options.progress = [&](std::int64_t done, std::int64_t total, const std::string& change) {
    progress.show(done, total, change);
  };
  return scenarios::counterfactuals(**bench, recording, options);
}

}  // namespace nanscope::cli
