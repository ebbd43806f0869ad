#pragma once
/// Rotary position embedding (Su et al. 2021), half-split pairing as in GPT-NeoX and Llama:
/// channel i of a head is rotated with channel i + d/2 by angle position * base^(-2i/d).
///
/// With a stretch the base is base * stretch^(d/(d-2)), as dynamic NTK scaling has it (transformers' rope_type
/// "dynamic"); a negative number has no such power, and all angles are NaN (vllm #52665).
///
/// With frequencies, channel i of a head turns by position * frequencies[i] and is paired with channel i + R/2; they
/// say what scaling of the angles a checkpoint wants (linear, llama3, YaRN, LongRoPE), and channels from R on are
/// copied: a partial rotation. An amplitude multiplies cosine and sine, one rounding each (YaRN's and LongRoPE's
/// attention factor).
///
/// The angle is computed in f64 from own exp/log (exp(-2i/d * log(base)) * position), its sine and cosine
/// are rounded to f32; the rotation is x1*cos - x2*sin and x2*cos + x1*sin with one rounding an
/// operation. inverse rotates by the negative angle, with the same amplitude: that is the gradient of the rotation, its
/// matrix transposed. May run in place. NaN and Inf stay in their pair (Inf * 0 at position 0 is NaN).
/// Traps: an f32 angle is wrong by 0.004 at position 100000; pairing neighbours (GPT-J) instead of halves
/// gives healthy-looking nonsense.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x, out (T, heads * D), D even, f32, f16 or bf16; row t stands at first_position + t. frequencies (1, R/2)
/// f32 in radians a position, R <= D, or not given: base and stretch make them, and R is D.
struct RopeArgs {
  TensorView x;
  TensorView out;
  TensorView frequencies;
  std::int64_t heads = 1;
  std::int64_t first_position = 0;
  double base = 10000.0;
  double stretch = 1.0;
  float amplitude = 1.0F;
  bool inverse = false;
};

inline Status check(const RopeArgs& args) {
  ArgsCheck check("rope");
  check.floats("x", args.x).floats("out", args.out).shape("x", args.x, args.out.rows, args.out.columns);
  check.that(args.heads > 0 && args.out.columns % (2 * args.heads) == 0, "heads of an even width");
  if (args.frequencies.given()) {
    check.format("frequencies", args.frequencies, {Format::f32});
    check.shape("frequencies", args.frequencies, 1, args.frequencies.columns);
    check.that(args.heads > 0 && 2 * args.frequencies.columns <= args.out.columns / args.heads,
               "frequencies of at most half a head's channels");
  }
  check.that(args.base > 0, "a base above 0");
  check.that(args.stretch == 1.0 || args.out.columns > 2 * args.heads, "heads wider than 2 when the base is stretched");
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/math/exp.h"
#include "kernels/math/log.h"
#include "kernels/math/sincos.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct Rope {
  using Args = RopeArgs;

  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns * 4; }

  NANSCOPE_LANE F64 log_base(const Args& args, std::int64_t width) {
    const F64 base = log(splat_f64(args.base));
    if (args.stretch == 1.0) return base;
    const double power = static_cast<double>(width) / static_cast<double>(width - 2);
    return base + splat_f64(power) * log(splat_f64(args.stretch));
  }

  /// Radians a position of pairs [first, first + 32).
  NANSCOPE_LANE F64 frequency(const Args& args, std::int64_t width, const F64& base, std::int64_t first) {
    if (args.frequencies.given()) return to_f64(load(args.frequencies, 0, first, 0.0F));
    const F64 pair = to_f64(splat_i32(static_cast<std::int32_t>(first)) + to_i32(lane_id()));
    return exp(-(pair + pair) / splat_f64(static_cast<double>(width)) * base);
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const std::int64_t width = args.out.columns / args.heads;
    const std::int64_t half = args.frequencies.given() ? args.frequencies.columns : width / 2;
    const F64 base = log_base(args, width);
    const F64 position = splat_f64(static_cast<double>(args.first_position + row));
    for (std::int64_t first = 0; first < half; first += kLanes) {
      const F64 angle = position * frequency(args, width, base, first);
      const F32 cosine = to_f32(cos(angle)) * splat_f32(args.amplitude);
      const F32 forward = to_f32(sin(angle)) * splat_f32(args.amplitude);
      const F32 sine = args.inverse ? -forward : forward;
      for (std::int64_t head = 0; head < args.heads; ++head) {
        const std::int64_t low = head * width + first;
        const F32 x1 = load_range(args.x, row, low, half - first, 0.0F);
        const F32 x2 = load_range(args.x, row, low + half, half - first, 0.0F);
        store_range(args.out, row, low, half - first, x1 * cosine - x2 * sine);
        store_range(args.out, row, low + half, half - first, x2 * cosine + x1 * sine);
      }
    }
    for (std::int64_t rest = 2 * half; rest < width; rest += kLanes) {
      for (std::int64_t head = 0; head < args.heads; ++head) {
        const F32 same = load_range(args.x, row, head * width + rest, width - rest, 0.0F);
        store_range(args.out, row, head * width + rest, width - rest, same);
      }
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
