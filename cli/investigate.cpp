#include "cli/investigate.h"

#include <fmt/format.h>

#include <stop_token>
#include <string>

#include "cli/command.h"
#include "cli/progress.h"
#include "core/counted.h"
#include "core/system_reason.h"
#include "scenarios/replay.h"

namespace nanscope::cli {

Result<scenarios::Counterfactuals> investigate(const Recording& recording, const Interrupt& interrupt,
                                               const RunLimits& limits, const OutcomeReader& reader) {
  const auto spec = scenarios::run_spec_of(recording);
  if (!spec) return tl::unexpected(spec.error());
  auto bench = scenarios::Workbench::open(spec->config, limits);
  if (!bench) return tl::unexpected(bench.error());
  std::stop_source stop;
  const std::stop_callback interrupted(interrupt.token(), [&stop] { stop.request_stop(); });
  ProgressLine progress("runs");
  scenarios::CounterfactualOptions options;
  options.stop = stop.get_token();
  options.progress = [&](std::int64_t done, std::int64_t total, const std::string& change) {
    progress.show(done, total, change);
  };
  options.ended = [&](const scenarios::Outcome& outcome) {
    progress.clear();
    if (reader && !reader(outcome)) stop.request_stop();
  };
  return scenarios::counterfactuals(**bench, recording, options);
}

bool complain_unrun(const std::string& target, const scenarios::Counterfactuals& changes) {
  const std::string reason = out_of_memory();
  std::size_t unrun = 0;
  for (const auto* outcomes : {&changes.singles, &changes.pairs}) {
    for (const scenarios::Outcome& one : *outcomes) unrun += one.error.find(reason) != std::string::npos ? 1 : 0;
  }
  if (unrun > 0) complain(fmt::format("{}: {} could not be run: {}", target, counted(unrun, "change"), reason));
  return unrun > 0;
}

std::string why_none(const scenarios::Analysis& analysis) {
  return analysis.dumped() ? "No counterfactuals: nanscope cannot rerun a dump." : "";
}

}  // namespace nanscope::cli
