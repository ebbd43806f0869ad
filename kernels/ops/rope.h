#pragma once
/// Rotary position embedding (Su et al. 2021), half-split pairing as in GPT-NeoX and Llama:
/// channel i of a head is rotated with channel i + d/2 by angle position * base^(-2i/d).
///
/// With a stretch the base is base * stretch^(d/(d-2)), as dynamic NTK scaling has it (transformers' rope_type
/// "dynamic"); a negative number has no such power, and all angles are NaN (vllm #52665).
///
/// With frequencies, channel i of a head turns by position * frequencies[i] and is paired with channel i + R/2; they
/// say what scaling of the angles a checkpoint wants (linear, llama3, YaRN, LongRoPE), and all other channels are
/// copied: a partial rotation. The rotated channels begin at `first_channel` of each head (0 in Phi-3, behind the
/// unrotated ones in DeepSeek-V2). An amplitude multiplies cosine and sine, one rounding each (YaRN's and LongRoPE's
/// attention factor).
///
/// With `neighbours` pair i is channels 2i and 2i + 1 (GPT-J, Cohere, DeepSeek), with the same angle and roundings.
///
/// The angle is computed in f64 from own exp/log (exp(-2i/d * log(base)) * position), its sine and cosine
/// are rounded to f32; the rotation is x1*cos - x2*sin and x2*cos + x1*sin with one rounding an
/// operation. inverse rotates by the negative angle, with the same amplitude: that is the gradient of the rotation, its
/// matrix transposed. May run in place. NaN and Inf stay in their pair (Inf * 0 at position 0 is NaN).
/// Traps: an f32 angle is wrong by 0.004 at position 100000; pairing neighbours instead of halves
/// gives healthy-looking nonsense.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x, out (T, heads * D), D even, f32, f16 or bf16; row t stands at first_position + t. frequencies (1, R/2)
/// f32 in radians a position, first_channel + R <= D, or not given: base and stretch make them, and R is D.
struct RopeArgs {
  TensorView x;
  TensorView out;
  TensorView frequencies;
  std::int64_t heads = 1;
  std::int64_t first_position = 0;
  std::int64_t first_channel = 0;  ///< of a head, that is rotated
  double base = 10000.0;
  double stretch = 1.0;
  float amplitude = 1.0F;
  bool inverse = false;
  bool neighbours = false;  ///< are a pair, not channels of two halves
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
  const std::int64_t rotated = args.frequencies.given() ? 2 * args.frequencies.columns
                               : args.heads > 0         ? args.out.columns / args.heads
                                                        : 0;
  check.that(args.first_channel >= 0 && args.heads > 0 && args.first_channel + rotated <= args.out.columns / args.heads,
             "a first channel that leaves room for what is rotated");
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

  /// What the rotation of 32 angles multiplies by.
  struct Turn {
    F32 cosine;
    F32 sine;
  };
  NANSCOPE_LANE Turn turn(const Args& args, const F64& angle) {
    const F32 cosine = to_f32(cos(angle)) * splat_f32(args.amplitude);
    const F32 forward = to_f32(sin(angle)) * splat_f32(args.amplitude);
    return {cosine, args.inverse ? -forward : forward};
  }

  NANSCOPE_LANE void run_halves(const Args& args, std::int64_t row, std::int64_t width, std::int64_t half) {
    const F64 base = log_base(args, width);
    const F64 position = splat_f64(static_cast<double>(args.first_position + row));
    for (std::int64_t first = 0; first < half; first += kLanes) {
      const Turn by = turn(args, position * frequency(args, width, base, first));
      for (std::int64_t head = 0; head < args.heads; ++head) {
        const std::int64_t low = head * width + args.first_channel + first;
        const F32 x1 = load_range(args.x, row, low, half - first, 0.0F);
        const F32 x2 = load_range(args.x, row, low + half, half - first, 0.0F);
        store_range(args.out, row, low, half - first, x1 * by.cosine - x2 * by.sine);
        store_range(args.out, row, low + half, half - first, x2 * by.cosine + x1 * by.sine);
      }
    }
  }

  /// A lane has one channel, and its partner's from the lane beside it.
  NANSCOPE_LANE void run_neighbours(const Args& args, std::int64_t row, std::int64_t width, std::int64_t half) {
    const F64 base = log_base(args, width);
    const F64 position = splat_f64(static_cast<double>(args.first_position + row));
    const Mask even = to_i32(lane_id() & splat_u32(1)) == splat_i32(0);
    for (std::int64_t first = 0; first < half; first += kLanes / 2) {
      const std::int64_t left = 2 * (half - first);
      const I32 pair = splat_i32(static_cast<std::int32_t>(first)) + to_i32(lane_id() >> 1);
      F64 radians = to_f64(pair);
      if (args.frequencies.given()) {
        radians = to_f64(gather_f32(static_cast<const float*>(args.frequencies.data), pair, lanes_below(left)));
      } else {
        radians = exp(-(radians + radians) / splat_f64(static_cast<double>(width)) * base);
      }
      const Turn by = turn(args, position * radians);
      for (std::int64_t head = 0; head < args.heads; ++head) {
        const std::int64_t low = head * width + args.first_channel + 2 * first;
        const F32 own = load_range(args.x, row, low, left, 0.0F);
        const F32 other = xor_lane(own, 1);
        store_range(args.out, row, low, left,
                    select(even, own * by.cosine - other * by.sine, own * by.cosine + other * by.sine));
      }
    }
  }

  /// Channels [from, to) of each head as they are.
  NANSCOPE_LANE void copy(const Args& args, std::int64_t row, std::int64_t width, std::int64_t from, std::int64_t to) {
    for (std::int64_t first = from; first < to; first += kLanes) {
      for (std::int64_t head = 0; head < args.heads; ++head) {
        const F32 same = load_range(args.x, row, head * width + first, to - first, 0.0F);
        store_range(args.out, row, head * width + first, to - first, same);
      }
    }
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const std::int64_t width = args.out.columns / args.heads;
    const std::int64_t half = args.frequencies.given() ? args.frequencies.columns : width / 2;
    if (args.neighbours) {
      run_neighbours(args, row, width, half);
    } else {
      run_halves(args, row, width, half);
    }
    copy(args, row, width, 0, args.first_channel);
    copy(args, row, width, args.first_channel + 2 * half, width);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
