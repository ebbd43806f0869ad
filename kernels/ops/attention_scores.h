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
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: q (T, heads * D), k (S, kv_heads * D) f32, out (T, heads * S); q and out f32, f16 or bf16.
struct AttentionScoresArgs {
  TensorView q;
  TensorView k;
  TensorView out;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  float factor = 1.0F;
  float softcap = 0.0F;  ///< 0: none
};

inline Status check(const AttentionScoresArgs& args) {
  ArgsCheck check("attention_scores");
  check.floats("q", args.q).floats("out", args.out).format("k", args.k, {Format::f32});
  const bool heads = args.kv_heads > 0 && args.heads > 0 && args.heads % args.kv_heads == 0;
  check.that(heads, "heads to be a multiple of kv_heads");
  if (!heads) return check.done();
  check.that(args.k.columns % args.kv_heads == 0, "keys of kv_heads equal heads");
  check.that(args.k.stride <= 0x7fffffff / 32, "keys of at most 67108863 channels");
  check.that(args.softcap >= 0.0F, "a softcap that is not negative");
  check.shape("q", args.q, args.out.rows, args.k.columns / args.kv_heads * args.heads);
  check.shape("out", args.out, args.q.rows, args.heads * args.k.rows);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/math/softcap.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct AttentionScores {
  using Args = AttentionScoresArgs;

  /// Query rows (a token's head) that share one gather of keys.
  static constexpr int kRows = 8;

  NANSCOPE_HOST std::int64_t keys(const Args& args) { return args.k.rows; }
  NANSCOPE_HOST std::int64_t group(const Args& args) { return args.heads / args.kv_heads; }
  NANSCOPE_HOST std::int64_t row_blocks(const Args& args) { return div_up(args.q.rows * group(args), kRows); }

  /// Warp = (kv head, 32 keys, kRows query rows).
  NANSCOPE_HOST std::int64_t warps(const Args& args) {
    return args.kv_heads * div_up(keys(args), kLanes) * row_blocks(args);
  }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.k.columns / args.kv_heads * kLanes * kRows; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t rows_left = args.q.rows * group(args) - warp % row_blocks(args) * kRows;
    if (rows_left < kRows) return run_rows<false>(args, warp, static_cast<int>(rows_left));
    run_rows<true>(args, warp, kRows);
  }

  /// All: rows is kRows, so that their sums stay in registers.
  template <bool All>
  NANSCOPE_LANE void run_rows(const Args& args, std::int64_t warp, int some_rows) {
    const int rows = All ? kRows : some_rows;
    const std::int64_t width = args.k.columns / args.kv_heads;
    const std::int64_t heads_a_group = group(args);
    const std::int64_t key_blocks = div_up(keys(args), kLanes);
    const std::int64_t first_row = warp % row_blocks(args) * kRows;
    const std::int64_t first_key = warp / row_blocks(args) % key_blocks * kLanes;
    const std::int64_t kv_head = warp / row_blocks(args) / key_blocks;

    const Mask present = lanes_below(keys(args) - first_key);
    const float* key = static_cast<const float*>(args.k.data) + first_key * args.k.stride + kv_head * width;
    const I32 lane_offset = to_i32(lane_id()) * splat_i32(static_cast<std::int32_t>(args.k.stride));
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
        const F32 channel = gather_f32(key + first + i, lane_offset, present);
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
      store_range(args.out, token, head * keys(args) + first_key, keys(args) - first_key, score);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
