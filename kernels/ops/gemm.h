#pragma once
/// Matrix product with PyTorch's Linear layout: out[t, n] = sum_k x[t, k] * weight[n, k] (+ bias[n]).
/// Order contract: one fma chain an output, k ascending from +0, then one add for the bias, then
/// one rounding to out's format. Tiling never changes it.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (T, K) f32/f16/bf16; weight (N, K) f32/f16/bf16, or f32 panels made by pack_weight when
/// `packed` is given; bias (1, N) or not given; out (T, N).
/// packed: ceil(N/32) panels of (K, 32) f32, zero-padded: panel p holds weight[32p..32p+31, k] at row k.
/// It is a view of (ceil(N/32) * K, 32).
struct GemmArgs {
  TensorView x;
  TensorView weight;
  TensorView packed;
  TensorView bias;
  TensorView out;
};

/// Output columns of one panel of packed weights.
inline constexpr std::int64_t kPanelColumns = 32;

inline Status check(const GemmArgs& args) {
  ArgsCheck check("gemm");
  check.floats("x", args.x).floats("out", args.out);
  check.shape("x", args.x, args.out.rows, args.x.columns);
  if (args.packed.given()) {
    const std::int64_t panels = (args.out.columns + kPanelColumns - 1) / kPanelColumns;
    check.format("packed", args.packed, {Format::f32});
    check.shape("packed", args.packed, panels * args.x.columns, kPanelColumns);
    check.that(args.packed.stride == kPanelColumns, "packed panels without gaps: a row stride of 32");
  } else {
    check.floats("weight", args.weight).shape("weight", args.weight, args.out.columns, args.x.columns);
  }
  if (args.bias.given()) check.floats("bias", args.bias).shape("bias", args.bias, 1, args.out.columns);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/warp/tensor_access.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct Gemm {
  using Args = GemmArgs;

  NANSCOPE_HOST std::int64_t panels(const Args& args) { return (args.out.columns + kPanelColumns - 1) / kPanelColumns; }
  /// Warp = one row of one panel.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows * panels(args); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.x.columns * kPanelColumns; }

  NANSCOPE_LANE F32 weights_at(const Args& args, std::int64_t panel, std::int64_t k) {
    if (args.packed.given()) return load(args.packed, panel * args.x.columns + k, 0, 0.0F);
    F32 result = splat_f32(0.0F);
    for (int i = 0; i < kLanes; ++i) {
      const std::int64_t n = panel * kPanelColumns + i;
      if (n >= args.out.columns) break;
      const float value = broadcast(load_range(args.weight, n, k, 1, 0.0F), 0);
      result = select(lane_id() == splat_u32(static_cast<std::uint32_t>(i)), splat_f32(value), result);
    }
    return result;
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t row = warp / panels(args);
    const std::int64_t panel = warp % panels(args);
    F32 total = splat_f32(0.0F);
    for (std::int64_t k = 0; k < args.x.columns; ++k) {
      const float x = broadcast(load_range(args.x, row, k, 1, 0.0F), 0);
      total = fma(splat_f32(x), weights_at(args, panel, k), total);
    }
    const std::int64_t column = panel * kPanelColumns;
    if (args.bias.given()) total = total + load(args.bias, 0, column, 0.0F);
    store(args.out, row, column, total);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
