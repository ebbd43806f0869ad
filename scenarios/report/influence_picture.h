#pragma once
#include <string>

#include "instrument/image/image.h"
#include "scenarios/causality.h"

/// A map of influence as files: what `nanscope causality --map` writes.
namespace nanscope::report {

/// A header of changed tokens, then a line a token whose logits they move: "token,0,1,...". A token that was not
/// changed has empty cells; a difference to or from NaN is "inf".
std::string influence_csv(const scenarios::InfluenceMap& map);

/// Row: whose logits; column: which token was changed. Blue, what an earlier token moved; orange to red, what a later
/// one moved, which is a leak; both the stronger the larger the difference, over six decades below the largest. A token
/// takes up to 12 pixels a side; numbers of tokens stand at the edges.
Image influence_picture(const scenarios::InfluenceMap& map, const std::string& title);

}  // namespace nanscope::report
