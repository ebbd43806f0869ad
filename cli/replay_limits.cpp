#include "cli/replay_limits.h"

namespace nanscope::cli {

void add_replay_limits(CLI::App& command, RunLimits& limits) {
  constexpr double kGib = 1073741824.0;
  constexpr double kTera = 1e12;
  command
      .add_option_function<double>(
          "--replay-memory", [&limits](double gib) { limits.bytes = gib * kGib; },
          "Memory limit of a replay in GiB, checked against its configuration (default: 2)")
      ->type_name("GIB")
      ->check(CLI::NonNegativeNumber);
  command
      .add_option_function<double>(
          "--replay-work", [&limits](double tera) { limits.work = tera * kTera; },
          "Work limit of a replay in 10^12 operations (default: 1, a minute on two cores)")
      ->type_name("TERA")
      ->check(CLI::NonNegativeNumber);
}

}  // namespace nanscope::cli
