#pragma once
#include <vector>

#include "core/run/run_view.h"

namespace nanscope {

/// The steps of all other ranks that are the same pass of the same run, ascending by id: the same rows, and folders
/// that differ in the rank alone.
std::vector<const Step*> steps_of_other_ranks(RunView& run, const Step& step);

}  // namespace nanscope
