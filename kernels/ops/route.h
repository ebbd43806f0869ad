#pragma once
/// Router of a mixture of experts: the k experts with the largest gate + bias, and weights for them that add up to 1.
/// The bias only chooses: it keeps the experts equally busy (DeepSeek-V3, section 2.1.2).
///
/// gate = sigmoid(logit), below 1 ulp, or with RouterScore::softmax exp(logit - max) / sum over all experts, the sum in
/// the order of softmax.h (Mixtral, section 2.1; Qwen2-MoE); choice = gate + bias, one rounding. Chosen by descending
/// choice, ties to the lowest index; a NaN choice counts as -Inf. value = gate, or with choice_minus_bias the choice
/// less the bias, one rounding more. With RouterScore::softmax_of_chosen (gpt-oss) the logits themselves choose, and
/// value = exp(logit - that of the first chosen). total = value[0] + value[1] + ... from +0; weight = value / (total +
/// eps), or value alone where `normalise` is off (Qwen2-MoE's norm_topk_prob), and times `scale` (DeepSeek-V3's
/// routed_scaling_factor).
///
/// With several `groups` of neighbours the choice is made among the experts of `top_groups` of them alone, those with
/// the largest score, ties to the lowest index: the sum of a group's two largest choices, one rounding (DeepSeek-V3),
/// or its largest one (DeepSeek-V2). What comes of a choice does not depend on the groups.
///
/// NaN: a chosen NaN logit makes all weights of its row NaN. Traps: choice - bias is not the gate. A gate below half an
/// ulp of the bias leaves no trace in the choice: with biases of 11 to 35, as they drift in training, gates below 1e-6
/// all become 0, and the weights are 0/0 (vllm #47367, sglang #30989). An eps of 1e-20 gives zeros instead: the experts
/// are then left out.
#include "kernels/check.h"
#include "kernels/choices.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Experts that a token can have: one a lane.
inline constexpr std::int64_t kMostChosen = 32;
/// Groups of experts: a bit each.
inline constexpr std::int64_t kMostGroups = 32;

/// Shapes: logits (T, E) f32, f16 or bf16; bias (1, E) or not given; weights (T, k) f32 and ids (T, k) i32 with
/// 1 <= k <= min(E, 32), in the order of choice. At most 32 groups, which divide E, and k experts in top_groups of
/// them.
struct RouteArgs {
  TensorView logits;
  TensorView bias;
  TensorView weights;
  TensorView ids;
  RouterScore score = RouterScore::sigmoid;
  RouterValue value = RouterValue::gate;
  bool normalise = true;
  float eps = 0.0F;
  float scale = 1.0F;
  std::int64_t groups = 1;
  std::int64_t top_groups = 1;
  GroupScore group_score = GroupScore::top_two;

  constexpr std::int64_t experts_a_group() const { return logits.columns / groups; }
};

inline Status check(const RouteArgs& args) {
  ArgsCheck check("route");
  check.floats("logits", args.logits).format("weights", args.weights, {Format::f32});
  check.format("ids", args.ids, {Format::i32}).shape("ids", args.ids, args.logits.rows, args.weights.columns);
  check.shape("weights", args.weights, args.logits.rows, args.ids.columns);
  check.that(args.ids.columns >= 1 && args.ids.columns <= args.logits.columns && args.ids.columns <= kMostChosen,
             "1 to 32 experts of those that there are");
  const bool grouped = args.groups >= 1 && args.groups <= kMostGroups && args.logits.columns % args.groups == 0;
  check.that(grouped, "1 to 32 groups that divide the experts");
  check.that(grouped && args.top_groups >= 1 && args.top_groups <= args.groups &&
                 args.top_groups * args.experts_a_group() >= args.ids.columns,
             "groups to choose that hold as many experts as a token has");
  if (args.bias.given()) check.floats("bias", args.bias).shape("bias", args.bias, 1, args.logits.columns);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include <cmath>

#include "kernels/math/exp.h"
#include "kernels/math/sigmoid.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct Route {
  using Args = RouteArgs;

  /// Warp = one token.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.logits.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.logits.columns * args.ids.columns * 16; }

  /// The last expert that was chosen, or what stands before the first.
  struct Chosen {
    float choice = HUGE_VALF;
    std::int64_t index = -1;
    float value = 0.0F;
  };

  /// A token's logits as gates are made of them.
  struct Row {
    const Args& args;
    std::int64_t row;
    float max = 0.0F;                    ///< of softmax
    float total = 1.0F;                  ///< of softmax
    std::uint32_t groups = 0xffffffffU;  ///< a bit for each that may be chosen from
  };

  NANSCOPE_LANE Row row_of(const Args& args, std::int64_t row) {
    if (args.score != RouterScore::softmax) return {args, row};
    F32 highest = splat_f32(-HUGE_VALF);
    for (std::int64_t first = 0; first < args.logits.columns; first += kLanes) {
      highest = max_propagate(highest, load(args.logits, row, first, -HUGE_VALF));
    }
    const float max = max_propagate_across(highest);
    F32 lanes = splat_f32(-0.0F);
    for (std::int64_t first = 0; first < args.logits.columns; first += kLanes) {
      const F32 power = exp(load(args.logits, row, first, -HUGE_VALF) - splat_f32(max));
      lanes = lanes + select(lanes_below(args.logits.columns - first), power, splat_f32(-0.0F));
    }
    return {args, row, max, sum(lanes)};
  }

  NANSCOPE_LANE F32 gates(const Row& row, std::int64_t first) {
    const F32 logits = load(row.args.logits, row.row, first, 0.0F);
    if (row.args.score == RouterScore::softmax_of_chosen) return logits;
    if (row.args.score == RouterScore::sigmoid) return sigmoid(logits);
    return exp(logits - splat_f32(row.max)) / splat_f32(row.total);
  }
  NANSCOPE_LANE F32 biases(const Args& args, std::int64_t first) {
    return args.bias.given() ? load(args.bias, 0, first, 0.0F) : splat_f32(0.0F);
  }
  /// Choices of 32 experts from `first` on; those that came before `last` in the order of choice, or are none, are
  /// -Inf.
  NANSCOPE_LANE F32 choices(const Row& row, std::int64_t first, const Chosen& last, Mask& left) {
    const Args& args = row.args;
    const F32 infinity = splat_f32(-HUGE_VALF);
    F32 choice = gates(row, first) + biases(args, first);
    choice = select(is_nan(choice), infinity, choice);
    const F32 before = splat_f32(last.choice);
    const Mask behind = !lanes_below(last.index + 1 - first);
    left = allowed(row, first) & ((choice < before) | ((choice == before) & behind));
    return select(left, choice, infinity);
  }

  /// Experts from `first` on that a token may have.
  NANSCOPE_LANE Mask allowed(const Row& row, std::int64_t first) {
    const Mask there = lanes_below(row.args.logits.columns - first);
    if (row.args.groups == 1) return there;
    const std::int64_t size = row.args.experts_a_group();
    Mask in_groups = splat_mask(false);
    for (std::int64_t group = first / size; group < row.args.groups && group * size < first + kLanes; ++group) {
      if ((row.groups >> group & 1U) == 0) continue;
      in_groups = in_groups | (lanes_below((group + 1) * size - first) & !lanes_below(group * size - first));
    }
    return there & in_groups;
  }

  /// What the groups are chosen by, a lane each; -Inf beyond.
  NANSCOPE_LANE F32 group_scores(const Row& row) {
    const std::int64_t size = row.args.experts_a_group();
    F32 scores = splat_f32(-HUGE_VALF);
    for (std::int64_t group = 0; group < row.args.groups; ++group) {
      const Row own{row.args, row.row, row.max, row.total, 1U << group};
      const Chosen best = next(own, Chosen{});
      float score = best.choice;
      if (row.args.group_score == GroupScore::top_two && size > 1) score = score + next(own, best).choice;
      scores = select(lanes_below(group + 1) & !lanes_below(group), splat_f32(score), scores);
    }
    return scores;
  }

  NANSCOPE_LANE std::uint32_t top_groups(const Row& row) {
    F32 scores = group_scores(row);
    std::uint32_t chosen = 0;
    for (std::int64_t i = 0; i < row.args.top_groups; ++i) {
      const Mask left = lanes_below(row.args.groups) & !lanes_of(chosen);
      const float top = max_ignore_across(select(left, scores, splat_f32(-HUGE_VALF)));
      const std::uint32_t hits = ballot((scores == splat_f32(top)) & left);
      chosen |= 1U << first_lane(hits != 0 ? hits : ballot(left));
    }
    return chosen;
  }
  /// The lanes whose bits are set.
  NANSCOPE_LANE Mask lanes_of(std::uint32_t bits) {
    return to_i32((splat_u32(bits) >> lane_id()) & splat_u32(1)) != splat_i32(0);
  }

  NANSCOPE_LANE Chosen next(const Row& row, const Chosen& last) {
    const Args& args = row.args;
    F32 lanes = splat_f32(-HUGE_VALF);
    Mask left = lanes_below(0);
    for (std::int64_t first = 0; first < args.logits.columns; first += kLanes) {
      lanes = max_ignore(lanes, choices(row, first, last, left));
    }
    const float top = max_ignore_across(lanes);
    for (std::int64_t first = 0; first < args.logits.columns; first += kLanes) {
      const F32 choice = choices(row, first, last, left);
      const std::uint32_t hits = ballot((choice == splat_f32(top)) & left);
      if (hits == 0) continue;
      const int lane = first_lane(hits);
      const F32 gate = gates(row, first);
      const F32 bias = biases(args, first);
      const F32 value = args.value == RouterValue::gate ? gate : (gate + bias) - bias;
      return {top, first + lane, broadcast(value, lane)};
    }
    return {top, 0, top};
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    F32 values = splat_f32(0.0F);
    float total = 0.0F;
    float first_logit = 0.0F;
    Chosen last;
    Row scores = row_of(args, row);
    if (args.groups > 1) scores.groups = top_groups(scores);
    for (std::int64_t j = 0; j < args.ids.columns; ++j) {
      last = next(scores, last);
      if (args.score == RouterScore::softmax_of_chosen) {
        if (j == 0) first_logit = last.value;
        last.value = broadcast(exp(splat_f32(last.value - first_logit)), 0);
      }
      values = select(lanes_below(j + 1) & !lanes_below(j), splat_f32(last.value), values);
      total = total + last.value;
      store_uniform(static_cast<std::int32_t*>(args.ids.data) + row * args.ids.stride + j,
                    static_cast<std::int32_t>(last.index));
    }
    const F32 weights = args.normalise ? values / splat_f32(total + args.eps) : values;
    store(args.weights, row, 0, args.scale == 1.0F ? weights : weights * splat_f32(args.scale));
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
