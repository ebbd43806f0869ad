#pragma once
#include <optional>
#include <vector>

#include "core/run/ranks.h"
#include "instrument/diagnosis/detectors/detector.h"

namespace nanscope {

/// For each finding, in order of execution, the one that led to it: found by walking from what it shows along the
/// graph, over caches, steps and requests. No path, no cause.
std::vector<std::optional<std::size_t>> causes_of(Survey& survey, const StepsOfRanks& ranks,
                                                  const std::vector<Finding>& findings);

}  // namespace nanscope
