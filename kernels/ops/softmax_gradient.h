#pragma once
/// Gradient of a masked softmax for its scores, by its probabilities: ds = p * (dp - sum_k p_k dp_k) over the visible
/// keys (Bridle 1990). With a sink it holds as well: its probability is in no p, and it has no dp.
///
/// Order: lane l adds keys l, l + 32, ... ascending, products fused with their sums, then the butterfly 16 8 4 2 1;
/// then one difference, one product, one rounding to out's format. A masked key's gradient is exactly +0. May run in
/// place. NaN: a visible NaN or Inf of p or dp makes the row NaN, also one of dp whose probability is 0. What is masked
/// is not looked at: dp of masked keys may hold anything.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: probs, dprobs, out (T, heads * S); formats f32, f16 or bf16, each its own. Row t sees keys [first_key,
/// first_position + t], of these with a window above 0 the last `window` alone, as in SoftmaxArgs.
struct SoftmaxGradientArgs {
  TensorView probs;
  TensorView dprobs;
  TensorView out;
  std::int64_t heads = 1;
  std::int64_t first_position = 0;
  std::int64_t first_key = 0;
  std::int64_t window = 0;
};

inline Status check(const SoftmaxGradientArgs& args) {
  ArgsCheck check("softmax_gradient");
  check.floats("probs", args.probs).floats("dprobs", args.dprobs).floats("out", args.out);
  check.shape("probs", args.probs, args.out.rows, args.out.columns);
  check.shape("dprobs", args.dprobs, args.out.rows, args.out.columns);
  check.that(args.heads > 0 && args.out.columns % args.heads == 0, "columns to be a multiple of heads");
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct SoftmaxGradient {
  using Args = SoftmaxGradientArgs;

  /// Warp = one row of one head.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows * args.heads; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns / args.heads * 4; }

  NANSCOPE_LANE std::int64_t first_visible(const Args& args, std::int64_t last) {
    const std::int64_t behind = args.window > 0 ? last - args.window + 1 : 0;
    const std::int64_t first = behind > args.first_key ? behind : args.first_key;
    return first > 0 ? first : 0;
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t keys = args.out.columns / args.heads;
    const std::int64_t row = warp / args.heads;
    const std::int64_t column = warp % args.heads * keys;
    const std::int64_t last = args.first_position + row;
    const std::int64_t end = last + 1 < keys ? last + 1 : keys;
    const std::int64_t begin = first_visible(args, last);
    F32 lanes = splat_f32(-0.0F);
    for (std::int64_t key = begin / kLanes * kLanes; key < end; key += kLanes) {
      const Mask visible = lanes_below(end - key) & !lanes_below(begin - key);
      const F32 p = load_range(args.probs, row, column + key, end - key, 0.0F);
      const F32 dp = load_range(args.dprobs, row, column + key, end - key, 0.0F);
      lanes = select(visible, fma(p, dp, lanes), lanes);
    }
    const F32 total = splat_f32(sum(lanes));
    for (std::int64_t key = 0; key < keys; key += kLanes) {
      F32 ds = splat_f32(0.0F);
      if (key < end && key + kLanes > begin) {
        const Mask visible = lanes_below(end - key) & !lanes_below(begin - key);
        const F32 p = load_range(args.probs, row, column + key, end - key, 0.0F);
        const F32 dp = load_range(args.dprobs, row, column + key, end - key, 0.0F);
        ds = select(visible, p * (dp - total), ds);
      }
      store_range(args.out, row, column + key, keys - key, ds);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
