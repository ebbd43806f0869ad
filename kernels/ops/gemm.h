#pragma once
/// Matrix product with PyTorch's Linear layout: out[t, n] = sum_k x[t, k] * weight[n, k] (+ bias[n]).
/// Order contract: one fma chain an output, k ascending from +0, then one add for the bias, then
/// one rounding to out's format. Tiling never changes it.
/// partial = f16: every kPartialDepth inputs are a chain of their own from +0, rounded to f16 before it is added to
/// the f32 total, k ascending, as kernels do that keep the sum of a block in a half. Beyond 65504 such a sum is Inf
/// though the inputs and the total may be small (llama.cpp #21652).
#include "kernels/check.h"
#include "kernels/scaled_weight.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (T, K) f32/f16/bf16; weight (N, K) f32/f16/bf16, or f32 panels made by pack_weight when
/// `packed` is given, or codes and scales of (N, K) when `scaled` is; bias (1, N) or not given; out (T, N).
/// packed: ceil(N/32) panels of (K, 32) f32, zero-padded: panel p holds weight[32p..32p+31, k] at row k.
/// It is a view of (ceil(N/32) * K, 32).
struct GemmArgs {
  TensorView x;
  TensorView weight;
  TensorView packed;
  TensorView bias;
  TensorView out;
  Format partial = Format::f32;  ///< f32: one chain; f16: sums of blocks
  ScaledWeight scaled = {};
};

/// Inputs of one partial sum.
inline constexpr std::int64_t kPartialDepth = 32;
/// Output columns of one panel of packed weights.
inline constexpr std::int64_t kPanelColumns = 32;

/// Checks the weight of a product's arguments, in whichever form it is given: rows x columns.
inline void check_weight(ArgsCheck& check, const auto& args, std::int64_t rows, std::int64_t columns) {
  if (args.packed.given()) {
    const std::int64_t panels = (rows + kPanelColumns - 1) / kPanelColumns;
    check.format("packed", args.packed, {Format::f32});
    check.shape("packed", args.packed, panels * columns, kPanelColumns);
    check.that(args.packed.stride == kPanelColumns, "packed panels without gaps: a row stride of 32");
  } else if (args.scaled.given()) {
    check_scaled(check, args.scaled, rows, columns);
  } else {
    check.floats("weight", args.weight).shape("weight", args.weight, rows, columns);
  }
}

inline Status check(const GemmArgs& args) {
  ArgsCheck check("gemm");
  check.floats("x", args.x).floats("out", args.out);
  check.shape("x", args.x, args.out.rows, args.x.columns);
  check_weight(check, args, args.out.columns, args.x.columns);
  check.that(args.partial == Format::f32 || args.partial == Format::f16, "partial sums in f32 or f16");
  if (args.bias.given()) check.floats("bias", args.bias).shape("bias", args.bias, 1, args.out.columns);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#if defined(__CUDACC__)
#include "kernels/ops/gemm_gpu_tiles.h"
#else
#include "kernels/ops/gemm_tiles.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct Gemm {
  using Args = GemmArgs;

  NANSCOPE_HOST std::int64_t panels(const Args& args) { return (args.out.columns + kPanelColumns - 1) / kPanelColumns; }
  NANSCOPE_HOST std::int64_t row_blocks(const Args& args) { return (args.out.rows + kBlockRows - 1) / kBlockRows; }
  /// Panels of one warp: few when there are few rows, so that a decode step has warps for all threads. Weights as they
  /// are stored are read best in one go, so that there are more where enough warps are left.
  NANSCOPE_HOST std::int64_t group(const Args& args) {
    if (args.out.rows > 4) return kMaxGroup;
    if (args.packed.given() || panels(args) >= 128) return kMaxGroup / 2;
    return panels(args) >= 64 ? kMaxGroup / 4 : 1;
  }

  /// Warp = a block of rows of a group of panels; neighbours share the panels.
  NANSCOPE_HOST std::int64_t warps(const Args& args) {
    return row_blocks(args) * ((panels(args) + group(args) - 1) / group(args));
  }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    const std::int64_t rows = args.out.rows < kBlockRows ? args.out.rows : kBlockRows;
    return rows * args.x.columns * group(args) * kPanelColumns / 8;  // an fma is cheaper than an element of other ops
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t first_panel = warp / row_blocks(args) * group(args);
    const std::int64_t first_row = warp % row_blocks(args) * kBlockRows;
    const std::int64_t rows_left = args.out.rows - first_row;
    const std::int64_t panels_left = panels(args) - first_panel;
    GemmBlock::run({args, first_row, rows_left < kBlockRows ? rows_left : kBlockRows, first_panel,
                    panels_left < group(args) ? panels_left : group(args)});
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
#endif
