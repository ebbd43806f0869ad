#pragma once
/// Gradient of LayerNorm and RMSNorm for their weight and bias, summed over rows and groups:
///   weight_out[d] = sum of dout * h, h = (x - mean) * inverse (rms_norm: x * inverse);  bias_out[d] = sum of dout
/// with mean and inverse from stats as LayerNorm put them out (Ba et al. 2016; Zhang and Sennrich 2019).
///
/// Order: rows ascending, groups ascending in a row, from +0. Roundings: f32, two for h, one fused for each product and
/// sum, one a term of the bias; then one to the output's format.
/// NaN, Inf: IEEE's. One bad row is in the sum of every channel where h is bad: an inverse that is NaN spoils them all.
#include "kernels/check.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x, dout (T, groups * D); stats (T, groups * 3) f32: mean, variance (not read), inverse; weight_out (1, D),
/// bias_out (1, D) or not given. All but stats f32, f16 or bf16.
struct LayerNormWeightGradientArgs {
  TensorView x;
  TensorView stats;
  TensorView dout;
  TensorView weight_out;
  TensorView bias_out = {};
  std::int64_t groups = 1;
  NormKind kind = NormKind::layer_norm;
};

inline Status check(const LayerNormWeightGradientArgs& args) {
  ArgsCheck check("layer_norm_weight_gradient");
  check.floats("x", args.x).floats("dout", args.dout).floats("weight_out", args.weight_out);
  check.shape("dout", args.dout, args.x.rows, args.x.columns);
  const bool grouped = args.groups > 0 && args.x.columns > 0 && args.x.columns % args.groups == 0;
  check.that(grouped, "columns to be a multiple of groups, and at least one column");
  if (!grouped) return check.done();
  const std::int64_t width = args.x.columns / args.groups;
  check.shape("weight_out", args.weight_out, 1, width);
  if (args.bias_out.given()) check.floats("bias_out", args.bias_out).shape("bias_out", args.bias_out, 1, width);
  check.format("stats", args.stats, {Format::f32}).shape("stats", args.stats, args.x.rows, args.groups * 3);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct LayerNormWeightGradient {
  using Args = LayerNormWeightGradientArgs;

  /// Warp = 32 channels.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return div_up(args.weight_out.columns, kLanes); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.x.rows * args.groups * kLanes; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t channel = warp * kLanes;
    const std::int64_t width = args.weight_out.columns;
    const std::int64_t left = width - channel;
    F32 weight = splat_f32(0.0F);
    F32 bias = splat_f32(0.0F);
    for (std::int64_t row = 0; row < args.x.rows; ++row) {
      for (std::int64_t group = 0; group < args.groups; ++group) {
        const F32 x = load_range(args.x, row, group * width + channel, left, 0.0F);
        const F32 dout = load_range(args.dout, row, group * width + channel, left, 0.0F);
        const F32 inverse = splat_f32(load_f32_scalar(args.stats, row, group * 3 + 2));
        const F32 mean = splat_f32(load_f32_scalar(args.stats, row, group * 3));
        const F32 centred = args.kind == NormKind::rms_norm ? x : x - mean;
        weight = fma(dout, centred * inverse, weight);
        bias = bias + dout;
      }
    }
    store(args.weight_out, 0, channel, weight);
    if (args.bias_out.given()) store(args.bias_out, 0, channel, bias);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
