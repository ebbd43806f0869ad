#pragma once
#include <string>

#include "instrument/moments/moments.h"
#include "scenarios/report/text.h"

/// What `nanscope bits --moments` says of mean and variance.
namespace nanscope::report {

/// A line for each form and order, then the definition in double precision.
std::string moments_text(const MomentsReport& made, const Terminal& terminal);
/// `nanscope.moments/1`; NaN and Inf are texts.
std::string moments_json(const MomentsReport& made);

}  // namespace nanscope::report
