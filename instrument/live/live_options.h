#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "instrument/live/watcher.h"

/// What `nanscope attach --run` tells the library that it injects: environment variables, so that it can be said by
/// hand.
namespace nanscope::live {

struct LiveOptions {
  std::string output = "live.nanscope";  ///< NANSCOPE_LIVE_OUTPUT
  /// NANSCOPE_LIVE_BESIDE: where the first process writes what is to replace `output` later; empty: nothing is
  /// replaced.
  std::string beside;
  bool watch = false;      ///< NANSCOPE_LIVE_WATCH, 1 or 0
  std::string kernels;     ///< NANSCOPE_LIVE_KERNELS, a regular expression; empty: all
  std::int64_t every = 1;  ///< NANSCOPE_LIVE_EVERY
  double budget = 0.05;    ///< NANSCOPE_LIVE_BUDGET, a share of wall time
  std::int64_t ring = 16;  ///< NANSCOPE_LIVE_RING, buffers
};

/// Reads them; `get` gives a variable's text, or null. Errors name the variable and what is expected.
Result<LiveOptions> live_options(const std::function<const char*(const char*)>& get);
/// The same as variables.
std::vector<std::pair<std::string, std::string>> environment_of(const LiveOptions& options);
/// Errors: the expression is none.
Result<WatchOptions> watch_options(const LiveOptions& options);

}  // namespace nanscope::live
