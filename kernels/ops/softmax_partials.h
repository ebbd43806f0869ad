#pragma once
/// The statistics of a softmax over blocks of keys, which flash-decoding takes of each by itself (Dao et al. 2023,
/// after Milakov and Gimelshein 2018), and softmax.h puts together:
///
///     max_b = maximum of the masked scores of block b
///     sum_b = sum of exp(s - max_b), of exp(s) where max_b is -Inf
///
/// Order: as softmax.h has it in a row: the maximum has none; in a block lane l adds keys l, l + 32, ... ascending,
/// then the butterfly 16 8 4 2 1. Masks and NaN too: what softmax.h lets through is in max_b, in sum_b or in both. A
/// block of which a row sees no key has -Inf and, but under a mask that lets a NaN through, 0: exp(s) is then 0 for
/// each -Inf, and NaN for a NaN that NanRule::ignore passed over. Sinks are no part of any block.
#include "kernels/ops/softmax.h"

namespace nanscope::kernels {

/// Shapes: scores (T, heads * S) f32, f16 or bf16; max, sum (T, heads * blocks) f32, blocks = S / split rounded up; all
/// else as SoftmaxArgs has it.
struct SoftmaxPartialsArgs {
  TensorView scores;
  TensorView max;
  TensorView sum;
  std::int64_t heads = 1;
  std::int64_t split = 32;  ///< keys a block, a multiple of 32
  std::int64_t first_position = 0;
  std::int64_t first_key = 0;
  std::int64_t window = 0;
  MaskMode mask = MaskMode::additive;
  NanRule max_nan = NanRule::propagate;
};

inline Status check(const SoftmaxPartialsArgs& args) {
  ArgsCheck check("softmax_partials");
  check.floats("scores", args.scores);
  check.format("max", args.max, {Format::f32}).format("sum", args.sum, {Format::f32});
  const bool heads = args.heads > 0 && args.scores.columns % args.heads == 0;
  const bool blocks = args.split > 0 && args.split % 32 == 0;
  check.that(heads, "columns to be a multiple of heads");
  check.that(blocks, "blocks of a multiple of 32 keys");
  if (!heads || !blocks) return check.done();
  const std::int64_t statistics = args.heads * blocks_of(args.scores.columns / args.heads, args.split);
  check.shape("max", args.max, args.scores.rows, statistics);
  check.shape("sum", args.sum, args.scores.rows, statistics);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
namespace nanscope::kernels::NANSCOPE_ISA {

struct SoftmaxPartials {
  using Args = SoftmaxPartialsArgs;
  using Row = SoftmaxRow<Args>;

  /// Warp = one block of one row of one head.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.max.rows * args.max.columns; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.split * 16; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t column = warp % args.max.columns;
    const std::int64_t blocks = args.max.columns / args.heads;
    const Row row = Row::of(args, warp / args.max.columns, column / blocks);
    const std::int64_t begin = column % blocks * args.split;
    const std::int64_t end = begin + args.split < row.keys ? begin + args.split : row.keys;
    const float max = Row::max_across(row, Row::lane_max(row, begin, end, splat_f32(-HUGE_VALF)));
    const float sum = Row::sum_of(row, begin, end, splat_f32(max == -HUGE_VALF ? 0.0F : max));
    store_f32_scalar(args.max, row.token, column, max);
    store_f32_scalar(args.sum, row.token, column, sum);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
