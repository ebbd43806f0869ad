#pragma once
/// Products of rows with rows that are read once, where they lie: out[t, n] = sum_k x[t, k] * weight[n, k], and
/// squares[n] = sum_k weight[n, k]^2, by which the rounding of such a product is measured (Higham, Accuracy and
/// Stability of Numerical Algorithms, 2nd ed., 3.5). For checking a product against its operands: gemm.h, whose sums
/// have the order of the engine, wants packed weights.
///
/// Order contract: lane l adds products l, l + 32, ... from +0, one fma each, ascending; then the butterfly 16 8 4 2 1.
/// NaN and Inf go through.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (T, K) f32; weight (N, K) f32/f16/bf16; out (T, N) f32; squares (1, N) f32.
struct DotProductsArgs {
  TensorView x;
  TensorView weight;
  TensorView out;
  TensorView squares;
};

inline Status check(const DotProductsArgs& args) {
  ArgsCheck check("dot_products");
  check.format("x", args.x, {Format::f32}).floats("weight", args.weight);
  check.format("out", args.out, {Format::f32}).format("squares", args.squares, {Format::f32});
  check.shape("x", args.x, args.out.rows, args.x.columns);
  check.shape("weight", args.weight, args.out.columns, args.x.columns);
  check.shape("squares", args.squares, 1, args.out.columns);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// Rows of the weight by rows of x whose sums the registers hold at once; of those that one warp takes.
#if defined(__CUDACC__)
#define NANSCOPE_DOT_TILE NANSCOPE_FN
inline constexpr int kDotWeights = 2;
inline constexpr int kDotRows = 4;
inline constexpr std::int64_t kDotBlockWeights = 2;
inline constexpr std::int64_t kDotBlockRows = 4;
#else
// In one function with all formats and remainders g++ keeps the sums on the stack.
#define NANSCOPE_DOT_TILE NANSCOPE_CALLED
#if NANSCOPE_VECTOR_BYTES == 64
inline constexpr int kDotWeights = 3;
inline constexpr int kDotRows = 4;
#elif NANSCOPE_VECTOR_BYTES == 32
inline constexpr int kDotWeights = 1;
inline constexpr int kDotRows = 2;
#else
inline constexpr int kDotWeights = 1;
inline constexpr int kDotRows = 1;
#endif
inline constexpr std::int64_t kDotBlockWeights = 24;
inline constexpr std::int64_t kDotBlockRows = 32;
#endif
/// Elements of a row at a time: four rows of x stay in level 1 while the block's weights pass over them.
inline constexpr std::int64_t kDotDepth = 1024;

struct DotProducts {
  using Args = DotProductsArgs;

  NANSCOPE_HOST std::int64_t warps(const Args& args) {
    return div_up(args.out.rows, kDotBlockRows) * div_up(args.out.columns, kDotBlockWeights);
  }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    const std::int64_t rows = args.out.rows < kDotBlockRows ? args.out.rows : kDotBlockRows;
    return rows * args.x.columns * kDotBlockWeights / 8;  // an fma is cheaper than an element of other ops
  }

  /// Elements [k, last) of the rows of x from t and of the weight from n on, with the unfinished sums.
  struct Part {
    std::int64_t n;
    std::int64_t t;
    std::int64_t k;
    std::int64_t last;
    float* sums;  ///< of (n, t); kDotBlockRows * 32 floats further those of (n + 1, t)
  };

  template <Format F>
  NANSCOPE_FN const char* address(const TensorView& weight, std::int64_t n, std::int64_t k) {
    constexpr int kBytes = (kFormatTable[static_cast<std::size_t>(F)].bits + 7) / 8;
    return static_cast<const char*>(weight.data) + (n * weight.stride + k) * kBytes;
  }

  /// 32 weights that are all there: without a branch, or the sums would not stay in registers.
  template <Format F>
  NANSCOPE_FN F32 whole(const TensorView& weight, std::int64_t n, std::int64_t k) {
    const U32 codes = load_whole_codes<F>(weight, n, k);
    if constexpr (F == Format::f16) return decode_f16(codes);
    if constexpr (F == Format::bf16) return from_bits(codes << 16);
    return from_bits(codes);
  }

  /// `next`: what is multiplied after this comes from memory meanwhile.
  template <Format F, int Weights, int Rows>
  NANSCOPE_DOT_TILE void tile(const Args& args, const Part& part, const char* next) {
    constexpr int kBytes = (kFormatTable[static_cast<std::size_t>(F)].bits + 7) / 8;
    F32 total[Weights][Rows];
    NANSCOPE_UNROLL for (int w = 0; w < Weights; ++w) {
      NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) {
        total[w][r] = load_f32(part.sums + (w * kDotBlockRows + r) * kLanes, kLanes, 0.0F);
      }
    }
    std::int64_t k = part.k;
    for (; k + kLanes <= part.last; k += kLanes) {
      for (int line = 0; line < kLanes * kBytes; line += 64) prefetch(next + (k - part.k) * kBytes + line);
      F32 weights[Weights];
      NANSCOPE_UNROLL for (int w = 0; w < Weights; ++w) weights[w] = whole<F>(args.weight, part.n + w, k);
      NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) {
        const F32 x = load_f32(element_ptr<const float>(args.x, part.t + r, k), kLanes, 0.0F);
        NANSCOPE_UNROLL for (int w = 0; w < Weights; ++w) total[w][r] = fma(x, weights[w], total[w][r]);
      }
    }
    NANSCOPE_UNROLL for (int w = 0; w < Weights; ++w) {
      NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) {
        if (k < part.last) {
          const F32 x = load_range(args.x, part.t + r, k, part.last - k, 0.0F);
          total[w][r] = fma(x, load_range(args.weight, part.n + w, k, part.last - k, 0.0F), total[w][r]);
        }
        store_raw_f32(part.sums + (w * kDotBlockRows + r) * kLanes, total[w][r], kLanes);
      }
    }
  }

  template <Format F>
  NANSCOPE_FN void square(const Args& args, const Part& part) {
    F32 total = load_f32(part.sums, kLanes, 0.0F);
    std::int64_t k = part.k;
    for (; k + kLanes <= part.last; k += kLanes) {
      const F32 weight = whole<F>(args.weight, part.n, k);
      total = fma(weight, weight, total);
    }
    if (k < part.last) {
      const F32 weight = load_range(args.weight, part.n, k, part.last - k, 0.0F);
      total = fma(weight, weight, total);
    }
    store_raw_f32(part.sums, total, kLanes);
  }

  /// A block of rows of x by a block of rows of the weight.
  struct Block {
    std::int64_t first_row;
    std::int64_t rows;
    std::int64_t first_weight;
    std::int64_t weights;
  };

  template <Format F, int Rows>
  NANSCOPE_FN void weights_over(const Args& args, const Block& block, std::int64_t row, std::int64_t k, float* sums) {
    const std::int64_t end = k + kDotDepth < args.x.columns ? k + kDotDepth : args.x.columns;
    // The next elements of these rows, or the first of the next block's: one row of each tile's for each pass.
    const std::int64_t turn = row / kDotRows;
    const bool more = end < args.x.columns;
    const std::int64_t skipped = (more ? 0 : kDotBlockWeights) + (turn < kDotWeights ? turn : 0);
    std::int64_t w = 0;
    for (; w + kDotWeights <= block.weights; w += kDotWeights) {
      const std::int64_t n = block.first_weight + w;
      tile<F, kDotWeights, Rows>(args, {n, block.first_row + row, k, end, sums + (w * kDotBlockRows + row) * kLanes},
                                 address<F>(args.weight, n + skipped, more ? end : 0));
    }
    for (; w < block.weights; ++w) {
      const std::int64_t n = block.first_weight + w;
      tile<F, 1, Rows>(args, {n, block.first_row + row, k, end, sums + (w * kDotBlockRows + row) * kLanes},
                       address<F>(args.weight, n, k));
    }
  }

  template <Format F>
  NANSCOPE_FN void multiply(const Args& args, const Block& block) {
    alignas(64) float sums[kDotBlockWeights * kDotBlockRows * kLanes];
    alignas(64) float squares[kDotBlockWeights * kLanes];
    const F32 zero = splat_f32(0.0F);
    for (std::int64_t i = 0; i < kDotBlockWeights * kDotBlockRows; ++i) store_raw_f32(sums + i * kLanes, zero, kLanes);
    for (std::int64_t w = 0; w < kDotBlockWeights; ++w) store_raw_f32(squares + w * kLanes, zero, kLanes);
    for (std::int64_t k = 0; k < args.x.columns; k += kDotDepth) {
      const std::int64_t end = k + kDotDepth < args.x.columns ? k + kDotDepth : args.x.columns;
      for (std::int64_t w = 0; w < block.weights && block.first_row == 0; ++w) {
        square<F>(args, {block.first_weight + w, 0, k, end, squares + w * kLanes});
      }
      std::int64_t row = 0;
      for (; row + kDotRows <= block.rows; row += kDotRows) weights_over<F, kDotRows>(args, block, row, k, sums);
      for (; row < block.rows; ++row) weights_over<F, 1>(args, block, row, k, sums);
    }
    for (std::int64_t w = 0; w < block.weights; ++w) {
      const std::int64_t n = block.first_weight + w;
      for (std::int64_t row = 0; row < block.rows; ++row) {
        const F32 lanes = load_f32(sums + (w * kDotBlockRows + row) * kLanes, kLanes, 0.0F);
        store_range(args.out, block.first_row + row, n, 1, splat_f32(sum(lanes)));
      }
      if (block.first_row > 0) continue;
      store_range(args.squares, 0, n, 1, splat_f32(sum(load_f32(squares + w * kLanes, kLanes, 0.0F))));
    }
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t row_blocks = div_up(args.out.rows, kDotBlockRows);
    const std::int64_t first_row = warp % row_blocks * kDotBlockRows;
    const std::int64_t first_weight = warp / row_blocks * kDotBlockWeights;
    const std::int64_t rows = args.out.rows - first_row;
    const std::int64_t weights = args.out.columns - first_weight;
    const Block block{first_row, rows < kDotBlockRows ? rows : kDotBlockRows, first_weight,
                      weights < kDotBlockWeights ? weights : kDotBlockWeights};
    switch (args.weight.format) {
      case Format::f16:
        return multiply<Format::f16>(args, block);
      case Format::bf16:
        return multiply<Format::bf16>(args, block);
      default:
        return multiply<Format::f32>(args, block);
    }
  }
};
#undef NANSCOPE_DOT_TILE

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
