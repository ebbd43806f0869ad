#pragma once
/// What kv_store and kv_read share: scales and zero points of groups of channels, and codes of integers.
#include <cstdint>

#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// What a zero point is counted in.
enum class ZeroPoint : std::uint8_t {
  code,   ///< real = (code value - zero) x scale (lmdeploy, vLLM)
  value,  ///< real = code value x scale + zero (KIVI, quanto, a mean that is taken off)
};

/// How a quotient becomes an integer.
enum class IntRounding : std::uint8_t {
  even,  ///< ties to even
  away,  ///< ties away from zero (vLLM, roundf)
  up,    ///< floor(q + (0.5 - low)) + low, the sum rounded to f32: ties up (llama.cpp's q4_0)
};

inline std::int64_t group_count(std::int64_t channels, std::int64_t group) {
  return group <= 0 ? 1 : (channels + group - 1) / group;
}

/// (rows or 1, groups) f32, where it is given.
inline void check_groups(ArgsCheck& check, std::string_view name, const TensorView& view, std::int64_t rows,
                         std::int64_t groups) {
  if (!view.given()) return;
  check.format(name, view, {Format::f32});
  check.shape(name, view, view.rows == 1 ? 1 : rows, groups);
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// How many channels from `column` on, at most a warp's, lie in one group; groups of one channel do not end them.
NANSCOPE_FN std::int64_t run_of_group(std::int64_t column, std::int64_t channels, std::int64_t group) {
  std::int64_t run = channels - column < kLanes ? channels - column : kLanes;
  if (group > 1 && group - column % group < run) run = group - column % group;
  return run;
}

/// What the groups of channels [column, column + n) have; `none` where no view is given.
NANSCOPE_FN F32 of_groups(const TensorView& view, std::int64_t row, std::int64_t column, std::int64_t n,
                          std::int64_t group, float none) {
  if (!view.given()) return splat_f32(none);
  const std::int64_t at = view.rows == 1 ? 0 : row;
  if (group == 1) return load_range(view, at, column, n, none);
  return splat_f32(load_f32_scalar(view, at, group <= 0 ? 0 : column / group));
}

/// What a code stands for: one rounding an operation.
NANSCOPE_FN F32 dequantised(const F32& code, const F32& factor, const F32& zero, bool shifted, ZeroPoint counted) {
  if (!shifted) return code * factor;
  return counted == ZeroPoint::code ? (code - zero) * factor : code * factor + zero;
}

/// An integer between low and high as its two's complement code; `of_nan` of NaN.
NANSCOPE_FN U32 integer_code(const F32& quotient, IntRounding rounding, std::int32_t low, std::int32_t high,
                             std::int32_t of_nan) {
  const F32 bound_low = splat_f32(static_cast<float>(low));
  const F32 bound_high = splat_f32(static_cast<float>(high));
  const F32 number = select(is_nan(quotient), splat_f32(static_cast<float>(of_nan)), quotient);
  const F32 near = max_propagate(bound_low - splat_f32(1.0F), min_propagate(number, bound_high + splat_f32(1.0F)));
  I32 rounded = to_i32_rne(near);
  if (rounding == IntRounding::away) {
    const F64 magnitude = floor(to_f64(abs(near)) + splat_f64(0.5));
    rounded = to_i32_rne(copy_sign(magnitude, to_f64(near)));
  }
  if (rounding == IntRounding::up) {
    const F32 shifted = near + splat_f32(0.5F - static_cast<float>(low));
    rounded = to_i32_rne(floor(to_f64(shifted)) + splat_f64(static_cast<double>(low)));
  }
  const F32 clamped = max_propagate(bound_low, min_propagate(to_f32(rounded), bound_high));
  return to_u32(to_i32_rne(clamped)) & splat_u32(0xffU);
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
