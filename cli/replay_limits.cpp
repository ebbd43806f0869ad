#include "cli/replay_limits.h"

namespace nanscope::cli {

void add_replay_limits(CLI::App& command, RunLimits& limits) {
  constexpr double kGib = 1073741824.0;
  constexpr double kTera = 1e12;
  command
      .add_option_function<double>(
          "--replay-memory", [&limits](double gib) { limits.bytes = gib * kGib; },
          "GiB that running a recording again may take, by its configuration (default: 2)")
      ->type_name("GIB")
      ->check(CLI::NonNegativeNumber);
  command
      .add_option_function<double>(
          "--replay-work", [&limits](double tera) { limits.work = tera * kTera; },
          "10^12 operations that it may take (default: 1, which two cores do in a minute)")
      ->type_name("TERA")
      ->check(CLI::NonNegativeNumber);
}

}  // namespace nanscope::cli
