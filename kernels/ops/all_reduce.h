#pragma once
/// The sum over ranks: out[t] = sum_r parts[r * T + t].
///
/// Order: `rank`: ranks ascending, added in f32, one rounding to out's format, as kernels have it that read all peers
/// (vLLM's custom_all_reduce.cuh, one stage). `ring`: NCCL's Ring; the T x D elements are cut into one chunk a rank,
/// and the sum of chunk c begins at rank c + 1 and ends at rank c, rounded to the parts' format by every rank that it
/// passes (all_reduce.h, runRing). `tree`: NCCL's Tree; every rank adds its first child's sum to its own part, then its
/// second's, each rounded (trees.cc, ncclGetBtree). With `ring` the order depends on where an element lies among all T
/// rows: the bits of a row depend on how many there are. NaN, Inf: IEEE's.
/// Traps: f16 leaves its range between ranks though the sum may lie in it.
#include "kernels/check.h"
#include "kernels/choices.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

inline constexpr std::int64_t kMostRanks = 8;

/// Shapes: parts (R * T, D) with the rows of one rank together, R = ranks up to kMostRanks; out (T, D); formats f32,
/// f16 or bf16, each its own.
struct AllReduceArgs {
  TensorView parts;
  TensorView out;
  std::int64_t ranks = 1;
  AllReduceOrder order = AllReduceOrder::rank;
};

inline Status check(const AllReduceArgs& args) {
  ArgsCheck check("all_reduce");
  check.that(args.ranks >= 1 && args.ranks <= kMostRanks, "1 to 8 ranks");
  check.floats("out", args.out).floats("parts", args.parts);
  check.shape("parts", args.parts, args.ranks * args.out.rows, args.out.columns);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// Columns [first, first + count) of one row, at most 32 of them.
struct ReducedLanes {
  const AllReduceArgs& args;
  std::int64_t row;
  std::int64_t first;
  std::int64_t count;

  NANSCOPE_LANE F32 part(const ReducedLanes& at, std::int64_t rank) {
    return load_range(at.args.parts, rank * at.args.out.rows + at.row, at.first, at.count, 0.0F);
  }

  /// What one rank sends on: two numbers added, in the format of the parts.
  NANSCOPE_LANE F32 hop(const ReducedLanes& at, const F32& a, const F32& b) {
    const Format format = at.args.parts.format;
    return decode_lanes(format, encode_lanes(format, a + b, Overflow::overflow));
  }

  NANSCOPE_LANE F32 by_rank(const ReducedLanes& at) {
    F32 total = part(at, 0);
    for (std::int64_t rank = 1; rank < at.args.ranks; ++rank) total = total + part(at, rank);
    return total;
  }

  NANSCOPE_LANE F32 by_ring(const ReducedLanes& at, std::int64_t chunk) {
    F32 total = part(at, (chunk + 1) % at.args.ranks);
    for (std::int64_t i = 2; i <= at.args.ranks; ++i) total = hop(at, part(at, (chunk + i) % at.args.ranks), total);
    return total;
  }

  /// Ranks whose lowest bit is smaller are below: their sums are made first.
  NANSCOPE_LANE F32 by_tree(const ReducedLanes& at) {
    const std::int64_t ranks = at.args.ranks;
    F32 sums[kMostRanks];
    std::int64_t bit = 1;
    for (; bit < ranks; bit *= 2) {
      for (std::int64_t rank = bit; rank < ranks; rank += 2 * bit) {
        sums[rank] = part(at, rank);
        std::int64_t below = bit / 2;
        if (below == 0) continue;
        sums[rank] = hop(at, sums[rank], sums[rank - below]);
        while (below > 0 && rank + below >= ranks) below /= 2;
        if (below > 0) sums[rank] = hop(at, sums[rank], sums[rank + below]);
      }
    }
    const F32 root = part(at, 0);
    return ranks > 1 ? hop(at, root, sums[bit / 2]) : root;
  }
};

struct AllReduce {
  using Args = AllReduceArgs;

  /// Warp = one row.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns * args.ranks; }

  /// Elements of a chunk, a multiple of 16 bytes.
  NANSCOPE_HOST std::int64_t chunk_size(const Args& args) {
    const std::int64_t whole = 16 / storage_size(args.parts.format);
    return div_up(div_up(args.out.rows * args.out.columns, args.ranks), whole) * whole;
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const bool ring = args.order == AllReduceOrder::ring;
    const std::int64_t begin = row * args.out.columns;
    std::int64_t column = 0;
    while (column < args.out.columns) {
      const std::int64_t chunk = ring ? (begin + column) / chunk_size(args) : 0;
      const std::int64_t end = ring ? (chunk + 1) * chunk_size(args) - begin : args.out.columns;
      const std::int64_t left = (end < args.out.columns ? end : args.out.columns) - column;
      const ReducedLanes at{args, row, column, left < kLanes ? left : kLanes};
      const F32 total = ring                                 ? ReducedLanes::by_ring(at, chunk)
                        : args.order == AllReduceOrder::tree ? ReducedLanes::by_tree(at)
                                                             : ReducedLanes::by_rank(at);
      store_range(args.out, row, column, at.count, total);
      column += at.count;
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
