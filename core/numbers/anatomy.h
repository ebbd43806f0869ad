#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/numbers/format.h"

namespace nanscope {

enum class NumberClass : std::uint8_t { zero, subnormal, normal, inf, nan };
std::string_view name(NumberClass kind);

/// One code taken apart. `value` is exact: every finite code of every format is a double.
struct Anatomy {
  Format format;
  std::uint32_t code;
  NumberClass kind;
  bool negative;
  std::uint32_t exponent_field;  ///< as stored; 0 for integers
  int exponent;                  ///< unbiased power of two that scales the mantissa; subnormals: 1 - bias; integers: 0
  std::uint32_t mantissa_field;  ///< as stored; integers: the bits below the sign
  double value;
  std::string formula;                 ///< "(-1)^0 x 2^(15-7) x (1 + 6/8) = 448"
  std::string decimal;                 ///< every digit of the value; "nan", "inf", "-inf"
  std::optional<std::uint32_t> up;     ///< code of the next greater value, Inf included
  std::optional<std::uint32_t> down;   ///< code of the next smaller value
  std::optional<double> gap_up;        ///< distance to `up` when both are finite
  std::optional<double> gap_down;      ///< distance to `down` when both are finite
  std::optional<std::uint64_t> index;  ///< place among all codes that are not NaN, ordered by value, -0 before +0
};

/// Takes a code apart. Bits above the format's width are ignored.
Anatomy dissect(Format format, std::uint32_t code);

NumberClass classify(Format format, std::uint32_t code);

/// The code's value as a double, exact for every format, i32 included.
double exact_value(Format format, std::uint32_t code);

/// Number of codes that are not NaN.
std::uint64_t ordered_count(Format format);
/// Place among the codes that are not NaN, ordered by value; -0 stands before +0. Nothing for NaN.
std::optional<std::uint64_t> order_index(Format format, std::uint32_t code);
/// Inverse of order_index; `index` must be below ordered_count.
std::uint32_t code_at(Format format, std::uint64_t index);

/// Next code up or down in value (IEEE 754-2019, 5.3.1 nextUp): both zeros step to the smallest
/// nonzero value, and a step from a negative value onto zero gives -0 where the format has one.
/// Nothing for NaN and where there is no greater (smaller) value.
std::optional<std::uint32_t> next_up(Format format, std::uint32_t code);
std::optional<std::uint32_t> next_down(Format format, std::uint32_t code);

/// All digits of a double, no exponent: "0.001953125", "nan", "-inf".
std::string exact_decimal(double value);
/// The fewest digits that read back as the same double.
std::string short_decimal(double value);

}  // namespace nanscope
