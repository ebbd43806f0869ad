#pragma once
#include "core/blocks/block_format.h"
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// A weight as a quantized checkpoint stores it: codes, and scales that blocks of them share. Element (n, k) is the
/// code's value x the scale of its block, where a second scale of the whole is applied to the block's scale first; each
/// is rounded to f32. Plain data, passed to kernels by value; it owns nothing.
struct ScaledWeight {
  TensorView codes;   ///< e4m3, e5m2 or int8; or e2m1, two a byte, the first in the low half, with an even stride
  TensorView scales;  ///< f32, f16, bf16, e4m3 or e8m0: one a block
  BlockShape block;
  SecondScale second = SecondScale::none;  ///< none, multiplier or divisor
  float second_scale = 1;
  std::int64_t first_row = 0;  ///< of the part of the matrix that is the weight
  std::int64_t first_column = 0;

  constexpr bool given() const { return codes.given(); }
};

/// Checks a weight of rows x columns.
inline void check_scaled(ArgsCheck& check, const ScaledWeight& weight, std::int64_t rows, std::int64_t columns) {
  check.format("codes", weight.codes, {Format::e4m3, Format::e5m2, Format::int8, Format::e2m1});
  check.format("scales", weight.scales, {Format::f32, Format::f16, Format::bf16, Format::e4m3, Format::e8m0});
  check.that(weight.second != SecondScale::amax, "a second scale that multiplies or divides");
  check.that(weight.block.rows > 0 && weight.block.columns > 0, "blocks of at least one element");
  if (weight.block.rows < 1 || weight.block.columns < 1) return;
  const std::int64_t last_row = weight.first_row + rows;
  const std::int64_t last_column = weight.first_column + columns;
  check.that(weight.first_row >= 0 && weight.first_column >= 0 && last_row <= weight.codes.rows &&
                 last_column <= weight.codes.columns,
             "a weight that lies in its codes");
  check.that(weight.codes.format != Format::e2m1 || weight.codes.stride % 2 == 0, "rows of whole bytes");
  check.that((last_row + weight.block.rows - 1) / weight.block.rows <= weight.scales.rows &&
                 (last_column + weight.block.columns - 1) / weight.block.columns <= weight.scales.columns,
             "a scale for every block of codes");
}

}  // namespace nanscope::kernels
