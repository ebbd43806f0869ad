#pragma once
/// Transpose: out[c, r] = x[r, c], the value rounded once to out's format.
///
/// With it the products of a linear layer's gradients are Gemm's own: of y = x W^T, dx = dy W is Gemm(x = dy,
/// weight = W^T), dW = dy^T x is Gemm(x = dy^T, weight = x^T) (Goodfellow, Bengio and Courville 2016, 6.5.6).
///
/// Order: nothing is summed. NaN becomes the canonical NaN of out's format, Inf and -0 stay, what is beyond the largest
/// finite value of out's format becomes Inf.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (R, C), out (C, R); formats f32, f16 or bf16, each its own.
struct TransposeArgs {
  TensorView x;
  TensorView out;
};

inline Status check(const TransposeArgs& args) {
  return ArgsCheck("transpose")
      .floats("x", args.x)
      .floats("out", args.out)
      .shape("x", args.x, args.out.columns, args.out.rows)
      .done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct Transpose {
  using Args = TransposeArgs;

  NANSCOPE_HOST std::int64_t row_tiles(const Args& args) { return div_up(args.x.rows, kLanes); }
  /// Warp = 32 rows of 32 columns.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return row_tiles(args) * div_up(args.x.columns, kLanes); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args&) { return kLanes * kLanes; }

  /// Rows and lanes of the tile change places where the index of one has the bit and that of the other has not.
  NANSCOPE_LANE void exchange(F32* tile, int bit) {
    const Mask low = (lane_id() & splat_u32(static_cast<std::uint32_t>(bit))) == splat_u32(0U);
    for (int i = 0; i < kLanes; ++i) {
      if ((i & bit) != 0) continue;
      const F32 upper = tile[i];
      const F32 lower = tile[i | bit];
      tile[i] = select(low, upper, xor_lane(lower, bit));
      tile[i | bit] = select(low, xor_lane(upper, bit), lower);
    }
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t row = warp % row_tiles(args) * kLanes;
    const std::int64_t column = warp / row_tiles(args) * kLanes;
    F32 tile[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      tile[i] = row + i < args.x.rows ? load(args.x, row + i, column, 0.0F) : splat_f32(0.0F);
    }
    exchange(tile, 16);
    exchange(tile, 8);
    exchange(tile, 4);
    exchange(tile, 2);
    exchange(tile, 1);
    for (int i = 0; i < kLanes && column + i < args.x.columns; ++i) store(args.out, column + i, row, tile[i]);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
