#pragma once
/// Gradient of LayerNorm and RMSNorm for their input, by what LayerNorm put out as stats. With n channels,
/// h = (x - mean) * inverse and g = dout * weight (g = dout without a weight):
///   layer_norm  dx = inverse * ((g - sum(g) / n) - h * (sum(g h) / n))   (Ba et al. 2016, differentiated)
///   rms_norm    dx = inverse * (g - h * (sum(g h) / n)), h = x * inverse  (Zhang and Sennrich 2019)
/// It is that of the true variance, whichever form computed it and whether or not it was clamped: eps is in inverse.
///
/// Roundings: f32, one an operation as written, the products of sum(g h) fused with their sums. Order of both sums:
/// lane l adds channels l, l + 32, ... ascending from +0, then the butterfly 16 8 4 2 1. NaN or Inf in a group makes
/// the whole group NaN, and no other. An inverse that is NaN (variance + eps below 0) does too; one that is Inf (of
/// equal values without eps) makes h NaN.
#include "kernels/check.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x, dout, out (T, groups * D); weight (1, D) or not given, as LayerNorm had it (Gemma's 1 is in it); stats
/// (T, groups * 3) f32: mean, variance (not read), inverse. All but stats f32, f16 or bf16.
struct LayerNormGradientArgs {
  TensorView x;
  TensorView weight = {};
  TensorView stats;
  TensorView dout;
  TensorView out;
  std::int64_t groups = 1;
  NormKind kind = NormKind::layer_norm;
};

inline Status check(const LayerNormGradientArgs& args) {
  ArgsCheck check("layer_norm_gradient");
  check.floats("x", args.x).floats("dout", args.dout).floats("out", args.out);
  check.shape("x", args.x, args.out.rows, args.out.columns).shape("dout", args.dout, args.out.rows, args.out.columns);
  const bool grouped = args.groups > 0 && args.out.columns > 0 && args.out.columns % args.groups == 0;
  check.that(grouped, "columns to be a multiple of groups, and at least one column");
  if (!grouped) return check.done();
  if (args.weight.given()) {
    check.floats("weight", args.weight).shape("weight", args.weight, 1, args.out.columns / args.groups);
  }
  check.format("stats", args.stats, {Format::f32}).shape("stats", args.stats, args.out.rows, args.groups * 3);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct LayerNormGradient {
  using Args = LayerNormGradientArgs;

  /// Warp = one group of one row.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows * args.groups; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns / args.groups * 4; }

  /// One group of one row as every pass sees it.
  struct Group {
    const Args& args;
    std::int64_t row;
    std::int64_t first;  ///< column of channel 0
    std::int64_t width;
    F32 mean;
    F32 inverse;

    NANSCOPE_LANE F32 normalised(const Group& group, std::int64_t i) {
      const F32 x = load_range(group.args.x, group.row, group.first + i, group.width - i, 0.0F);
      if (group.args.kind == NormKind::rms_norm) return x * group.inverse;
      return (x - group.mean) * group.inverse;
    }
    NANSCOPE_LANE F32 weighted(const Group& group, std::int64_t i) {
      const F32 dout = load_range(group.args.dout, group.row, group.first + i, group.width - i, 0.0F);
      if (!group.args.weight.given()) return dout;
      return dout * load_range(group.args.weight, 0, i, group.width - i, 0.0F);
    }
  };

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t row = warp / args.groups;
    const std::int64_t at = warp % args.groups;
    const std::int64_t width = args.out.columns / args.groups;
    const Group group{args,
                      row,
                      at * width,
                      width,
                      splat_f32(load_f32_scalar(args.stats, row, at * 3)),
                      splat_f32(load_f32_scalar(args.stats, row, at * 3 + 2))};
    F32 plain = splat_f32(0.0F);
    F32 along = splat_f32(0.0F);
    for (std::int64_t i = 0; i < width; i += kLanes) {
      const Mask valid = lanes_below(width - i);
      const F32 g = Group::weighted(group, i);
      plain = plain + select(valid, g, splat_f32(-0.0F));
      along = select(valid, fma(g, Group::normalised(group, i), along), along);
    }
    const float n = static_cast<float>(width);
    const F32 mean_plain = splat_f32(args.kind == NormKind::rms_norm ? 0.0F : sum(plain) / n);
    const F32 mean_along = splat_f32(sum(along) / n);
    for (std::int64_t i = 0; i < width; i += kLanes) {
      const F32 centred = Group::weighted(group, i) - mean_plain;
      const F32 dx = group.inverse * (centred - Group::normalised(group, i) * mean_along);
      store_range(args.out, row, group.first + i, width - i, dx);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
