#pragma once
/// Attention scores: out[t, h * S + s] = (sum_i q[t, h, i] * k[s, g, i]) * factor with g = h / (heads / kv_heads).
///
/// With a softcap c the score s becomes c * tanh(s / c) (Gemma 2), one rounding an operation.
///
/// Order: one fma chain over i ascending from +0, then one multiply, then the cap, then one rounding to out's format.
/// NaN, Inf: IEEE's: a bad query is a bad row, a bad key a bad column. Unmasked: the mask belongs to softmax.
/// Traps: the chain may overflow to Inf although factor would have brought it back; with an f16
/// output the score overflows where an f32 one does not.
#include "kernels/check.h"
#include "kernels/ops/kv_operand.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: q (T, heads * D), k (S, kv_heads * D) f32, out (T, heads * S); q and out f32, f16 or bf16. Instead of k,
/// `cache` may be given: the same bits, and nothing but codes and scales is read.
struct AttentionScoresArgs {
  TensorView q;
  TensorView k;
  TensorView out;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  float factor = 1.0F;
  float softcap = 0.0F;  ///< 0: none
  KvOperand cache = {};

  constexpr std::int64_t keys() const { return cache.given() ? cache.slots.rows : k.rows; }
  constexpr std::int64_t k_columns() const { return cache.given() ? cache.pool.columns : k.columns; }
};

inline Status check(const AttentionScoresArgs& args) {
  ArgsCheck check("attention_scores");
  check.floats("q", args.q).floats("out", args.out);
  if (args.cache.given()) {
    check_operand(check, args.cache, args.kv_heads);
    check.that(!args.k.given(), "keys or a cache, not both");
  } else {
    check.format("k", args.k, {Format::f32});
    check.that(args.k.stride <= 0x7fffffff / 32, "keys of at most 67108863 channels");
  }
  const bool heads = args.kv_heads > 0 && args.heads > 0 && args.heads % args.kv_heads == 0;
  check.that(heads, "heads to be a multiple of kv_heads");
  if (!heads) return check.done();
  check.that(args.k_columns() % args.kv_heads == 0, "keys of kv_heads equal heads");
  check.that(args.softcap >= 0.0F, "a softcap that is not negative");
  check.shape("q", args.q, args.out.rows, args.k_columns() / args.kv_heads * args.heads);
  check.shape("out", args.out, args.q.rows, args.heads * args.keys());
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#if defined(__CUDACC__)
#include "kernels/ops/attention_scores_gpu.h"
#else
#include "kernels/math/softcap.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// 32 rows of keys in f32.
struct PlainKeys {
  const float* first;
  I32 offset;
  Mask present;
};
NANSCOPE_FN F32 channel_of(const PlainKeys& keys, std::int64_t column) {
  return gather_f32(keys.first + column, keys.offset, keys.present);
}

struct AttentionScores {
  using Args = AttentionScoresArgs;

  /// Query rows (a token's head) that share one gather of keys.
  static constexpr int kRows = 8;

  NANSCOPE_HOST std::int64_t group(const Args& args) { return args.heads / args.kv_heads; }
  NANSCOPE_HOST std::int64_t row_blocks(const Args& args) { return div_up(args.q.rows * group(args), kRows); }

  /// Warp = (kv head, 32 keys, kRows query rows).
  NANSCOPE_HOST std::int64_t warps(const Args& args) {
    return args.kv_heads * div_up(args.keys(), kLanes) * row_blocks(args);
  }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    return args.k_columns() / args.kv_heads * kLanes * kRows;
  }

  NANSCOPE_LANE std::int64_t first_key_of(const Args& args, std::int64_t warp) {
    return warp / row_blocks(args) % div_up(args.keys(), kLanes) * kLanes;
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t rows_left = args.q.rows * group(args) - warp % row_blocks(args) * kRows;
    const int rows = rows_left < kRows ? static_cast<int>(rows_left) : kRows;
    if (args.cache.given())
      return rows < kRows ? run_cached<false>(args, warp, rows) : run_cached<true>(args, warp, kRows);
    if (rows < kRows) return run_plain<false>(args, warp, rows);
    run_plain<true>(args, warp, kRows);
  }

  template <bool All>
  NANSCOPE_LANE void run_plain(const Args& args, std::int64_t warp, int rows) {
    const std::int64_t first_key = first_key_of(args, warp);
    PlainKeys keys{static_cast<const float*>(args.k.data) + first_key * args.k.stride,
                   to_i32(lane_id()) * splat_i32(static_cast<std::int32_t>(args.k.stride)),
                   lanes_below(args.keys() - first_key)};
    run_rows<All>(args, warp, rows, keys);
  }

  template <bool All>
  NANSCOPE_LANE void run_cached(const Args& args, std::int64_t warp, int rows) {
    const std::int64_t first_key = first_key_of(args, warp);
    CachedKeys keys = cached_keys(args.cache, first_key, args.keys() - first_key);
    run_rows<All>(args, warp, rows, keys);
  }

  /// All: rows is kRows, so that their sums stay in registers. channel_of(keys, column): that channel of the warp's 32
  /// keys.
  template <bool All, class Keys>
  NANSCOPE_LANE void run_rows(const Args& args, std::int64_t warp, int some_rows, Keys& keys) {
    const int rows = All ? kRows : some_rows;
    const std::int64_t width = args.k_columns() / args.kv_heads;
    const std::int64_t heads_a_group = group(args);
    const std::int64_t key_blocks = div_up(args.keys(), kLanes);
    const std::int64_t first_row = warp % row_blocks(args) * kRows;
    const std::int64_t first_key = first_key_of(args, warp);
    const std::int64_t kv_head = warp / row_blocks(args) / key_blocks;

    F32 acc[kRows];
    for (int r = 0; r < kRows; ++r) acc[r] = splat_f32(0.0F);
    for (std::int64_t first = 0; first < width; first += kLanes) {
      F32 query[kRows];
      for (int r = 0; r < rows; ++r) {
        const std::int64_t token = (first_row + r) / heads_a_group;
        const std::int64_t head = kv_head * heads_a_group + (first_row + r) % heads_a_group;
        query[r] = load_range(args.q, token, head * width + first, width - first, 0.0F);
      }
      const int channels = static_cast<int>(width - first < kLanes ? width - first : kLanes);
      for (int i = 0; i < channels; ++i) {
        const F32 channel = channel_of(keys, kv_head * width + first + i);
        NANSCOPE_UNROLL for (int r = 0; r < kRows; ++r) {
          if (!All && r >= rows) break;
          acc[r] = fma(splat_f32(broadcast(query[r], i)), channel, acc[r]);
        }
      }
    }
    for (int r = 0; r < rows; ++r) {
      const std::int64_t token = (first_row + r) / heads_a_group;
      const std::int64_t head = kv_head * heads_a_group + (first_row + r) % heads_a_group;
      F32 score = acc[r] * splat_f32(args.factor);
      if (args.softcap > 0.0F) score = softcap(score, args.softcap);
      store_range(args.out, token, head * args.keys() + first_key, args.keys() - first_key, score);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
#endif
