#include "cli/replay_limits.h"

#include <fmt/format.h>

namespace nanscope::cli {

void add_run_limits(CLI::App& command, RunLimits& limits, const std::string& what) {
  constexpr double kGib = 1073741824.0;
  constexpr double kTera = 1e12;
  command
      .add_option_function<double>(
          "--replay-memory", [&limits](double gib) { limits.bytes = gib * kGib; },
          fmt::format("Memory limit of {} in GiB, checked against its configuration (default: 2)", what))
      ->type_name("GIB")
      ->check(CLI::NonNegativeNumber);
  command
      .add_option_function<double>(
          "--replay-work", [&limits](double tera) { limits.work = tera * kTera; },
          fmt::format("Work limit of {} in 10^12 operations (default: 1, a minute on two cores)", what))
      ->type_name("TERA")
      ->check(CLI::NonNegativeNumber);
}

void add_replay_limits(CLI::App& command, RunLimits& limits) { add_run_limits(command, limits, "a replay"); }

}  // namespace nanscope::cli
