#pragma once
#include <string>
#include <vector>

#include "cli/complete.h"

namespace nanscope::cli {

/// KnownValues of this program: scenarios, knobs and their values, views, number formats, classes of faults, devices.
std::vector<Candidate> known_values(const std::string& kind, const std::string& typed);

}  // namespace nanscope::cli
