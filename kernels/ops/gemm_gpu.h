#pragma once
/// The operands of a product on a GPU, element by element.
#include "kernels/ops/product_tiles_gpu.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// What a code or a scale is worth.
NANSCOPE_CALLED float code_value(Format format, std::uint32_t code) { return decode_lanes(format, code); }

/// One element of a weight of codes and scales.
NANSCOPE_FN float scaled_value(const ScaledWeight& weight, std::int64_t n, std::int64_t k) {
  const std::int64_t row = weight.first_row + n;
  const std::int64_t column = weight.first_column + k;
  const bool halves = weight.codes.format == Format::e2m1;
  const std::int64_t at = row * weight.codes.stride + column;
  std::uint32_t code = load_scalar(static_cast<const std::uint8_t*>(weight.codes.data) + (halves ? at / 2 : at));
  if (halves) code = at % 2 == 0 ? code & 15U : code >> 4U;
  const TensorView& scales = weight.scales;
  const std::int64_t block = row / weight.block.rows * scales.stride + column / weight.block.columns;
  float scale = 1;
  switch (storage_size(scales.format)) {
    case 4:
      scale = load_scalar(static_cast<const float*>(scales.data) + block);
      break;
    case 2:
      scale = code_value(scales.format, load_scalar(static_cast<const std::uint16_t*>(scales.data) + block));
      break;
    default:
      scale = code_value(scales.format, load_scalar(static_cast<const std::uint8_t*>(scales.data) + block));
  }
  if (weight.second == SecondScale::divisor) scale = scale / weight.second_scale;
  if (weight.second == SecondScale::multiplier) scale = scale * weight.second_scale;
  return code_value(weight.codes.format, code) * scale;
}

/// One element of the weight, in whichever form it is given.
NANSCOPE_FN float weight_at(const GemmArgs& args, std::int64_t n, std::int64_t k) {
  if (args.packed.given()) return load_float(args.packed, n / kPanelColumns * args.x.columns + k, n % kPanelColumns);
  if (args.scaled.given()) return scaled_value(args.scaled, n, k);
  return load_float(args.weight, n, k);
}

/// A lane is a row of the weight; +0 beyond the last.
NANSCOPE_FN F32 weights_at(const GemmArgs& args, std::int64_t panel, std::int64_t k) {
  const std::int64_t n = panel * kLanes + lane_id();
  return n < args.out.columns ? weight_at(args, n, k) : 0.0F;
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
