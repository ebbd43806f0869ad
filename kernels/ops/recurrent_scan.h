#pragma once
/// Gated linear recurrence, the state of a hybrid model's recurrent layer (a diagonal SSM):
/// h = decay * h + (1 - decay) * x[t], out[t] = h, t ascending; state is f32 in a block of the KV pool's memory.
///
/// Order: a chain over t in each channel; four f32 roundings a step (1 - decay, two products, one sum), h
/// itself is never rounded to out's format. Starts at +0 or, with `resume`, from the state.
/// NaN: once in the state it stays for good, whatever follows: 0 * NaN is NaN, so not even decay 0 clears it.
/// Trap: a state block that is recycled without scrubbing and resumed by mistake starts from another
/// request's numbers.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x, out (T, D); decay (1, D); state (1, D) f32, read when `resume`, written at the end.
struct RecurrentScanArgs {
  TensorView x;
  TensorView decay;
  TensorView state;
  TensorView out;
  bool resume = false;
};

inline Status check(const RecurrentScanArgs& args) {
  ArgsCheck check("recurrent_scan");
  check.floats("x", args.x).floats("out", args.out).floats("decay", args.decay);
  check.shape("x", args.x, args.out.rows, args.out.columns).shape("decay", args.decay, 1, args.out.columns);
  check.format("state", args.state, {Format::f32}).shape("state", args.state, 1, args.out.columns);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct RecurrentScan {
  using Args = RecurrentScanArgs;

  /// Warp = 32 channels: time is a chain, channels are independent.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return div_up(args.out.columns, kLanes); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.rows * kLanes; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t column = warp * kLanes;
    const F32 decay = load(args.decay, 0, column, 0.0F);
    const F32 share = splat_f32(1.0F) - decay;
    F32 h = args.resume ? load(args.state, 0, column, 0.0F) : splat_f32(0.0F);
    for (std::int64_t row = 0; row < args.out.rows; ++row) {
      h = decay * h + share * load(args.x, row, column, 0.0F);
      store(args.out, row, column, h);
    }
    store(args.state, 0, column, h);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
