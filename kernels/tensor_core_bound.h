#pragma once
#include <cstdint>
#include <span>

#include "core/numbers/format.h"

/// How far apart two devices' outputs of gemm_tensor_core (kernels/ops/gemm_tensor_core.h) may be: the bits of tensor
/// cores are the hardware's own, so that outputs of other kinds of devices are compared within a bound.
///
/// Taken for granted is what is published of all tensor cores since sm_80, and of the CPU's model: products are exact,
/// an instruction adds 16 of them to the accumulator at once or 8 and 8, each step cuts its products and the
/// accumulator off at 24 bits or more below the largest exponent E, and its sum to f32. Let S be the sum over k of
/// |x|+ |w|+, where |.|+ is the magnitude, but of what is not zero at least the least normal number of the format:
/// 2^E <= S of products, and of the accumulator c as long as |c| <= S. In a step of 8 that makes
///
///   9 numbers, each off by less than 2^(E - 24), and the sum by less than 2^-23 of itself: 11 * 2^-24 S,
///
/// and in two steps 22 * 2^-24 S; a step of 16 at once, 25 bits deep, makes 17 * 2^-25 S + 2^-23 S, which is less. With
/// d = 22 * 2^-24 and the error before counted in the accumulator, n = ceil(K / 16) instructions are off by at most
/// ((1 + d)^n - 1) S, and by n * 2^-148 where sums are subnormal. Both devices may be off by that. The bias and the
/// rounding to out's format add half a unit in the last place each, on both.
///
/// All this is of sums below 2^128. Where S, with its errors, reaches that, a sum on the way may be Inf on one device
/// and finite on another, which adds 16 at once what the other adds in two steps: 2^127 four times, the last two
/// negative and in the other half, is 0 at once and Inf in steps. Of such products an output that is not finite says
/// nothing, and anything is within beside it; two that are finite are held to the bound.
namespace nanscope::kernels {

/// The sum over k of |x|+ |w|+ of one output; x and weight are K values of `operand` (f16 or bf16). Products with NaN
/// or Inf are left out: of these all devices make the same.
double tensor_core_magnitude(Format operand, std::span<const float> x, std::span<const float> weight);

/// How far apart two outputs of format `out` may be that are `a` and `b`, finite, and made of `depth` products.
double tensor_core_bound(Format out, std::int64_t depth, double magnitude, float a, float b);

/// Whether they may both be what tensor cores make of the same: NaN is NaN on all; Inf is Inf of the same sign, or
/// beside it what reaches beyond the largest finite number by the bound; beside either is anything where a sum on the
/// way may overflow. `share`: the difference by the bound, 0 of equal bits and where one is not finite.
bool within_tensor_core_bound(Format out, std::int64_t depth, double magnitude, float a, float b, double& share);

}  // namespace nanscope::kernels
