#pragma once
/// Gradient of a masked softmax for its scores, by its probabilities: ds = p * (dp - sum_k p_k dp_k) over the visible
/// keys (Bridle 1990). With a sink it holds as well: its probability is in no p, and it has no dp.
///
/// Where one p is nearly 1, both terms nearly cancel and what is left is the rounding of that p. So dp is taken from dp
/// of the largest p (the lowest lane's, in a lane the first), which changes nothing where the p sum to 1, and is then
/// multiplied by the small p alone. It is not done where the p do not sum to 1 within what their rounding explains, as
/// with a sink: half an ulp of their format and (n / 32 + 8) 2^-24 of the n visible keys, for the forward's sum.
///
/// Order of the sums: lane l adds keys l, l + 32, ... ascending, then the butterfly 16 8 4 2 1; of p in f64, of p dp in
/// f32, products fused with their sums. Then one difference, one product, one rounding to out's format. A masked key's
/// gradient is exactly +0. May run in place.
/// NaN: a visible NaN or Inf of p or dp makes the row NaN, also one of dp whose probability is 0. What is masked is not
/// looked at: p and dp of masked keys may hold anything.
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
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns / args.heads * 8; }

  NANSCOPE_LANE std::int64_t first_visible(const Args& args, std::int64_t last) {
    const std::int64_t behind = args.window > 0 ? last - args.window + 1 : 0;
    const std::int64_t first = behind > args.first_key ? behind : args.first_key;
    return first > 0 ? first : 0;
  }

  /// One row of one head: the columns of its first key, and the keys that it sees.
  struct Row {
    const Args& args;
    std::int64_t row;
    std::int64_t column;
    std::int64_t begin;
    std::int64_t end;

    NANSCOPE_LANE Mask visible(const Row& row, std::int64_t key) {
      return lanes_below(row.end - key) & !lanes_below(row.begin - key);
    }
    NANSCOPE_LANE F32 values(const Row& row, const TensorView& view, std::int64_t key) {
      return load_range(view, row.row, row.column + key, row.end - key, 0.0F);
    }
  };

  /// What a sum of n rounded probabilities may be off 1.
  NANSCOPE_LANE double off_one(Format format, std::int64_t n) {
    const double half_ulp = format == Format::f32 ? 0x1p-24 : format == Format::f16 ? 0x1p-11 : 0x1p-8;
    return half_ulp + static_cast<double>(n / kLanes + 8) * 0x1p-24;
  }

  /// dp of the largest p; 0 where the p do not sum to 1.
  NANSCOPE_LANE float origin(const Row& row) {
    F64 total = splat_f64(0.0);
    F32 largest = splat_f32(-1.0F);
    F32 dp_there = splat_f32(0.0F);
    for (std::int64_t key = row.begin / kLanes * kLanes; key < row.end; key += kLanes) {
      const Mask visible = Row::visible(row, key);
      const F32 p = Row::values(row, row.args.probs, key);
      total = total + to_f64(select(visible, p, splat_f32(0.0F)));
      const Mask larger = visible & (p > largest);
      dp_there = select(larger, Row::values(row, row.args.dprobs, key), dp_there);
      largest = select(larger, p, largest);
    }
    const double off = sum(total) - 1.0;
    const double allowed = off_one(row.args.probs.format, row.end - row.begin);
    if (!(off <= allowed && -off <= allowed)) return 0.0F;
    const std::uint32_t lanes = ballot(largest == splat_f32(highest_across(largest)));
    return broadcast(dp_there, first_lane(lanes));
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t keys = args.out.columns / args.heads;
    const std::int64_t last = args.first_position + warp / args.heads;
    const Row row{args, warp / args.heads, warp % args.heads * keys, first_visible(args, last),
                  last + 1 < keys ? last + 1 : keys};
    const F32 from = splat_f32(origin(row));
    F32 lanes = splat_f32(-0.0F);
    for (std::int64_t key = row.begin / kLanes * kLanes; key < row.end; key += kLanes) {
      const F32 dp = Row::values(row, args.dprobs, key) - from;
      lanes = select(Row::visible(row, key), fma(Row::values(row, args.probs, key), dp, lanes), lanes);
    }
    const F32 total = splat_f32(sum(lanes));
    for (std::int64_t key = 0; key < keys; key += kLanes) {
      F32 ds = splat_f32(0.0F);
      if (key < row.end && key + kLanes > row.begin) {
        const F32 dp = Row::values(row, args.dprobs, key) - from;
        ds = select(Row::visible(row, key), Row::values(row, args.probs, key) * (dp - total), ds);
      }
      store_range(args.out, row.row, row.column + key, keys - key, ds);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
