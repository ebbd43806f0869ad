#pragma once
/// Gradient of a router's weights (kernels/ops/route.h) for its logits. Which experts are chosen has none: ids are
/// taken as they are, and so is the bias, which only chooses.
///
/// value_j, total and d = total + eps as in the forward op, made again from the logits; w_j = value_j / d. Of the
/// values, with sums over the chosen:
///   normalised   dvalue_j = (sum_i w_i (dw_j - dw_i) + r dw_j) / d, r = eps / d; c = r sum_i w_i dw_i
///   as they are  dvalue_j = dw_j; c = sum_i value_i dw_i
/// where dw_j is dweights_j times `scale`, one rounding
/// (quotient rule; differences of pairs, in which nothing cancels). Of the logits:
///   sigmoid            dlogit_j = dvalue_j (s(x) s(-x)), s = sigmoid
///   softmax            dlogit_j = value_j (dvalue_j - c), and -gate_e c of an expert e that was not chosen (Bridle
///                      1990). Where values are as they are, dw_j - c is R dw_j + sum_i value_i (dw_j - dw_i) with R
///                      the sum of the gates that were not chosen.
///   softmax_of_chosen  dlogit_j = value_j dvalue_j, of the first chosen minus the sum of the others'
/// Elsewhere +0. With RouterValue::choice_minus_bias values stand for the gates that they were rounded from.
///
/// Order of sums over the chosen: i ascending from +0, products fused with their sums; of gates not chosen and of the
/// others' dlogit lane l adds l, l + 32, ... ascending, then the butterfly 16 8 4 2 1. Other roundings: f32, one an
/// operation, then one to out's format.
/// NaN: of a chosen logit or of dweights it is in its row alone. An id that names no expert has no part in anything.
/// Traps: where all values are 0 (route.h) total is 0, and the row is NaN.
#include "kernels/check.h"
#include "kernels/ops/route.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: logits, out (T, E); bias (1, E) or not given; ids (T, k) i32, k at most 32, no expert twice in a row;
/// dweights (T, k); logits, bias, dweights and out f32, f16 or bf16, each its own.
struct RouteGradientArgs {
  TensorView logits;
  TensorView bias;
  TensorView ids;
  TensorView dweights;
  TensorView out;
  RouterScore score = RouterScore::sigmoid;
  RouterValue value = RouterValue::gate;
  bool normalise = true;
  float eps = 0.0F;
  float scale = 1.0F;
};

inline Status check(const RouteGradientArgs& args) {
  ArgsCheck check("route_gradient");
  check.floats("logits", args.logits).floats("dweights", args.dweights).floats("out", args.out);
  check.shape("logits", args.logits, args.out.rows, args.out.columns).format("ids", args.ids, {Format::i32});
  check.shape("ids", args.ids, args.out.rows, args.dweights.columns);
  check.shape("dweights", args.dweights, args.out.rows, args.ids.columns);
  check.that(args.ids.columns >= 1 && args.ids.columns <= kMostChosen, "1 to 32 experts");
  if (args.bias.given()) check.floats("bias", args.bias).shape("bias", args.bias, 1, args.out.columns);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include <cmath>

#include "kernels/math/exp.h"
#include "kernels/math/sigmoid.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct RouteGradient {
  using Args = RouteGradientArgs;

  /// Warp = one token.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns * args.ids.columns * 4; }

  /// A token's chosen experts, the jth in lane j, and what the softmax over all of them is made with.
  struct Row {
    const Args& args;
    std::int64_t row;
    Mask valid;  ///< lanes whose id names an expert
    F32 logits;
    F32 values;
    F32 dweights;
    float max;
    float total;
  };

  NANSCOPE_LANE Mask lane(std::int64_t j) { return lanes_below(j + 1) & !lanes_below(j); }
  NANSCOPE_LANE bool names(const Args& args, std::int64_t expert) { return expert >= 0 && expert < args.out.columns; }

  /// Element ids[j] of a row, in lane j.
  NANSCOPE_LANE F32 at_chosen(const Args& args, const TensorView& view, std::int64_t view_row, std::int64_t ids_row) {
    F32 found = splat_f32(0.0F);
    for (std::int64_t j = 0; j < args.ids.columns; ++j) {
      const std::int64_t expert = load_i32_scalar(args.ids, ids_row, j);
      if (!names(args, expert)) continue;
      found = select(lane(j), splat_f32(broadcast(load_range(view, view_row, expert, 1, 0.0F), 0)), found);
    }
    return found;
  }

  /// As route.h makes them.
  NANSCOPE_LANE F32 powers(const Args& args, std::int64_t row, std::int64_t first, float max) {
    return exp(load(args.logits, row, first, -HUGE_VALF) - splat_f32(max));
  }

  NANSCOPE_LANE F32 scaled(const Args& args, const F32& dweights) {
    return args.scale == 1.0F ? dweights : dweights * splat_f32(args.scale);
  }

  NANSCOPE_LANE Row row_of(const Args& args, std::int64_t token) {
    Row row{args,
            token,
            splat_mask(false),
            at_chosen(args, args.logits, token, token),
            splat_f32(0.0F),
            scaled(args, load(args.dweights, token, 0, 0.0F)),
            0.0F,
            1.0F};
    for (std::int64_t j = 0; j < args.ids.columns; ++j) {
      if (names(args, load_i32_scalar(args.ids, token, j))) row.valid = row.valid | lane(j);
    }
    if (args.score == RouterScore::softmax) {
      F32 highest = splat_f32(-HUGE_VALF);
      for (std::int64_t first = 0; first < args.out.columns; first += kLanes) {
        highest = max_propagate(highest, load(args.logits, token, first, -HUGE_VALF));
      }
      row.max = max_propagate_across(highest);
      F32 lanes = splat_f32(-0.0F);
      for (std::int64_t first = 0; first < args.out.columns; first += kLanes) {
        const Mask inside = lanes_below(args.out.columns - first);
        lanes = lanes + select(inside, powers(args, token, first, row.max), splat_f32(-0.0F));
      }
      row.total = sum(lanes);
    }
    row.values = values(row);
    row.dweights = select(row.valid, row.dweights, splat_f32(0.0F));
    return row;
  }

  NANSCOPE_LANE F32 values(const Row& row) {
    const Args& args = row.args;
    F32 value = row.logits;
    if (args.score == RouterScore::sigmoid) value = sigmoid(value);
    if (args.score == RouterScore::softmax) value = exp(value - splat_f32(row.max)) / splat_f32(row.total);
    if (args.value == RouterValue::choice_minus_bias && args.bias.given()) {
      const F32 bias = at_chosen(args, args.bias, 0, row.row);
      value = (value + bias) - bias;
    }
    if (args.score == RouterScore::softmax_of_chosen) value = exp(value - splat_f32(broadcast(value, 0)));
    return select(row.valid, value, splat_f32(0.0F));
  }

  /// sum_i weights_i (dw_j - dw_i) in lane j.
  NANSCOPE_LANE F32 over_pairs(const Row& row, const F32& weights) {
    F32 sums = splat_f32(0.0F);
    for (std::int64_t i = 0; i < row.args.ids.columns; ++i) {
      const int at = static_cast<int>(i);
      sums = fma(splat_f32(broadcast(weights, at)), row.dweights - splat_f32(broadcast(row.dweights, at)), sums);
    }
    return sums;
  }
  /// sum_i weights_i dw_i.
  NANSCOPE_LANE float along(const Row& row, const F32& weights) {
    float total = 0.0F;
    for (std::int64_t i = 0; i < row.args.ids.columns; ++i) {
      const int at = static_cast<int>(i);
      total = fma_uniform(broadcast(weights, at), broadcast(row.dweights, at), total);
    }
    return total;
  }

  /// Lanes of 32 experts from `first` on that were chosen.
  NANSCOPE_LANE Mask chosen_among(const Row& row, std::int64_t first) {
    Mask chosen = splat_mask(false);
    for (std::int64_t j = 0; j < row.args.ids.columns; ++j) {
      const std::int64_t expert = load_i32_scalar(row.args.ids, row.row, j);
      if (names(row.args, expert)) chosen = chosen | lane(expert - first);
    }
    return chosen;
  }

  /// The softmax's gates of experts that were not chosen, added up.
  NANSCOPE_LANE float rest(const Row& row) {
    F32 lanes = splat_f32(-0.0F);
    for (std::int64_t first = 0; first < row.args.out.columns; first += kLanes) {
      const Mask counted = lanes_below(row.args.out.columns - first) & !chosen_among(row, first);
      const F32 gates = powers(row.args, row.row, first, row.max) / splat_f32(row.total);
      lanes = lanes + select(counted, gates, splat_f32(-0.0F));
    }
    return sum(lanes);
  }

  /// dvalue in lane j and c; of a softmax as it is, dvalue - c.
  struct Slopes {
    F32 values;
    float c;
  };

  NANSCOPE_LANE Slopes slopes(const Row& row) {
    const Args& args = row.args;
    const bool softmax = args.score == RouterScore::softmax;
    if (!args.normalise) {
      if (!softmax) return {row.dweights, 0.0F};
      return {fma(splat_f32(rest(row)), row.dweights, over_pairs(row, row.values)), along(row, row.values)};
    }
    float total = 0.0F;
    for (std::int64_t j = 0; j < args.ids.columns; ++j) total = total + broadcast(row.values, static_cast<int>(j));
    const float divisor = total + args.eps;
    const float rounded = args.eps / divisor;
    const F32 weights = row.values / splat_f32(divisor);
    const F32 numerator = fma(splat_f32(rounded), row.dweights, over_pairs(row, weights));
    const F32 dvalues = numerator / splat_f32(divisor);
    const float c = rounded * along(row, weights);
    return {softmax ? dvalues - splat_f32(c) : dvalues, c};
  }

  NANSCOPE_LANE F32 of_chosen(const Row& row, const Slopes& slopes) {
    const RouterScore score = row.args.score;
    if (score == RouterScore::sigmoid) return slopes.values * (sigmoid(row.logits) * sigmoid(-row.logits));
    const F32 own = row.values * slopes.values;
    if (score == RouterScore::softmax) return own;
    const Mask others = row.valid & !lane(0);
    return select(lane(0), -splat_f32(sum(select(others, own, splat_f32(-0.0F)))), own);
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t token) {
    const Row row = row_of(args, token);
    const Slopes slopes = RouteGradient::slopes(row);
    const F32 chosen = of_chosen(row, slopes);
    for (std::int64_t first = 0; first < args.out.columns; first += kLanes) {
      F32 out = splat_f32(0.0F);
      if (args.score == RouterScore::softmax) {
        out = powers(args, token, first, row.max) / splat_f32(row.total) * splat_f32(0.0F - slopes.c);
      }
      for (std::int64_t j = 0; j < args.ids.columns; ++j) {
        const std::int64_t expert = load_i32_scalar(args.ids, token, j);
        if (!names(args, expert)) continue;
        out = select(lane(expert - first), splat_f32(broadcast(chosen, static_cast<int>(j))), out);
      }
      store(args.out, token, first, out);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
