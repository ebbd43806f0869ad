#pragma once
/// Gradient of a masked softmax for its scores, by its probabilities: ds = p * (dp - sum_k p_k dp_k) over the visible
/// keys (Bridle 1990). A sink (softmax.h) is one more score whose dp is 0, as nothing reads its probability: its
/// gradient is sink_p * (0 - sum_k p_k dp_k) of each row.
///
/// Where one p is nearly 1, both terms nearly cancel and what is left is the rounding of that p. So dp is taken from dp
/// of the largest p (the lowest lane's, in a lane the first; of a sink that is larger still 0), which changes nothing
/// where the p sum to 1, and is then multiplied by the small p alone. It is not done where the p do not sum to 1 within
/// what their rounding explains, as with a sink that is not given: half an ulp of their format and (n / 32 + 8) 2^-24
/// of the n visible keys, for the forward's sum.
///
/// sink_p: 1 - sum p in f64, rounded once, where the p sum to less than 1/2; else p exp(sink - score) of the largest p,
/// three roundings and exp's below 1 ulp, which keeps what is left of 1 where that is small.
///
/// Order of the sums: lane l adds keys l, l + 32, ... ascending, then the butterfly 16 8 4 2 1, then the sink's; of p
/// in f64, of p dp in f32, products fused with their sums. Then one difference, one product, one rounding to out's
/// format. A masked key's gradient is exactly +0. May run in place. NaN: a visible NaN or Inf of p or dp makes the row
/// NaN, also one of dp whose probability is 0. What is masked is not looked at: p, dp and scores of masked keys may
/// hold anything. A row that sees no key gives its sink +0.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: probs, dprobs, out (T, heads * S); formats f32, f16 or bf16, each its own. Row t sees keys [first_key,
/// first_position + t], of these with a window above 0 the last `window` alone, as in SoftmaxArgs. Where sinks (1,
/// heads) are given, so are the scores (T, heads * S) that the softmax read and sink_out (T, heads) f32: of a sink's
/// gradient each row's part, whose sum over the rows is column_sum.h's.
struct SoftmaxGradientArgs {
  TensorView probs;
  TensorView dprobs;
  TensorView out;
  std::int64_t heads = 1;
  std::int64_t first_position = 0;
  std::int64_t first_key = 0;
  std::int64_t window = 0;
  TensorView sinks = {};
  TensorView scores = {};
  TensorView sink_out = {};
};

inline Status check(const SoftmaxGradientArgs& args) {
  ArgsCheck check("softmax_gradient");
  check.floats("probs", args.probs).floats("dprobs", args.dprobs).floats("out", args.out);
  check.shape("probs", args.probs, args.out.rows, args.out.columns);
  check.shape("dprobs", args.dprobs, args.out.rows, args.out.columns);
  check.that(args.heads > 0 && args.out.columns % args.heads == 0, "columns to be a multiple of heads");
  if (args.sinks.given()) {
    check.floats("sinks", args.sinks).shape("sinks", args.sinks, 1, args.heads);
    check.floats("scores", args.scores).shape("scores", args.scores, args.out.rows, args.out.columns);
    check.format("sink_out", args.sink_out, {Format::f32});
    check.shape("sink_out", args.sink_out, args.out.rows, args.heads);
  }
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/math/exp.h"
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

  /// What dp are taken from, and the sink's probability; 0 without one.
  struct Origin {
    float dp;
    float sink_p;
  };

  /// Of the visible keys: the sum of p in f64, and the largest p with what stands where it does.
  struct Largest {
    double total;
    float p;
    float dp;
    float score;  ///< where there is a sink
  };

  NANSCOPE_LANE Largest largest(const Row& row) {
    const bool with_scores = row.args.sinks.given();
    F64 total = splat_f64(0.0);
    F32 largest = splat_f32(-1.0F);
    F32 dp_there = splat_f32(0.0F);
    F32 score_there = splat_f32(0.0F);
    for (std::int64_t key = row.begin / kLanes * kLanes; key < row.end; key += kLanes) {
      const Mask visible = Row::visible(row, key);
      const F32 p = Row::values(row, row.args.probs, key);
      total = total + to_f64(select(visible, p, splat_f32(0.0F)));
      const Mask larger = visible & (p > largest);
      dp_there = select(larger, Row::values(row, row.args.dprobs, key), dp_there);
      if (with_scores) score_there = select(larger, Row::values(row, row.args.scores, key), score_there);
      largest = select(larger, p, largest);
    }
    const int lane = first_lane(ballot(largest == splat_f32(highest_across(largest))));
    return {sum(total), broadcast(largest, lane), broadcast(dp_there, lane), broadcast(score_there, lane)};
  }

  NANSCOPE_LANE Origin origin(const Row& row, float sink) {
    const Largest largest = SoftmaxGradient::largest(row);
    if (!row.args.sinks.given()) {
      const double off = largest.total - 1.0;
      const double allowed = off_one(row.args.probs.format, row.end - row.begin);
      return {off <= allowed && -off <= allowed ? largest.dp : 0.0F, 0.0F};
    }
    const float share = largest.p * broadcast(exp(splat_f32(sink - largest.score)), 0);
    const float rest = broadcast(to_f32(splat_f64(1.0 - largest.total)), 0);
    const float sink_p = largest.total < 0.5 ? rest : share;
    return {sink_p > largest.p ? 0.0F : largest.dp, sink_p};
  }

  NANSCOPE_LANE float sink_of(const Args& args, std::int64_t head) {
    if (!args.sinks.given()) return 0.0F;
    return broadcast(load_range(args.sinks, 0, head, 1, 0.0F), 0);
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t keys = args.out.columns / args.heads;
    const std::int64_t last = args.first_position + warp / args.heads;
    const std::int64_t head = warp % args.heads;
    const Row row{args, warp / args.heads, head * keys, first_visible(args, last), last + 1 < keys ? last + 1 : keys};
    const Origin origin = SoftmaxGradient::origin(row, sink_of(args, head));
    const F32 from = splat_f32(origin.dp);
    F32 lanes = splat_f32(-0.0F);
    for (std::int64_t key = row.begin / kLanes * kLanes; key < row.end; key += kLanes) {
      const F32 dp = Row::values(row, args.dprobs, key) - from;
      lanes = select(Row::visible(row, key), fma(Row::values(row, args.probs, key), dp, lanes), lanes);
    }
    float along = sum(lanes);
    if (args.sinks.given()) {
      along = fma_uniform(origin.sink_p, 0.0F - origin.dp, along);
      store_f32_scalar(args.sink_out, row.row, head, origin.sink_p * ((0.0F - origin.dp) - along));
    }
    const F32 total = splat_f32(along);
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
