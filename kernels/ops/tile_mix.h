#pragma once
/// The mix of values under what tile_softmax.h made, tile by tile in ascending order:
///
///     acc = acc * exp(max_{n-1} - max_n), then acc = fma(p[s], v[s], acc) over the keys of tile n that the row sees
///     out = acc / sum of the last tile
///
/// The tile of the row's own position is the one on the diagonal. With values whose blocks lie along the tokens it is
/// where later tokens reach earlier ones, by the scale that they share; diagonal says what is read there:
/// quantized, what is read elsewhere; exact, exact_p and exact_v; past, exact_v quantized anew for each row, from the
/// rows of its block up to its own.
///
/// Order: the chain over keys ascending from +0, one multiplication a tile behind the first that the row sees, one
/// division, one rounding to out's format. NaN, Inf: IEEE's; keys that a row does not see are not read. zero_guard:
/// 0 where the sum is not above 0.
#include "kernels/check.h"
#include "kernels/choices.h"
#include "kernels/ops/column_scales.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: p (T, heads * N * tile); v (S, kv_heads * D) f32, N = S / tile rounded up; exact_p, exact_v the same, or not
/// given; max, sum (T, heads * N) f32; out (T, heads * D). Head h reads value head h / (heads / kv_heads). format: of
/// Diagonal::past, blocks of one column.
struct TileMixArgs {
  TensorView p;
  TensorView exact_p = {};
  TensorView v;
  TensorView exact_v = {};
  TensorView max;
  TensorView sum;
  TensorView out;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t tile = 32;
  std::int64_t first_position = 0;
  std::int64_t own_position = 0;
  std::int64_t first_key = 0;
  std::int64_t window = 0;
  Diagonal diagonal = Diagonal::quantized;
  BlockFormat format = {};
  float second = 1;
  bool zero_guard = false;
};

inline Status check(const TileMixArgs& args) {
  ArgsCheck check("tile_mix");
  check.floats("p", args.p).floats("out", args.out).format("v", args.v, {Format::f32});
  check.format("max", args.max, {Format::f32}).format("sum", args.sum, {Format::f32});
  const bool heads = args.kv_heads > 0 && args.heads > 0 && args.heads % args.kv_heads == 0;
  check.that(heads, "heads to be a multiple of kv_heads");
  check.that(args.tile > 0 && args.tile % 32 == 0, "tiles of a multiple of 32 keys");
  if (!heads || args.tile <= 0) return check.done();
  check.that(args.v.columns % args.kv_heads == 0, "values of kv_heads equal heads");
  const std::int64_t tiles = (args.v.rows + args.tile - 1) / args.tile;
  check.shape("p", args.p, args.out.rows, args.heads * tiles * args.tile);
  check.shape("max", args.max, args.out.rows, args.heads * tiles);
  check.shape("sum", args.sum, args.out.rows, args.heads * tiles);
  check.shape("out", args.out, args.p.rows, args.v.columns / args.kv_heads * args.heads);
  if (args.diagonal == Diagonal::exact) {
    check.floats("exact_p", args.exact_p).shape("exact_p", args.exact_p, args.p.rows, args.p.columns);
  }
  if (args.diagonal != Diagonal::quantized) {
    check.format("exact_v", args.exact_v, {Format::f32}).shape("exact_v", args.exact_v, args.v.rows, args.v.columns);
  }
  if (args.diagonal == Diagonal::past) {
    check.that(args.format.block.columns == 1 && args.format.block.rows > 0, "blocks of one column");
    check.that(args.format.block.rows > 0 && args.tile % args.format.block.rows == 0, "tiles of whole blocks");
    check.that(rounds_elementwise(args.format) && args.format.ties != Ties::stochastic, kElementwise);
  }
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/math/exp.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct TileMix {
  using Args = TileMixArgs;

  NANSCOPE_HOST std::int64_t width(const Args& args) { return args.v.columns / args.kv_heads; }
  NANSCOPE_HOST std::int64_t tiles(const Args& args) { return div_up(args.v.rows, args.tile); }

  /// Warp = 32 channels of one head of one row.
  NANSCOPE_HOST std::int64_t warps(const Args& args) {
    return args.out.rows * args.heads * div_up(width(args), kLanes);
  }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.v.rows * kLanes * 2; }

  /// The block of the row's own position, quantized from the rows up to it.
  struct PastBlock {
    std::int64_t first = -1;
    std::int64_t last = -1;
    LaneScales scales;
  };

  struct Place {
    std::int64_t row;
    std::int64_t head;
    std::int64_t column;  ///< of the values
    std::int64_t left;    ///< channels from there on
    std::int64_t own;     ///< the row's position
  };

  NANSCOPE_LANE PastBlock past_block(const Args& args, const Place& place) {
    PastBlock block;
    block.first = place.own / args.format.block.rows * args.format.block.rows;
    block.last = place.own < args.v.rows - 1 ? place.own : args.v.rows - 1;
    F32 amax = splat_f32(0.0F);
    for (std::int64_t key = block.first; key <= block.last; ++key) {
      amax = max_propagate(amax, abs(load_range(args.exact_v, key, place.column, place.left, 0.0F)));
    }
    block.scales = column_scales(args.format, args.second, amax);
    return block;
  }

  NANSCOPE_LANE F32 past_value(const Args& args, const Place& place, const PastBlock& block, std::int64_t key) {
    const F32 x = load_range(args.exact_v, key, place.column, place.left, 0.0F);
    const U32 code = element_codes(args.format, block.scales, x, splat_u32(0), 0);
    return decode_lanes(args.format.element, code) * whole_scale(args.format, block.scales.code, args.second);
  }

  /// The chain over keys [begin, end) of tile n.
  NANSCOPE_LANE F32 add_tile(const Args& args, const Place& place, std::int64_t n, std::int64_t begin, std::int64_t end,
                             F32 acc) {
    const bool own = place.own / args.tile == n;
    const bool exact = own && args.diagonal == Diagonal::exact;
    const TensorView& weights = exact ? args.exact_p : args.p;
    const TensorView& values = exact ? args.exact_v : args.v;
    PastBlock block;
    if (own && args.diagonal == Diagonal::past) block = past_block(args, place);
    for (std::int64_t group = begin / kLanes * kLanes; group < end; group += kLanes) {
      const std::int64_t column = place.head * tiles(args) * args.tile + group;
      const F32 lanes = load_range(weights, place.row, column, kLanes, 0.0F);
      const std::int64_t from = begin > group ? begin : group;
      const std::int64_t to = end < group + kLanes ? end : group + kLanes;
      for (std::int64_t key = from; key < to; ++key) {
        F32 value = load_range(values, key, place.column, place.left, 0.0F);
        if (key >= block.first && key <= block.last) value = past_value(args, place, block, key);
        acc = fma(splat_f32(broadcast(lanes, static_cast<int>(key - group))), value, acc);
      }
    }
    return acc;
  }

  NANSCOPE_LANE F32 max_after(const Args& args, const Place& place, std::int64_t n) {
    return splat_f32(load_f32_scalar(args.max, place.row, place.head * tiles(args) + n));
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t pieces = div_up(width(args), kLanes);
    const std::int64_t piece = warp % pieces * kLanes;
    const std::int64_t head = warp / pieces % args.heads;
    const std::int64_t row = warp / pieces / args.heads;
    const std::int64_t kv_head = head / (args.heads / args.kv_heads);
    const Place place{row, head, kv_head * width(args) + piece, width(args) - piece, args.own_position + row};

    const std::int64_t last = args.first_position + row;
    const std::int64_t end = last + 1 < args.v.rows ? last + 1 : args.v.rows;
    const std::int64_t behind = args.window > 0 ? last - args.window + 1 : 0;
    const std::int64_t begin = behind > args.first_key ? behind : args.first_key;
    F32 acc = splat_f32(0.0F);
    for (std::int64_t n = begin / args.tile; n * args.tile < end; ++n) {
      const std::int64_t first = n * args.tile;
      if (first > begin) acc = acc * exp(max_after(args, place, n - 1) - max_after(args, place, n));
      const std::int64_t stop = first + args.tile < end ? first + args.tile : end;
      acc = add_tile(args, place, n, begin > first ? begin : first, stop, acc);
    }
    const std::int64_t sum_column = (head + 1) * tiles(args) - 1;
    const float sum = load_f32_scalar(args.sum, row, sum_column);
    const F32 out = args.zero_guard && !(sum > 0.0F) ? splat_f32(0.0F) : acc / splat_f32(sum);
    store_range(args.out, row, head * width(args) + piece, width(args) - piece, out);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
