#pragma once
#include <cstdint>
#include <vector>

#include "core/numbers/format.h"

namespace nanscope::testing {

/// A code's value by the formula of the format's specification, in double arithmetic.
double define_decode(const FormatInfo& format, std::uint32_t code);

/// The cast by its definition: the representable value nearest to `value`, of two the one with the
/// even code. Works in double, where every quotient and product here is exact.
std::uint32_t define_encode(const FormatInfo& format, float value, Overflow overflow);

/// Several NaNs, infinities, signed zeros, subnormals, and every exponent of f32 with mantissas
/// around 0, around all rounding points of every format, and all ones; both signs.
std::vector<std::uint32_t> boundary_inputs();

}  // namespace nanscope::testing
