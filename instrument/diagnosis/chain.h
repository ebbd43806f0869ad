#pragma once
#include <vector>

#include "instrument/diagnosis/diagnosis.h"
#include "instrument/diagnosis/facts.h"

namespace nanscope {

/// The events from the root causes to the answer, in order of execution: the faults, and between a fault and what it
/// led to whatever happened to values on the way back from there. Each event but the first of a chain says of which it
/// came.
///
/// Kinds beside the classes of faults: `scale-set`, `scale-computed`, `scale-locked`, `scale-kept` (where a scale came
/// from), `values-clipped`, `values-identical` (what a cast made of a row), `nan-in-...` and `inf-in-...` with
/// `projection`, `cache`, `scores`, `softmax`, `attention`, `residual`, `norm`, `mlp` and `logits` (where a NaN or an
/// Inf went through), `nan-spreads` and `inf-spreads` (to more tokens than before), `token` (what was answered).
std::vector<Event> chain_of(Facts& facts, const std::vector<Fault>& faults);

}  // namespace nanscope
