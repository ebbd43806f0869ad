#pragma once
/// The product of gemm.h on a GPU: a lane is a column, kBlockRows chains in registers, one block of k.
#include "kernels/warp/tensor_access.h"

namespace nanscope::kernels::NANSCOPE_ISA {

inline constexpr std::int64_t kBlockRows = 8;
inline constexpr std::int64_t kMaxGroup = 1;

/// One value of x for the whole warp.
NANSCOPE_FN float load_x(const TensorView& x, std::int64_t row, std::int64_t k) {
  switch (x.format) {
    case Format::f16:
      return decode_f16(load_scalar(element_ptr<const std::uint16_t>(x, row, k)));
    case Format::bf16:
      return decode_bf16(load_scalar(element_ptr<const std::uint16_t>(x, row, k)));
    default:
      return load_scalar(element_ptr<const float>(x, row, k));
  }
}

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

struct GemmBlock {
  const GemmArgs& args;
  std::int64_t first_row;
  std::int64_t rows;
  std::int64_t first_panel;
  std::int64_t panels;

  NANSCOPE_FN F32 weights_at(const GemmArgs& args, std::int64_t panel, std::int64_t k) {
    if (args.packed.given()) return load_range(args.packed, panel * args.x.columns + k, 0, kLanes, 0.0F);
    const std::int64_t n = panel * kLanes + lane_id();
    if (args.scaled.given()) return n < args.out.columns ? scaled_value(args.scaled, n, k) : 0.0F;
    return n < args.out.columns ? load_x(args.weight, n, k) : 0.0F;
  }

  NANSCOPE_FN void run(const GemmBlock& block) {
    const GemmArgs& args = block.args;
    F32 total[kBlockRows];
    F32 parts[kBlockRows];  // of partial sums that are rounded
    const bool in_parts = args.partial != Format::f32;
    NANSCOPE_UNROLL for (int r = 0; r < kBlockRows; ++r) total[r] = parts[r] = splat_f32(0.0F);
    for (std::int64_t k = 0; k < args.x.columns; ++k) {
      const F32 row = weights_at(args, block.first_panel, k);
      NANSCOPE_UNROLL for (int r = 0; r < kBlockRows; ++r) {
        // Rows beyond the last repeat it: no branch around an fma.
        const std::int64_t t = r < block.rows ? r : block.rows - 1;
        total[r] = fma(load_x(args.x, block.first_row + t, k), row, total[r]);
      }
      if (!in_parts || ((k + 1) % kPartialDepth != 0 && k + 1 != args.x.columns)) continue;
      NANSCOPE_UNROLL for (int r = 0; r < kBlockRows; ++r) {
        parts[r] = parts[r] + decode_f16(encode_bits<Format::f16>(raw_bits(total[r]), Overflow::overflow));
        total[r] = splat_f32(0.0F);
      }
    }
    if (in_parts) {
      NANSCOPE_UNROLL for (int r = 0; r < kBlockRows; ++r) total[r] = parts[r];
    }
    const std::int64_t column = block.first_panel * kLanes;
    NANSCOPE_UNROLL for (int r = 0; r < kBlockRows; ++r) {
      if (r >= block.rows) break;
      if (args.bias.given()) total[r] = total[r] + load(args.bias, 0, column, 0.0F);
      store(args.out, block.first_row + r, column, total[r]);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
