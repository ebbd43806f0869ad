#pragma once
/// Masked softmax over keys: p = exp(s - max) / sum.
///
/// Order: the maximum has none; lane l adds keys l, l + 32, ... ascending, then the butterfly 16 8 4 2 1; one
/// correctly rounded division. exp is our own, below 1 ulp. A masked key's probability is exactly +0.
/// May run in place.
/// NaN: a visible NaN makes the whole row NaN under every rule (with NanRule::ignore it passes the maximum
/// and surfaces in the sum). A masked NaN crosses an additive and a multiply mask, not a select mask. A
/// masked +Inf is Inf - Inf under additive, Inf - Inf under multiply. -Inf is a probability of 0.
/// sinks (Xiao et al. 2023; gpt-oss): one more score a head, a learned one that no key has. The maximum goes over it
/// too, and its exp(sink - max) is added to the sum last; what it takes goes nowhere. A row without a visible key is
/// then a row of zeros. A NaN sink makes all rows of its head NaN. zero_guard: sum > 0 ? p / sum : 0, which kernels
/// write for rows without keys. A NaN sum is not above 0 either: a NaN that the maximum passed over, or did not, leaves
/// as a row of zeros. Traps: a row with no visible key is 0/0 or -Inf - -Inf: NaN in every mode; under multiply a
/// masked score that exceeds all visible ones by 104 underflows them: 0/0 again.
///
/// split: statistics of blocks of keys are given (softmax_partials.h), and a warp has a block of a row, as
/// flash-decoding has it (Dao et al. 2023): max = maximum of the blocks' and the sink; sum = the blocks' ascending,
/// each times exp(its maximum - max), which is a difference, an exp and a product of one rounding each. Then the sink's
/// share and p as above. One block and no sink: the bits of no split.
#include "kernels/check.h"
#include "kernels/choices.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: scores, out (T, heads * S); sinks (1, heads) f32, f16 or bf16, or not given. Row t may see keys [first_key,
/// first_position + t], of these with a window the last `window` alone (Beltagy et al. 2020; Mistral's sliding window);
/// 0: no window. A row with no visible key is computed like any other: without a sink -Inf - -Inf is NaN, 0/0 is NaN.
/// split: keys a block, a multiple of 32, of which max and sum, (T, heads * blocks) f32, are given; 0: none are.
struct SoftmaxArgs {
  TensorView scores;
  TensorView sinks = {};
  TensorView out;
  std::int64_t heads = 1;
  std::int64_t first_position = 0;
  std::int64_t first_key = 0;
  std::int64_t window = 0;
  MaskMode mask = MaskMode::additive;
  NanRule max_nan = NanRule::propagate;
  bool zero_guard = false;
  std::int64_t split = 0;
  TensorView max = {};
  TensorView sum = {};
};

/// Blocks of `split` keys; one where that is 0.
constexpr std::int64_t blocks_of(std::int64_t keys, std::int64_t split) {
  return split > 0 ? (keys + split - 1) / split : 1;
}

inline Status check(const SoftmaxArgs& args) {
  ArgsCheck check("softmax");
  check.floats("scores", args.scores).floats("out", args.out);
  check.shape("scores", args.scores, args.out.rows, args.out.columns);
  check.that(args.heads > 0 && args.out.columns % args.heads == 0, "columns to be a multiple of heads");
  if (args.sinks.given()) check.floats("sinks", args.sinks).shape("sinks", args.sinks, 1, args.heads);
  check.that(args.split >= 0 && args.split % 32 == 0, "blocks of a multiple of 32 keys");
  if (args.split <= 0 || args.heads <= 0) return check.done();
  const std::int64_t statistics = args.heads * blocks_of(args.out.columns / args.heads, args.split);
  check.format("max", args.max, {Format::f32}).shape("max", args.max, args.out.rows, statistics);
  check.format("sum", args.sum, {Format::f32}).shape("sum", args.sum, args.out.rows, statistics);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include <cmath>

#include "kernels/math/exp.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// A row of one head as every pass sees it; of the arguments of this op or of one that takes a part of it.
template <class Args>
struct SoftmaxRow {
  const Args& args;
  std::int64_t token;
  std::int64_t first;  ///< column of key 0
  std::int64_t keys;
  std::int64_t first_visible;
  std::int64_t last_visible;

  NANSCOPE_LANE SoftmaxRow of(const Args& args, std::int64_t token, std::int64_t head) {
    const std::int64_t keys = args.scores.columns / args.heads;
    const std::int64_t last = args.first_position + token;
    const std::int64_t behind = args.window > 0 ? last - args.window + 1 : 0;
    return {args, token, head * keys, keys, behind > args.first_key ? behind : args.first_key, last};
  }

  NANSCOPE_LANE Mask visible(const SoftmaxRow& row, std::int64_t key) {
    return lanes_below(row.last_visible + 1 - key) & !lanes_below(row.first_visible - key);
  }
  /// Scores after an additive or a select mask; lanes beyond the row hold -Inf.
  NANSCOPE_LANE F32 scores(const SoftmaxRow& row, std::int64_t key) {
    const F32 infinity = splat_f32(-HUGE_VALF);
    const F32 score = load_range(row.args.scores, row.token, row.first + key, row.keys - key, -HUGE_VALF);
    if (row.args.mask == MaskMode::multiply) return score;
    const Mask seen = visible(row, key);
    if (row.args.mask == MaskMode::select) return select(seen, score, infinity);
    return score + select(seen, splat_f32(0.0F), infinity);
  }
  /// exp(s - max), times 1 or 0 under a multiply mask.
  NANSCOPE_LANE F32 weight(const SoftmaxRow& row, std::int64_t key, const F32& max) {
    const F32 power = exp(scores(row, key) - max);
    if (row.args.mask != MaskMode::multiply) return power;
    return power * select(visible(row, key), splat_f32(1.0F), splat_f32(0.0F));
  }

  NANSCOPE_LANE F32 larger(const SoftmaxRow& row, const F32& a, const F32& b) {
    return row.args.max_nan == NanRule::propagate ? max_propagate(a, b) : max_ignore(a, b);
  }
  /// The larger of `lanes` and of keys [begin, end), lane by lane.
  NANSCOPE_LANE F32 lane_max(const SoftmaxRow& row, std::int64_t begin, std::int64_t end, F32 lanes) {
    for (std::int64_t key = begin; key < end; key += kLanes) lanes = larger(row, lanes, scores(row, key));
    return lanes;
  }
  NANSCOPE_LANE float max_across(const SoftmaxRow& row, const F32& lanes) {
    return row.args.max_nan == NanRule::propagate ? max_propagate_across(lanes) : max_ignore_across(lanes);
  }
  NANSCOPE_LANE float sum_of(const SoftmaxRow& row, std::int64_t begin, std::int64_t end, const F32& max) {
    F32 lanes = splat_f32(-0.0F);
    for (std::int64_t key = begin; key < end; key += kLanes) {
      lanes = lanes + select(lanes_below(row.keys - key), weight(row, key, max), splat_f32(-0.0F));
    }
    return sum(lanes);
  }
};

struct Softmax {
  using Args = SoftmaxArgs;
  using Row = SoftmaxRow<Args>;

  NANSCOPE_HOST std::int64_t blocks(const Args& args) { return blocks_of(args.out.columns / args.heads, args.split); }

  /// Warp = one row of one head, or a block of its keys.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows * args.heads * blocks(args); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    return args.split > 0 ? (args.split + blocks(args)) * 16 : args.out.columns / args.heads * 16;
  }

  NANSCOPE_LANE F32 sink_of(const Args& args, std::int64_t head) {
    if (!args.sinks.given()) return splat_f32(-HUGE_VALF);
    const int lane = static_cast<int>(head % kLanes);
    return splat_f32(broadcast(load(args.sinks, 0, head - lane, 0.0F), lane));
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    if (args.split > 0) return run_block(args, warp);
    const Row row = Row::of(args, warp / args.heads, warp % args.heads);
    const F32 sink = sink_of(args, warp % args.heads);
    F32 lanes = Row::lane_max(row, 0, row.keys, splat_f32(-HUGE_VALF));
    if (args.sinks.given()) lanes = Row::larger(row, lanes, sink);
    const F32 max = splat_f32(Row::max_across(row, lanes));
    store_probabilities(row, 0, row.keys, max, Row::sum_of(row, 0, row.keys, max), sink);
  }

  /// The maximum and the sum of a row, of its blocks'; each of its warps makes them again.
  NANSCOPE_LANE void run_block(const Args& args, std::int64_t warp) {
    const std::int64_t count = blocks(args);
    const std::int64_t head = warp / count % args.heads;
    const Row row = Row::of(args, warp / count / args.heads, head);
    const F32 sink = sink_of(args, head);
    F32 lanes = sink;
    for (std::int64_t b = 0; b < count; b += kLanes) {
      lanes = Row::larger(row, lanes, load_range(args.max, row.token, head * count + b, count - b, -HUGE_VALF));
    }
    const F32 max = splat_f32(Row::max_across(row, lanes));
    float total = -0.0F;
    for (std::int64_t b = 0; b < count; b += kLanes) {
      const F32 own = load_range(args.max, row.token, head * count + b, count - b, -HUGE_VALF);
      const F32 sums = load_range(args.sum, row.token, head * count + b, count - b, 0.0F);
      const F32 shares = sums * exp(own - max);
      const int some = static_cast<int>(count - b < kLanes ? count - b : kLanes);
      for (int i = 0; i < some; ++i) total = total + broadcast(shares, i);
    }
    const std::int64_t begin = warp % count * args.split;
    const std::int64_t end = begin + args.split < row.keys ? begin + args.split : row.keys;
    store_probabilities(row, begin, end, max, total, sink);
  }

  /// Of keys [begin, end); `sum` is that of the row without its sink.
  NANSCOPE_LANE void store_probabilities(const Row& row, std::int64_t begin, std::int64_t end, const F32& max,
                                         float sum, const F32& sink) {
    const Args& args = row.args;
    if (args.sinks.given()) sum = sum + broadcast(exp(sink - max), 0);
    const bool zeros = args.zero_guard && !(sum > 0.0F);
    const F32 total = splat_f32(sum);
    for (std::int64_t key = begin; key < end; key += kLanes) {
      const F32 probability = zeros ? splat_f32(0.0F) : Row::weight(row, key, max) / total;
      store_range(args.out, row.token, row.first + key, end - key, probability);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
