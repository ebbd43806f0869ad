#pragma once
#include <cstdint>
#include <optional>

#include "core/numbers/format.h"

namespace nanscope {

/// What a cast makes of one real value: the bucket it falls in and what is lost.
struct Rounding {
  Format format;
  Overflow overflow;
  double value;                         ///< the input, in units of the code (already divided by the scale)
  std::uint32_t source_bits;            ///< the f32 that is cast: the input rounded to f32, payloads kept
  double source;                        ///< its value; for f32 and i32 the input itself
  std::uint32_t code;                   ///< what is stored
  double stored;                        ///< value of `code`
  std::optional<std::uint32_t> lower;   ///< greatest code whose value is <= the input; equals upper when exact
  std::optional<std::uint32_t> upper;   ///< smallest code whose value is >= the input
  std::optional<double> midpoint;       ///< between lower and upper when both are finite and differ
  bool exact = false;                   ///< stored == input
  bool tie = false;                     ///< the source is the midpoint: the even code was taken
  bool clipped = false;                 ///< |input| beyond the largest finite value, a finite one stored
  bool overflowed = false;              ///< finite input, Inf or NaN stored
  bool flushed = false;                 ///< nonzero input, zero stored
  bool laundered = false;               ///< NaN in, a finite number stored
  bool sign_dropped = false;            ///< negative input, unsigned format
  std::optional<double> absolute_loss;  ///< |stored - input|, when both are finite
  std::optional<double> relative_loss;  ///< absolute_loss / |input|, when the input is not 0
};

/// The nearest f32, ties to even, Inf beyond the range (where the plain conversion is undefined).
float f32_of(double value);

/// Casts `value` as kernels do: to f32 first, then to the format (i32 directly, it is no cast target
/// of kernels). Losses are against the value as given.
Rounding round_value(Format format, double value, Overflow overflow);

/// The same for an f32 given by its bits, so that a NaN's payload reaches the cast.
Rounding round_bits(Format format, std::uint32_t f32_bits, Overflow overflow);

}  // namespace nanscope
