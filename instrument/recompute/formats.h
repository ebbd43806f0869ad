#pragma once
#include "instrument/recompute/recompute.h"

namespace nanscope {

/// Finds the format of codes that were dumped as mere bytes: the one in which what was written comes out, else the one
/// in which what was read does. What was read in another than was written is then a mismatch, not a guess.
void settle_formats(Recomputer& recomputer);

}  // namespace nanscope
