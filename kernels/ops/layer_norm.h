#pragma once
/// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019) in the forms that production
/// kernels use, fragile ones included: the variance of equal values is where "E[x^2]-E[x]^2" fails.
///
/// y = ((x - mean) * (1 / sqrt(variance + eps))) * weight + bias, each operation one f32 rounding (the
/// inverse two: sqrt, then division). weight and bias are left out where not given.
/// Order of every sum: SumOrder, in kernels/ops/row_sums.h. mean and E[x^2] are sum / n, or sum * (1/n).
/// NaN or Inf in a group makes the whole group NaN (canonical), and no other. A variance + eps below 0
/// makes it NaN too: that is the point. clamp replaces a negative variance by 0 and lets NaN through.
/// Traps: n copies of 11.2f have variance -3.448e-3 (n = 1024, sequential), 0 (pairwise) or -9.155e-7
/// (contracted): the same formula, three fates. two_pass and welford are never negative.
/// E[x^2] overflows f32 from |x| = 1.8e19 on.
#include "kernels/check.h"
#include "kernels/choices.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

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
  bool contract = false;            ///< one_pass: fma(-mean, mean, E2), as nvcc fuses it by default
  bool clamp = false;               ///< max(variance, 0) before eps
  bool mean_by_reciprocal = false;  ///< sum * (1/n) instead of sum / n
  float eps = 1e-5F;
};

inline Status check(const LayerNormArgs& args) {
  ArgsCheck check("layer_norm");
  check.floats("x", args.x).floats("out", args.out).shape("x", args.x, args.out.rows, args.out.columns);
  const bool grouped = args.groups > 0 && args.out.columns > 0 && args.out.columns % args.groups == 0;
  check.that(grouped, "columns to be a multiple of groups, and at least one column");
  if (!grouped) return check.done();
  const std::int64_t width = args.out.columns / args.groups;
  if (args.weight.given()) check.floats("weight", args.weight).shape("weight", args.weight, 1, width);
  if (args.bias.given()) check.floats("bias", args.bias).shape("bias", args.bias, 1, width);
  if (args.stats.given()) {
    check.format("stats", args.stats, {Format::f32}).shape("stats", args.stats, args.out.rows, args.groups * 3);
  }
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"
#include "kernels/ops/row_sums.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct LayerNorm {
  using Args = LayerNormArgs;

  /// Warp = one group of one row.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows * args.groups; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    return args.out.columns / args.groups * (args.order == SumOrder::warp ? 4 : 16);
  }

  struct Moments {
    float mean;
    float variance;
  };

  NANSCOPE_LANE float divide(const Args& args, float total, float n) {
    return args.mean_by_reciprocal ? total * (1.0F / n) : total / n;
  }

  NANSCOPE_LANE Moments one_pass(const Args& args, const RowPart& x, float n) {
    const auto square = [](const F32& v) NANSCOPE_INLINE_LAMBDA { return v * v; };
    const float mean = divide(args, row_sum(x, args.order, [](const F32& v) NANSCOPE_INLINE_LAMBDA { return v; }), n);
    const float mean_of_squares = divide(args, row_sum(x, args.order, square), n);
    if (args.contract) return {mean, fma_uniform(-mean, mean, mean_of_squares)};
    return {mean, mean_of_squares - mean * mean};
  }

  NANSCOPE_LANE Moments two_pass(const Args& args, const RowPart& x, float n) {
    const float mean = divide(args, row_sum(x, args.order, [](const F32& v) NANSCOPE_INLINE_LAMBDA { return v; }), n);
    const auto square = [&](const F32& v)
                            NANSCOPE_INLINE_LAMBDA { return (v - splat_f32(mean)) * (v - splat_f32(mean)); };
    return {mean, divide(args, row_sum(x, args.order, square), n)};
  }

  NANSCOPE_LANE Moments moments(const Args& args, const RowPart& x) {
    const float n = static_cast<float>(x.count);
    if (args.kind == NormKind::rms_norm) {
      return {0.0F, divide(args, row_sum(x, args.order, [](const F32& v) NANSCOPE_INLINE_LAMBDA { return v * v; }), n)};
    }
    switch (args.variance) {
      case VarianceForm::one_pass:
        return one_pass(args, x, n);
      case VarianceForm::two_pass:
        return two_pass(args, x, n);
      case VarianceForm::welford:
        break;
    }
    const Running total = row_welford(x, args.order);
    return {total.mean, divide(args, total.m2, n)};
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t row = warp / args.groups;
    const std::int64_t group = warp % args.groups;
    const std::int64_t width = args.out.columns / args.groups;
    const RowPart x{args.x, row, group * width, width};
    const Moments found = moments(args, x);
    // A NaN variance passes the clamp, as torch.clamp lets it.
    const float variance = args.clamp && found.variance < 0.0F ? 0.0F : found.variance;
    const float inverse = 1.0F / sqrt_uniform(variance + args.eps);
    for (std::int64_t i = 0; i < width; i += kLanes) {
      F32 y = (load_part(x, i, 0.0F) - splat_f32(found.mean)) * splat_f32(inverse);
      if (args.weight.given()) y = y * load_range(args.weight, 0, i, width - i, 0.0F);
      if (args.bias.given()) y = y + load_range(args.bias, 0, i, width - i, 0.0F);
      store_range(args.out, row, group * width + i, width - i, y);
    }
    if (!args.stats.given()) return;
    const F32 lane0 = splat_f32(found.mean);
    const F32 lane1 = select(lanes_below(1), lane0, splat_f32(found.variance));
    store_range(args.stats, row, group * 3, 3, select(lanes_below(2), lane1, splat_f32(inverse)));
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
