#pragma once
#include <vector>

#include "instrument/verify/alternative.h"
#include "instrument/verify/verify.h"

namespace nanscope {

/// What explains an output that is further off than rounding: every alternative, of the op itself and of those before
/// it that were not dumped, best first. Empty where nothing does.
std::vector<ExplainedBy> explain(Recomputer& recomputer, const ModelForms& model, const Recomputed& result);

}  // namespace nanscope
