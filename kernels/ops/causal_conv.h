#pragma once
/// Short causal convolution of each channel by itself, as recurrent layers have it before their state (Mamba, gated
/// delta net): y[t] = sum over j of weight[j] * x[t - K + 1 + j], j = 0 .. K - 1, then SiLU. The K - 1 inputs before
/// the first row are +0 or, with `resume`, those that the state keeps; the last K - 1 inputs are the state afterwards.
///
/// Order: one chain a channel and row, j ascending from +0, a product and a sum an f32 rounding each; then y *
/// sigmoid(y), two more (kernels/ops/activation.h), and one to out's format. The state keeps inputs in f32, as they
/// are. NaN or Inf in an input is in the K rows from its own on, and in no other channel. Trap: a state of another
/// request's, or one that was not kept, changes the first K - 1 rows alone.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x, out (T, D), f32, f16 or bf16, each its own; weight (K, D), floats; state (K - 1, D) f32, read when
/// `resume`, written at the end; not given where K is 1.
struct CausalConvArgs {
  TensorView x;
  TensorView weight;
  TensorView state;
  TensorView out;
  bool resume = false;
};

inline Status check(const CausalConvArgs& args) {
  ArgsCheck check("causal_conv");
  check.floats("x", args.x).floats("out", args.out).floats("weight", args.weight);
  check.shape("x", args.x, args.out.rows, args.out.columns);
  check.shape("weight", args.weight, args.weight.rows, args.out.columns);
  check.that(args.weight.rows > 0, "at least one tap");
  if (args.weight.rows > 1) {
    check.format("state", args.state, {Format::f32});
    check.shape("state", args.state, args.weight.rows - 1, args.out.columns);
  }
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/math/sigmoid.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct CausalConv {
  using Args = CausalConvArgs;

  /// Warp = 32 channels: it writes the state that its own rows read.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return div_up(args.out.columns, kLanes); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.rows * kLanes * (args.weight.rows + 8); }

  /// The input `before` rows before the first; `before` is negative for the rows themselves.
  NANSCOPE_LANE F32 input(const Args& args, std::int64_t before, std::int64_t column) {
    if (before <= 0) return load(args.x, -before, column, 0.0F);
    if (!args.resume) return splat_f32(0.0F);
    return load(args.state, args.weight.rows - 1 - before, column, 0.0F);
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t column = warp * kLanes;
    const std::int64_t kept = args.weight.rows - 1;
    for (std::int64_t row = 0; row < args.out.rows; ++row) {
      F32 y = splat_f32(0.0F);
      for (std::int64_t tap = 0; tap <= kept; ++tap) {
        y = y + load(args.weight, tap, column, 0.0F) * input(args, kept - tap - row, column);
      }
      store(args.out, row, column, y * sigmoid(y));
    }
    // Ascending: what is kept of the state is read before it is written over.
    for (std::int64_t i = 0; i < kept; ++i) {
      store(args.state, i, column, input(args, kept - i - args.out.rows, column));
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
