#pragma once
/// Softmax over tiles of keys with a running maximum, not yet divided by its sum (Milakov and Gimelshein 2018, Online
/// normalizer calculation for softmax; FlashAttention, Dao et al. 2022). After tile n of a row:
///
///     max_n = max(max_{n-1}, largest score of the tile that the row sees)
///     p     = exp(s - max_n), 0 for keys that it does not see
///     sum_n = sum_{n-1} * exp(max_{n-1} - max_n) + sum of p
///
/// with max_{-1} = -Inf and sum_{-1} = 0, or a sink's score and 1. What reads p divides by the last sum. Tiles of which
/// a row sees no key are passed over: max and sum stay.
/// whole: max_n is the maximum of the row and p = exp(s - max) / sum, the bits of softmax.h; sums are 1, or 0 for a row
/// without keys.
///
/// Order: within a tile lane l adds keys l, l + 32, ..., then the butterfly 16 8 4 2 1; tiles ascending, two roundings
/// each. exp is our own, below 1 ulp. p is rounded to out's format, the sum is one of what was not yet.
/// NaN: a NaN that a row sees makes its max and sum NaN from that tile on (NanRule::ignore: the sum alone); one that it
/// does not see reaches nothing. A tile of which all seen scores are -Inf while the maximum still is: NaN.
#include "kernels/check.h"
#include "kernels/ops/softmax.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: scores (T, heads * S); exact_scores the same or not given: read instead for the tile that own_position + t
/// lies in; sinks (1, heads) or not given; out (T, heads * N * tile), N = S / tile rounded up, 0 behind key S; max, sum
/// (T, heads * N) f32. Row t sees keys [first_key, first_position + t], with a window the last of them alone.
struct TileSoftmaxArgs {
  TensorView scores;
  TensorView exact_scores = {};
  TensorView sinks = {};
  TensorView out;
  TensorView max;
  TensorView sum;
  std::int64_t heads = 1;
  std::int64_t tile = 32;  ///< keys, a multiple of 32
  std::int64_t first_position = 0;
  std::int64_t own_position = 0;
  std::int64_t first_key = 0;
  std::int64_t window = 0;
  NanRule max_nan = NanRule::propagate;
  bool whole = false;
  bool zero_guard = false;  ///< of whole: as in softmax.h
};

inline Status check(const TileSoftmaxArgs& args) {
  ArgsCheck check("tile_softmax");
  check.floats("scores", args.scores).floats("out", args.out);
  check.format("max", args.max, {Format::f32}).format("sum", args.sum, {Format::f32});
  const bool heads = args.heads > 0 && args.scores.columns % args.heads == 0;
  check.that(heads, "columns to be a multiple of heads");
  check.that(args.tile > 0 && args.tile % 32 == 0, "tiles of a multiple of 32 keys");
  if (!heads || args.tile <= 0) return check.done();
  const std::int64_t tiles = (args.scores.columns / args.heads + args.tile - 1) / args.tile;
  check.shape("out", args.out, args.scores.rows, args.heads * tiles * args.tile);
  check.shape("max", args.max, args.scores.rows, args.heads * tiles);
  check.shape("sum", args.sum, args.scores.rows, args.heads * tiles);
  if (args.exact_scores.given()) {
    check.floats("exact_scores", args.exact_scores)
        .shape("exact_scores", args.exact_scores, args.scores.rows, args.scores.columns);
  }
  if (args.sinks.given()) check.floats("sinks", args.sinks).shape("sinks", args.sinks, 1, args.heads);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include <cmath>

#include "kernels/math/exp.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct TileSoftmax {
  using Args = TileSoftmaxArgs;

  /// Warp = one row of one head.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows * args.heads; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns / args.heads * 16; }

  struct Row {
    const Args& args;
    std::int64_t token;
    std::int64_t head;
    std::int64_t keys;
    std::int64_t first_visible;
    std::int64_t last_visible;

    /// Scores of keys [key, key + 32), -Inf where the row does not see them.
    NANSCOPE_LANE F32 scores(const Row& row, std::int64_t key) {
      const bool own = (row.args.own_position + row.token) / row.args.tile == key / row.args.tile;
      const TensorView& from = own && row.args.exact_scores.given() ? row.args.exact_scores : row.args.scores;
      const F32 score = load_range(from, row.token, row.head * row.keys + key, row.keys - key, -HUGE_VALF);
      return select(seen(row, key), score, splat_f32(-HUGE_VALF));
    }
    NANSCOPE_LANE Mask seen(const Row& row, std::int64_t key) {
      const std::int64_t behind = row.last_visible + 1 < row.keys ? row.last_visible + 1 : row.keys;
      return lanes_below(behind - key) & !lanes_below(row.first_visible - key);
    }
    NANSCOPE_LANE bool sees(const Row& row, std::int64_t first, std::int64_t end) {
      const std::int64_t last = row.last_visible < row.keys - 1 ? row.last_visible : row.keys - 1;
      return first <= last && end > row.first_visible && row.first_visible <= last;
    }
  };

  NANSCOPE_LANE float larger(const Args& args, float a, float b) {
    const F32 x = splat_f32(a);
    const F32 y = splat_f32(b);
    return broadcast(args.max_nan == NanRule::propagate ? max_propagate(x, y) : max_ignore(x, y), 0);
  }
  NANSCOPE_LANE float max_of(const Row& row, std::int64_t first, std::int64_t end) {
    const bool propagate = row.args.max_nan == NanRule::propagate;
    F32 lanes = splat_f32(-HUGE_VALF);
    for (std::int64_t key = first; key < end; key += kLanes) {
      const F32 score = Row::scores(row, key);
      lanes = propagate ? max_propagate(lanes, score) : max_ignore(lanes, score);
    }
    return propagate ? max_propagate_across(lanes) : max_ignore_across(lanes);
  }
  NANSCOPE_LANE F32 weight(const Row& row, std::int64_t key, float max) {
    return select(Row::seen(row, key), exp(Row::scores(row, key) - splat_f32(max)), splat_f32(0.0F));
  }
  NANSCOPE_LANE float sum_of(const Row& row, std::int64_t first, std::int64_t end, float max) {
    F32 lanes = splat_f32(-0.0F);
    for (std::int64_t key = first; key < end; key += kLanes) {
      lanes = lanes + select(lanes_below(row.keys - key), weight(row, key, max), splat_f32(-0.0F));
    }
    return sum(lanes);
  }
  NANSCOPE_LANE float sink_of(const Args& args, std::int64_t head) {
    if (!args.sinks.given()) return -HUGE_VALF;
    return broadcast(load_range(args.sinks, 0, head, 1, 0.0F), 0);
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t token = warp / args.heads;
    const std::int64_t head = warp % args.heads;
    const std::int64_t last = args.first_position + token;
    const std::int64_t behind = args.window > 0 ? last - args.window + 1 : 0;
    const Row row{
        args, token, head, args.scores.columns / args.heads, behind > args.first_key ? behind : args.first_key, last};
    if (args.whole) return run_whole(row);
    run_online(row);
  }

  NANSCOPE_LANE void run_online(const Row& row) {
    const Args& args = row.args;
    const std::int64_t tiles = div_up(row.keys, args.tile);
    float max = sink_of(args, row.head);
    float total = args.sinks.given() ? 1.0F : 0.0F;
    for (std::int64_t n = 0; n < tiles; ++n) {
      const std::int64_t first = n * args.tile;
      if (Row::sees(row, first, first + args.tile)) {
        const float before = max;
        max = larger(args, before, max_of(row, first, first + args.tile));
        const float faded = total * broadcast(exp(splat_f32(before) - splat_f32(max)), 0);
        total = faded + sum_of(row, first, first + args.tile, max);
      }
      store_tile(row, n, max, total, 1.0F, false);
    }
  }

  NANSCOPE_LANE void run_whole(const Row& row) {
    const Args& args = row.args;
    const float sink = sink_of(args, row.head);
    const float max = larger(args, max_of(row, 0, row.keys), sink);
    float total = sum_of(row, 0, row.keys, max);
    if (args.sinks.given()) total = total + broadcast(exp(splat_f32(sink) - splat_f32(max)), 0);
    const bool zeros = args.zero_guard && !(total > 0.0F);
    for (std::int64_t n = 0; n < div_up(row.keys, args.tile); ++n) {
      store_tile(row, n, max, total == 0.0F ? 0.0F : 1.0F, total, zeros);
    }
  }

  NANSCOPE_LANE void store_tile(const Row& row, std::int64_t n, float max, float total, float divisor, bool zeros) {
    const Args& args = row.args;
    const std::int64_t tiles = div_up(row.keys, args.tile);
    store_f32_scalar(args.max, row.token, row.head * tiles + n, max);
    store_f32_scalar(args.sum, row.token, row.head * tiles + n, total);
    for (std::int64_t key = n * args.tile; key < (n + 1) * args.tile; key += kLanes) {
      F32 p = splat_f32(0.0F);
      if (!zeros && Row::sees(row, key, key + kLanes)) p = weight(row, key, max) / splat_f32(divisor);
      store_range(args.out, row.token, row.head * tiles * args.tile + key, kLanes, p);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
