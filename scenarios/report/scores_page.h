#pragma once
#include <string>

#include "scenarios/report/scales_report.h"

namespace nanscope::report {

/// The section of a page: policies for the scales of attention's scores over the steps of the run, a line a policy, by
/// layer: the scale, and what it makes of the largest score. HTML and SVG that need no script and no other file, in the
/// colours of html_report().
std::string scores_section(const ScoreReplayWords& words);

}  // namespace nanscope::report
