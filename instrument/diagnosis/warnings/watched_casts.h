#pragma once
#include <vector>

#include "instrument/diagnosis/warnings/warning.h"

namespace nanscope::early {

/// Casts with one stated scale that are watched and whose values are known, in order of execution.
std::vector<const Cast*> watched_casts(Survey& survey, const IsWatched& watched);
/// Of those, the casts of the same place with the same scale, of which `cast` is the last.
std::vector<const Cast*> under_same_scale(Survey& survey, const std::vector<const Cast*>& casts, const Cast& cast);
/// Share of the nonzero values that became zero, or codes of one or two steps.
double spoilt_share(const Cast& cast);

}  // namespace nanscope::early
