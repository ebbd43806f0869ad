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

struct GemmBlock {
  const GemmArgs& args;
  std::int64_t first_row;
  std::int64_t rows;
  std::int64_t first_panel;
  std::int64_t panels;

  NANSCOPE_FN F32 weights_at(const GemmArgs& args, std::int64_t panel, std::int64_t k) {
    if (args.packed.given()) return load_range(args.packed, panel * args.x.columns + k, 0, kLanes, 0.0F);
    const std::int64_t n = panel * kLanes + lane_id();
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
