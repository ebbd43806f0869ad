#pragma once
/// Matrix product by tensor cores, out[t, n] = sum_k x[t, k] * weight[n, k] (+ bias[n]): another kernel for gemm.h's
/// product, with bits of its own. x and weight are read in one format of 16 bits: f16 where both are f16, else bf16, to
/// which f32 (and f16 beside another format) is rounded first, to nearest even, beyond the largest to Inf.
///
/// Order contract: one accumulator in f32 an output, from +0; 16 of k at a time, ascending, one mma.sync.m16n8k16 each;
/// what lies behind the end of k is +0. Then one add for the bias and one rounding to out's format, as gemm's.
///
/// What one instruction does is not IEEE's and not NVIDIA's to tell: PTX says of it that products are exact and that
/// the rest is "at least single precision", in no order. The bits of gemm.h, one rounded fma after another, it cannot
/// give: it aligns 16 products and the accumulator and cuts off what lies below, once, with no rounding to nearest
/// anywhere. So on a GPU the bits are the hardware's own. On a CPU, and where PTX is executed without a GPU, they are
/// those of this model of a Hopper's (H100) instruction:
///
///   1. each product a * b is exact: significands of 8 (bf16) or 11 (f16) bits multiplied, exponents added. Subnormals
///      count, with the exponent of the least normal number;
///   2. E is the largest exponent among the products that are not zero and the accumulator, if that is not. A product's
///      is the sum of its operands' exponents, so that its significand is below 4;
///   3. each of these 17 numbers is cut off towards zero to a multiple of 2^(E - 25);
///   4. they are added, exactly; the sum is cut off towards zero to 24 significant bits, or to a multiple of
///      2^-149; from 2^128 on it is Inf. A sum that is zero is +0, one that is cut off to zero keeps its sign;
///   5. NaN where one of them is NaN, a product is 0 * Inf, or two are Inf of both signs; else Inf where one is.
///
/// Published are: exact products, alignment to the largest and truncation, of V100, T4 and A100 (Fasi, Higham, Mikaitis
/// and Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ CS 7:e330, 2021), of H100 that there are more bits
/// (Li et al., "FTTN", arXiv:2403.00232, 2024), and of Hopper the 16 products at once, the 25 bits, the exponent of a
/// product, truncation at the end and the NaN 0x7fffffff (Xie et al., "MMA-Sim", arXiv:2511.10909, 2025). That zeros
/// have no say in E, and the signs of zeros, are this model's. No hardware was measured by this project: what holds of
/// tensor cores whatever they are is the bound of kernels/tensor_core_bound.h.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (T, K), weight (N, K), bias (1, N) or not given, out (T, N); formats f32, f16 or bf16, each its own.
struct GemmTensorCoreArgs {
  TensorView x;
  TensorView weight;
  TensorView bias;
  TensorView out;
};

/// Products of one instruction.
inline constexpr std::int64_t kMmaDepth = 16;

/// What both operands are read in.
constexpr Format tensor_core_operand(Format x, Format weight) {
  return x == Format::f16 && weight == Format::f16 ? Format::f16 : Format::bf16;
}

inline Status check(const GemmTensorCoreArgs& args) {
  ArgsCheck check("gemm_tensor_core");
  check.floats("x", args.x).floats("out", args.out).floats("weight", args.weight);
  check.shape("x", args.x, args.out.rows, args.x.columns);
  check.shape("weight", args.weight, args.out.columns, args.x.columns);
  if (args.bias.given()) check.floats("bias", args.bias).shape("bias", args.bias, 1, args.out.columns);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#if defined(__CUDACC__)
#include "kernels/ops/gemm_tensor_core_gpu.h"
#else
#include "kernels/ops/op_helpers.h"
#include "kernels/warp/warp_cpu_mma.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct GemmTensorCore {
  using Args = GemmTensorCoreArgs;

  static constexpr std::int64_t kRows = 32;    ///< of a warp
  static constexpr std::int64_t kDepth = 128;  ///< of k that is taken apart at once

  /// Warp = some rows, and 32 columns.
  NANSCOPE_HOST std::int64_t warps(const Args& args) {
    return div_up(args.out.rows, kRows) * div_up(args.out.columns, kLanes);
  }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    const std::int64_t rows = args.out.rows < kRows ? args.out.rows : kRows;
    return rows * args.x.columns * kLanes;
  }

  /// 32 codes of a row from k on; 0 behind its end.
  NANSCOPE_LANE U32 codes(Format operand, const TensorView& view, std::int64_t row, std::int64_t k) {
    const std::int64_t left = view.columns - k;
    if (view.format == operand) return load_code_range(view, row, k, left);
    return encode_bits<Format::bf16>(raw_bits(load_range(view, row, k, left, 0.0F)), Overflow::overflow);
  }

  /// `depth` of k of 32 rows of the weight, from k on, as (depth, 32) codes. Lanes beyond N get 0.
  NANSCOPE_CALLED void turn_weights(const Args& args, Format operand, std::int64_t panel, std::int64_t k,
                                    std::int64_t depth, std::uint32_t* turned) {
    alignas(64) std::uint32_t row[kLanes];
    for (int n = 0; n < kLanes; ++n) {
      const std::int64_t column = panel * kLanes + n;
      for (std::int64_t i = 0; i < depth; i += kLanes) {
        const bool inside = column < args.out.columns;
        store_u32(row, inside ? codes(operand, args.weight, column, k + i) : splat_u32(0), kLanes);
        for (std::int64_t j = 0; j < kLanes && i + j < depth; ++j) turned[(i + j) * kLanes + n] = row[j];
      }
    }
  }

  template <Format Operand>
  NANSCOPE_CALLED void run_operand(const Args& args, std::int64_t warp) {
    const std::int64_t row_blocks = div_up(args.out.rows, kRows);
    const std::int64_t panel = warp / row_blocks;
    const std::int64_t first_row = warp % row_blocks * kRows;
    const std::int64_t rows = args.out.rows - first_row < kRows ? args.out.rows - first_row : kRows;
    const std::int64_t columns = args.out.columns - panel * kLanes;
    alignas(64) std::uint32_t turned[kDepth * kLanes];
    alignas(64) std::uint32_t row[kDepth];
    alignas(64) float sums[kRows * kLanes];
    MmaColumns<kDepth> weights;
    MmaRow<kDepth> x;
    for (std::int64_t r = 0; r < rows; ++r) store_raw_f32(sums + r * kLanes, splat_f32(0.0F), kLanes);
    for (std::int64_t k = 0; k < args.x.columns; k += kDepth) {
      const std::int64_t left = args.x.columns - k;
      const std::int64_t depth = left < kDepth ? div_up(left, kMmaDepth) * kMmaDepth : kDepth;
      turn_weights(args, Operand, panel, k, depth, turned);
      take_columns<Operand>(turned, depth, weights);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t i = 0; i < depth; i += kLanes) {
          store_u32(row + i, codes(Operand, args.x, first_row + r, k + i), kLanes);
        }
        take_row<Operand>(row, depth, x);
        F32 sum = load_f32(sums + r * kLanes, kLanes, 0.0F);
        for (std::int64_t i = 0; i < depth; i += kMmaDepth) sum = mma_step<Operand>(x, weights, i, sum);
        store_raw_f32(sums + r * kLanes, sum, kLanes);
      }
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      F32 sum = load_f32(sums + r * kLanes, kLanes, 0.0F);
      if (args.bias.given()) sum = sum + load_range(args.bias, 0, panel * kLanes, columns, 0.0F);
      store_range(args.out, first_row + r, panel * kLanes, columns, sum);
    }
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    if (tensor_core_operand(args.x.format, args.weight.format) == Format::f16) {
      return run_operand<Format::f16>(args, warp);
    }
    run_operand<Format::bf16>(args, warp);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
#endif
