#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/numbers/anatomy.h"
#include "core/numbers/rounding.h"

namespace nanscope::bits {

/// One field of a format's codes: its letter, its highest bit, and for each bit the weight it carries.
struct Field {
  char letter;  ///< S, E, M, or I for integers
  int high;
  std::vector<std::string> weights;  ///< one a bit, from `high` downwards
};
/// From the highest bit to the lowest.
std::vector<Field> fields_of(const FormatInfo& format);

/// Codes of the finite values around the input of a cast, ascending: at most two at or below it, two
/// at or above it. Empty for NaN.
std::vector<std::uint32_t> marks_around(const Rounding& rounding);

/// The code's bits as cells, with field letters above and weights below. Four lines of formats wider
/// than 16 bits are without weights. Ends in a newline.
std::string draw_fields(const Anatomy& anatomy, bool ascii);

/// The ruler around a cast: representable values as marks, where buckets meet, where the input lies
/// and which mark is stored. Empty when the input or all neighbours are not finite.
std::string draw_buckets(const Rounding& rounding, const std::string& input_label, bool ascii);

}  // namespace nanscope::bits
