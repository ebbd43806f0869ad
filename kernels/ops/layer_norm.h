#pragma once
/// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019) in the forms that production
/// kernels use, fragile ones included: the variance of equal values is where "E[x^2]-E[x]^2" fails.
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

enum class NormKind : std::uint8_t { layer_norm, rms_norm };
/// one_pass: E[x^2] - E[x]^2. two_pass: E[(x - mean)^2]. welford: running mean and M2 (Welford 1962).
enum class VarianceForm : std::uint8_t { one_pass, two_pass, welford };
/// Order of the sums over a row. sequential: one accumulator, ascending. warp: 32 strided
/// accumulators, then the butterfly. pairwise: a balanced binary tree over the row (split at the
/// largest power of two below n), as a recursive pairwise sum.
enum class SumOrder : std::uint8_t { sequential, warp, pairwise };

/// Shapes: x, out (T, groups * D) normalised per group of D channels (groups = heads for QK norm);
/// weight, bias (1, D) or not given; stats (T, groups * 3) f32 or not given: mean, variance as
/// computed before clamp and eps, 1/sqrt(variance + eps) per group. For RMSNorm mean is 0 and
/// variance is E[x^2].
struct LayerNormArgs {
  TensorView x;
  TensorView weight;
  TensorView bias;
  TensorView out;
  TensorView stats;
  std::int64_t groups = 1;
  NormKind kind = NormKind::layer_norm;
  VarianceForm variance = VarianceForm::two_pass;
  SumOrder order = SumOrder::warp;
  bool contract = false;  ///< one_pass: fma(-mean, mean, E2), as nvcc fuses it by default
  bool clamp = false;     ///< max(variance, 0) before eps
  bool mean_by_reciprocal = false;  ///< sum * (1/n) instead of sum / n
  float eps = 1e-5F;
};

}  // namespace nanscope::kernels
