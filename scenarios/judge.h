#pragma once
#include <string>
#include <vector>

#include "scenarios/analysis.h"
#include "scenarios/scenario.h"

namespace nanscope::scenarios {

/// One expectation that was missed.
struct Missed {
  std::string what;  ///< "verdict", "output of text-calibrates", "event values-clipped" ...
  std::string expected;
  std::string found;
};

/// Compares a run with what its scenario expects. Empty: as expected.
std::vector<Missed> judge(const Scenario& scenario, const Analysis& analysis);

/// "output of a: expected "x", found "y"".
std::string to_string(const Missed& missed);

}  // namespace nanscope::scenarios
