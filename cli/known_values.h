#pragma once
#include <string>
#include <vector>

#include "cli/complete.h"

namespace nanscope::cli {

/// The KnownValues of nanscope: scenarios, settings and their values, views, number formats, fault classes, KV
/// policies, devices.
std::vector<Candidate> known_values(const std::string& kind, const std::string& typed);

}  // namespace nanscope::cli
