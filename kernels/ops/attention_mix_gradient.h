#pragma once
/// Gradient of attention for what all rows of a group of heads share: with g = h / (heads / kv_heads)
///   out[s, g * D + i] = factor * sum over the h of g, then over t, of weights[t, h * S + s] * x[t, h * D + i]
/// (Vaswani et al. 2017, 3.2.1, differentiated). From probabilities and the mix's dout it is dV; from the gradient of
/// the scores and the queries, with the scores' factor, dK. The other two need no op of their own: dP is
/// AttentionScores(q = dout, k = V, factor 1), dQ is AttentionMix(p = dS, v = K, visible_only) with the scores' factor.
///
/// Order: one fma chain from +0 over the heads of the group ascending, and in each over the rows t ascending that see
/// key s, whatever the tiling; then one product with factor. A key that no row sees gets factor * +0.
/// NaN, Inf: IEEE's. Weights of masked keys and what they would multiply are not looked at; a visible weight of 0 does
/// not shield x: 0 * NaN is NaN.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: weights (T, heads * S), x (T, heads * D), both f32, f16 or bf16; out (S, kv_heads * D) f32. Row t sees keys
/// [first_key, first_position + t], of these with a window above 0 the last `window` alone, as in SoftmaxArgs.
/// With a tile, rows read exact_weights and exact_x, of the same shapes, for keys of the tile of their own position,
/// own_position + t, and weights and x elsewhere: on operands in blocks along the rows the tile on the diagonal is
/// where a later row decides on what an earlier one gives.
struct AttentionMixGradientArgs {
  TensorView weights;
  TensorView exact_weights = {};
  TensorView x;
  TensorView exact_x = {};
  TensorView out;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  float factor = 1.0F;
  std::int64_t first_position = 0;
  std::int64_t first_key = 0;
  std::int64_t window = 0;
  std::int64_t own_position = 0;
  std::int64_t tile = 0;  ///< keys of one, a multiple of 32; 0: there are none
};

inline Status check(const AttentionMixGradientArgs& args) {
  ArgsCheck check("attention_mix_gradient");
  check.floats("weights", args.weights).floats("x", args.x).format("out", args.out, {Format::f32});
  const bool heads = args.kv_heads > 0 && args.heads > 0 && args.heads % args.kv_heads == 0;
  check.that(heads, "heads to be a multiple of kv_heads");
  if (!heads) return check.done();
  check.that(args.out.columns % args.kv_heads == 0, "an output of kv_heads equal heads");
  check.shape("weights", args.weights, args.x.rows, args.heads * args.out.rows);
  check.shape("x", args.x, args.weights.rows, args.out.columns / args.kv_heads * args.heads);
  if (args.tile == 0) return check.done();
  check.that(args.tile > 0 && args.tile % 32 == 0, "tiles of a multiple of 32 keys");
  check.floats("exact_weights", args.exact_weights).floats("exact_x", args.exact_x);
  check.shape("exact_weights", args.exact_weights, args.weights.rows, args.weights.columns);
  check.shape("exact_x", args.exact_x, args.x.rows, args.x.columns);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct AttentionMixGradient {
  using Args = AttentionMixGradientArgs;

  /// Keys that share one load of x.
  static constexpr int kKeys = 8;

  NANSCOPE_HOST std::int64_t width(const Args& args) { return args.out.columns / args.kv_heads; }
  NANSCOPE_HOST std::int64_t group(const Args& args) { return args.heads / args.kv_heads; }
  NANSCOPE_HOST std::int64_t key_blocks(const Args& args) { return div_up(args.out.rows, kKeys); }

  /// Warp = (kv head, 32 channels, kKeys keys).
  NANSCOPE_HOST std::int64_t warps(const Args& args) {
    return args.kv_heads * div_up(width(args), kLanes) * key_blocks(args);
  }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.x.rows * group(args) * kLanes * kKeys; }

  /// Whether row t sees the key.
  NANSCOPE_LANE bool sees(const Args& args, std::int64_t t, std::int64_t key) {
    const std::int64_t last = args.first_position + t;
    return key < args.out.rows && key >= args.first_key && key <= last &&
           (args.window <= 0 || key > last - args.window);
  }

  /// The weights of kKeys keys from a column on, in all lanes. Those beyond the row's end are anything.
  NANSCOPE_LANE void load_weights(const TensorView& view, std::int64_t row, std::int64_t column, F32* weights) {
    const bool whole = column + kKeys <= view.columns;
    if (view.format == Format::f32 && whole) {
      NANSCOPE_UNROLL for (int k = 0; k < kKeys; ++k) weights[k] = splat_f32(load_f32_scalar(view, row, column + k));
      return;
    }
    const F32 lanes = load(view, row, column, 0.0F);
    NANSCOPE_UNROLL for (int k = 0; k < kKeys; ++k) weights[k] = splat_f32(broadcast(lanes, k));
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t key = warp % key_blocks(args) * kKeys;
    const std::int64_t channel = warp / key_blocks(args) % div_up(width(args), kLanes) * kLanes;
    const std::int64_t kv_head = warp / key_blocks(args) / div_up(width(args), kLanes);
    const std::int64_t left = width(args) - channel;
    const std::int64_t before = key - args.first_position;
    const std::int64_t behind = args.window > 0 ? before + kKeys - 1 + args.window : args.x.rows;
    const std::int64_t begin = before > 0 ? before : 0;
    const std::int64_t end = behind < args.x.rows ? behind : args.x.rows;

    F32 acc[kKeys];
    NANSCOPE_UNROLL for (int k = 0; k < kKeys; ++k) acc[k] = splat_f32(0.0F);
    for (std::int64_t head = kv_head * group(args); head < (kv_head + 1) * group(args); ++head) {
      for (std::int64_t t = begin; t < end; ++t) {
        const bool own = args.tile > 0 && (args.own_position + t) / args.tile == key / args.tile;
        const F32 x = load_range(own ? args.exact_x : args.x, t, head * width(args) + channel, left, 0.0F);
        F32 weights[kKeys];
        load_weights(own ? args.exact_weights : args.weights, t, head * args.out.rows + key, weights);
        // The keys that a row sees lie together: it sees all between two that it sees.
        if (sees(args, t, key) && sees(args, t, key + kKeys - 1)) {
          NANSCOPE_UNROLL for (int k = 0; k < kKeys; ++k) acc[k] = fma(weights[k], x, acc[k]);
          continue;
        }
        NANSCOPE_UNROLL for (int k = 0; k < kKeys; ++k) {
          if (sees(args, t, key + k)) acc[k] = fma(weights[k], x, acc[k]);
        }
      }
    }
    NANSCOPE_UNROLL for (int k = 0; k < kKeys; ++k) {
      if (key + k >= args.out.rows) break;
      store_range(args.out, key + k, kv_head * width(args) + channel, left, acc[k] * splat_f32(args.factor));
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
