#pragma once
#include "instrument/diagnosis/detectors/detector.h"

namespace nanscope {

/// Blocks of keys or values along the tokens whose scale a later token decides on than one that reads them: the scale
/// of the rows up to its own alone would be another; or rows that pad a prompt on its left do, which every token behind
/// reads, in whatever tile. A finding an op that quantizes and kind. Blocks whose readers take
/// something else of their own tile are healthy. Counts what it looked at.
void look_at_blocks(Survey& survey, Findings& out, std::int64_t& looked_at);

}  // namespace nanscope
