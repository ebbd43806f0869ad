#pragma once
/// Attention mix: out[t, h * D + i] = factor * sum_s p[t, h * S + s] * v[s, g, i], one fma chain over s ascending from
/// +0. A factor other than 1 is for the gradient of the queries, dQ = factor * dS K.
///
/// Order: the chain, whatever the tiling: kRows rows of probabilities share each load of values. One product with
/// factor and one rounding to out's format at the end.
/// NaN, Inf: IEEE's. Traps: a probability of zero does not shield a value: 0 * NaN and 0 * Inf are NaN,
/// so one bad value in a masked or never written slot reaches its channel of every row. visible_only
/// shields what the mask hides, and nothing else: a visible key of probability 0 still passes NaN on.
///
/// split: a chain for each block of so many keys, from +0, whose results stay apart in f32 for combine_partials.h: the
/// first step of flash-decoding (Dao et al. 2023). Where visible_only leaves a row no key of a block, the first block
/// gives +0 and any other -0, which adds nothing: how many blocks lie behind a row changes none of its bits.
#include "kernels/check.h"
#include "kernels/ops/kv_operand.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: p (T, heads * S), v (S, kv_heads * D) f32, out (T, heads * D); p and out f32, f16 or bf16. Head h
/// reads value head g = h / (heads / kv_heads). Instead of v, `cache` may be given: the same bits.
/// visible_only: the chain of row t runs over keys [first_key, first_position + t] alone, and over the last `window` of
/// them where that is above 0 (mask mode select in kernels that skip masked values); else over all S keys.
/// split: keys a block, a multiple of 32; out is then (T, heads * blocks * D) f32 and factor 1. 0: no blocks.
struct AttentionMixArgs {
  TensorView p;
  TensorView v;
  TensorView out;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  float factor = 1.0F;
  std::int64_t first_position = 0;
  std::int64_t first_key = 0;
  std::int64_t window = 0;
  bool visible_only = false;
  KvOperand cache = {};
  std::int64_t split = 0;

  constexpr std::int64_t keys() const { return cache.given() ? cache.slots.rows : v.rows; }
  constexpr std::int64_t blocks() const { return split > 0 ? (keys() + split - 1) / split : 1; }
  constexpr std::int64_t keys_a_block() const { return split > 0 ? split : keys(); }
  constexpr std::int64_t v_columns() const { return cache.given() ? cache.pool.columns : v.columns; }
};

inline Status check(const AttentionMixArgs& args) {
  ArgsCheck check("attention_mix");
  check.floats("p", args.p).floats("out", args.out);
  if (args.cache.given()) {
    check_operand(check, args.cache, args.kv_heads);
    check.that(!args.v.given(), "values or a cache, not both");
  } else {
    check.format("v", args.v, {Format::f32});
  }
  const bool heads = args.kv_heads > 0 && args.heads > 0 && args.heads % args.kv_heads == 0;
  check.that(heads, "heads to be a multiple of kv_heads");
  if (!heads) return check.done();
  check.that(args.v_columns() % args.kv_heads == 0, "values of kv_heads equal heads");
  check.shape("p", args.p, args.out.rows, args.heads * args.keys());
  check.that(args.split >= 0 && args.split % 32 == 0, "blocks of a multiple of 32 keys");
  if (args.split > 0) {
    check.format("out", args.out, {Format::f32});
    check.that(args.factor == 1.0F, "no factor where keys are split into blocks");
  }
  check.shape("out", args.out, args.p.rows, args.v_columns() / args.kv_heads * args.heads * args.blocks());
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// The mix, rows by rows.
struct AttentionMixRows {
  using Args = AttentionMixArgs;

  /// Probability rows (a token's head) that share one load of values.
  static constexpr int kRows = 8;

  NANSCOPE_HOST std::int64_t width(const Args& args) { return args.v_columns() / args.kv_heads; }
  NANSCOPE_HOST std::int64_t group(const Args& args) { return args.heads / args.kv_heads; }
  NANSCOPE_HOST std::int64_t row_blocks(const Args& args) { return div_up(args.p.rows * group(args), kRows); }

  /// Warp = (kv head, block of keys, 32 channels, kRows probability rows).
  NANSCOPE_HOST std::int64_t warps(const Args& args) {
    return args.kv_heads * args.blocks() * div_up(width(args), kLanes) * row_blocks(args);
  }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.keys_a_block() * kLanes * kRows; }

  /// Whether the row whose own key is `last` may not see `key`.
  NANSCOPE_LANE bool hidden(const Args& args, std::int64_t key, std::int64_t last) {
    return key < args.first_key || key > last || (args.window > 0 && key <= last - args.window);
  }

  /// Whether the row whose own key is `last` sees any of keys [begin, end).
  NANSCOPE_LANE bool sees(const Args& args, std::int64_t begin, std::int64_t end, std::int64_t last) {
    if (!args.visible_only) return true;
    const std::int64_t behind = args.window > 0 ? last - args.window + 1 : 0;
    const std::int64_t first = behind > args.first_key ? behind : args.first_key;
    return (first > begin ? first : begin) <= (last < end ? last : end - 1);
  }

  /// The channels from `column` on, of which `left` are its head's.
  NANSCOPE_LANE F32 value_of(const Args& args, std::int64_t key, std::int64_t column, std::int64_t left) {
    if (!args.cache.given()) return load_range(args.v, key, column, left, 0.0F);
    return cached_row(args.cache, key, column, left < kLanes ? left : kLanes);
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t rows_left = args.p.rows * group(args) - warp % row_blocks(args) * kRows;
    if (rows_left < kRows) return run_rows<false>(args, warp, static_cast<int>(rows_left));
    run_rows<true>(args, warp, kRows);
  }

  /// All: rows is kRows, so that their sums stay in registers.
  template <bool All>
  NANSCOPE_LANE void run_rows(const Args& args, std::int64_t warp, int some_rows) {
    const int rows = All ? kRows : some_rows;
    const std::int64_t keys = args.keys();
    const std::int64_t heads_a_group = group(args);
    const std::int64_t channel_blocks = div_up(width(args), kLanes);
    const std::int64_t first_row = warp % row_blocks(args) * kRows;
    const std::int64_t channel = warp / row_blocks(args) % channel_blocks * kLanes;
    const std::int64_t blocks = args.blocks();
    const std::int64_t batch = warp / row_blocks(args) / channel_blocks;
    const std::int64_t block = args.split > 0 ? batch % blocks : 0;
    const std::int64_t kv_head = args.split > 0 ? batch / blocks : batch;
    const std::int64_t begin = block * args.split;
    const std::int64_t end = begin + args.keys_a_block() < keys ? begin + args.keys_a_block() : keys;

    F32 acc[kRows];
    std::int64_t last[kRows];
    bool any_seen = false;
    for (int r = 0; r < kRows; ++r) {
      last[r] = args.first_position + (first_row + r) / heads_a_group;
      const bool seen = sees(args, begin, end, last[r]);
      acc[r] = splat_f32(seen || block == 0 ? 0.0F : -0.0F);
      any_seen = any_seen || seen;
    }
    for (std::int64_t first = begin; any_seen && first < end; first += kLanes) {
      F32 weight[kRows];
      for (int r = 0; r < rows; ++r) {
        const std::int64_t head = kv_head * heads_a_group + (first_row + r) % heads_a_group;
        weight[r] = load_range(args.p, (first_row + r) / heads_a_group, head * keys + first, end - first, 0.0F);
      }
      const int count = static_cast<int>(end - first < kLanes ? end - first : kLanes);
      for (int s = 0; s < count; ++s) {
        const F32 value = value_of(args, first + s, kv_head * width(args) + channel, width(args) - channel);
        NANSCOPE_UNROLL for (int r = 0; r < kRows; ++r) {
          if (!All && r >= rows) break;
          if (args.visible_only && hidden(args, first + s, last[r])) continue;
          acc[r] = fma(splat_f32(broadcast(weight[r], s)), value, acc[r]);
        }
      }
    }
    for (int r = 0; r < rows; ++r) {
      const std::int64_t head = kv_head * heads_a_group + (first_row + r) % heads_a_group;
      store_range(args.out, (first_row + r) / heads_a_group, (head * blocks + block) * width(args) + channel,
                  width(args) - channel, acc[r] * splat_f32(args.factor));
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA

#if defined(__CUDACC__)
#include "kernels/ops/attention_mix_gpu.h"
#else
namespace nanscope::kernels::NANSCOPE_ISA {
struct AttentionMix : AttentionMixRows {};
}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
#endif
