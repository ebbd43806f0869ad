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
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// additive: s + 0 or s + (-Inf): a NaN score stays NaN under the mask. select: masked scores are
/// replaced by -Inf. multiply: exp of the raw score times 1 or 0, the row maximum runs over all keys.
enum class MaskMode : std::uint8_t { additive, select, multiply };
/// What a maximum does with NaN. propagate: any NaN gives NaN (torch). ignore: NaN is passed over
/// (fmax, PTX max): a NaN in the row then hides until the sum.
enum class NanRule : std::uint8_t { propagate, ignore };

/// Shapes: scores, out (T, heads * S); sinks (1, heads) f32, f16 or bf16, or not given. Row t may see keys [first_key,
/// first_position + t], of these with a window the last `window` alone (Beltagy et al. 2020; Mistral's sliding window);
/// 0: no window. A row with no visible key is computed like any other: without a sink -Inf - -Inf is NaN, 0/0 is NaN.
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
};

inline Status check(const SoftmaxArgs& args) {
  ArgsCheck check("softmax");
  check.floats("scores", args.scores).floats("out", args.out);
  check.shape("scores", args.scores, args.out.rows, args.out.columns);
  check.that(args.heads > 0 && args.out.columns % args.heads == 0, "columns to be a multiple of heads");
  if (args.sinks.given()) check.floats("sinks", args.sinks).shape("sinks", args.sinks, 1, args.heads);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include <cmath>

#include "kernels/math/exp.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct Softmax {
  using Args = SoftmaxArgs;

  /// Warp = one row of one head.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows * args.heads; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns / args.heads * 16; }

  /// The row as every pass sees it.
  struct Row {
    const Args& args;
    std::int64_t token;
    std::int64_t first;  ///< column of key 0
    std::int64_t keys;
    std::int64_t first_visible;
    std::int64_t last_visible;
    F32 sink;  ///< in all lanes

    NANSCOPE_LANE Mask visible(const Row& row, std::int64_t key) {
      return lanes_below(row.last_visible + 1 - key) & !lanes_below(row.first_visible - key);
    }
    /// Scores after an additive or a select mask; lanes beyond the row hold -Inf.
    NANSCOPE_LANE F32 scores(const Row& row, std::int64_t key) {
      const F32 infinity = splat_f32(-HUGE_VALF);
      const F32 score = load_range(row.args.scores, row.token, row.first + key, row.keys - key, -HUGE_VALF);
      if (row.args.mask == MaskMode::multiply) return score;
      const Mask seen = visible(row, key);
      if (row.args.mask == MaskMode::select) return select(seen, score, infinity);
      return score + select(seen, splat_f32(0.0F), infinity);
    }
    /// exp(s - max), times 1 or 0 under a multiply mask.
    NANSCOPE_LANE F32 weight(const Row& row, std::int64_t key, const F32& max) {
      const F32 power = exp(scores(row, key) - max);
      if (row.args.mask != MaskMode::multiply) return power;
      return power * select(visible(row, key), splat_f32(1.0F), splat_f32(0.0F));
    }
  };

  NANSCOPE_LANE std::int64_t first_visible(const Args& args, std::int64_t last) {
    const std::int64_t behind = args.window > 0 ? last - args.window + 1 : 0;
    return behind > args.first_key ? behind : args.first_key;
  }

  NANSCOPE_LANE F32 row_max(const Row& row) {
    F32 lanes = splat_f32(-HUGE_VALF);
    const bool propagate = row.args.max_nan == NanRule::propagate;
    for (std::int64_t key = 0; key < row.keys; key += kLanes) {
      const F32 score = Row::scores(row, key);
      lanes = propagate ? max_propagate(lanes, score) : max_ignore(lanes, score);
    }
    if (row.args.sinks.given()) lanes = propagate ? max_propagate(lanes, row.sink) : max_ignore(lanes, row.sink);
    return splat_f32(propagate ? max_propagate_across(lanes) : max_ignore_across(lanes));
  }

  NANSCOPE_LANE F32 sink_of(const Args& args, std::int64_t head) {
    if (!args.sinks.given()) return splat_f32(-HUGE_VALF);
    const int lane = static_cast<int>(head % kLanes);
    return splat_f32(broadcast(load(args.sinks, 0, head - lane, 0.0F), lane));
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t keys = args.out.columns / args.heads;
    const std::int64_t token = warp / args.heads;
    const std::int64_t last = args.first_position + token;
    const std::int64_t head = warp % args.heads;
    const Row row{args, token, head * keys, keys, first_visible(args, last), last, sink_of(args, head)};
    const F32 max = row_max(row);
    F32 lanes = splat_f32(-0.0F);
    for (std::int64_t key = 0; key < keys; key += kLanes) {
      lanes = lanes + select(lanes_below(keys - key), Row::weight(row, key, max), splat_f32(-0.0F));
    }
    float row_sum = sum(lanes);
    if (args.sinks.given()) row_sum = row_sum + broadcast(exp(row.sink - max), 0);
    const bool zeros = args.zero_guard && !(row_sum > 0.0F);
    const F32 total = splat_f32(row_sum);
    for (std::int64_t key = 0; key < keys; key += kLanes) {
      const F32 probability = zeros ? splat_f32(0.0F) : Row::weight(row, key, max) / total;
      store_range(args.out, token, row.first + key, keys - key, probability);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
