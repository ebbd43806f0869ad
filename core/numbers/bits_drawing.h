#pragma once
#include <string>

#include "core/numbers/anatomy.h"
#include "core/numbers/rounding.h"

namespace nanscope::bits {

/// The code's bits as cells, with field letters above and weights below. Four lines of formats wider
/// than 16 bits are without weights. Ends in a newline.
std::string draw_fields(const Anatomy& anatomy, bool ascii);

/// The ruler around a cast: representable values as marks, where buckets meet, where the input lies
/// and which mark is stored. Empty when the input or all neighbours are not finite.
std::string draw_buckets(const Rounding& rounding, const std::string& input_label, bool ascii);

}  // namespace nanscope::bits
