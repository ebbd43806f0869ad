#pragma once
/// Cast between formats: out = encode(out.format, decode(x) / scale), or decode(x) * scale when `dequantise`.
///
/// Roundings: the division or product is one correctly rounded f32, encode is one to nearest even (two in
/// all, as production kernels do). scale 1 changes nothing but canonicalises NaN.
/// NaN: any payload becomes the format's one NaN; formats without NaN launder it (core/numbers/codec.h).
/// Inf and beyond the largest finite: by `overflow`. -0 keeps its sign where the format has one.
/// Traps: dividing by a scale and multiplying by its reciprocal differ in the last bit and then in the
/// code; a scale of 0 makes 0/0 = NaN of every zero; a tiny scale makes Inf, clipped without a trace.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x, out (T, D), any formats.
struct CastArgs {
  TensorView x;
  TensorView out;
  float scale = 1.0F;
  bool dequantise = false;
  Overflow overflow = Overflow::saturate;
};

inline Status check(const CastArgs& args) {
  ArgsCheck check("cast");
  check.given("x", args.x).given("out", args.out).shape("x", args.x, args.out.rows, args.out.columns);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct Cast {
  using Args = CastArgs;

  /// Columns a warp converts: rows may be few and long.
  static constexpr std::int64_t kChunk = 4096;

  NANSCOPE_HOST std::int64_t chunks(const Args& args) { return div_up(args.x.columns, kChunk); }
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.x.rows * chunks(args); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    return args.x.columns < kChunk ? args.x.columns : kChunk;
  }

  /// f32 to one of the formats that caches and weights use: both codecs are constants of the loop.
  template <Format To>
  NANSCOPE_LANE void quantise(const Args& args, std::int64_t row, std::int64_t first, std::int64_t last) {
    const F32 scale = splat_f32(args.scale);
    for (std::int64_t column = first; column < last; column += kLanes) {
      const float* next = element_ptr<const float>(args.x, row, column);
      prefetch_ahead(next);
      prefetch_ahead(next + 16);
      const F32 x = load_f32(next, last - column, 0.0F);
      store_code_range(args.out, row, column, last - column, encode_bits<To>(raw_bits(x / scale), args.overflow));
    }
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t row = warp / chunks(args);
    const std::int64_t first = warp % chunks(args) * kChunk;
    const std::int64_t last = first + kChunk < args.x.columns ? first + kChunk : args.x.columns;
    if (args.x.format == Format::f32 && !args.dequantise) {
      if (args.out.format == Format::e4m3) return quantise<Format::e4m3>(args, row, first, last);
      if (args.out.format == Format::e5m2) return quantise<Format::e5m2>(args, row, first, last);
      if (args.out.format == Format::bf16) return quantise<Format::bf16>(args, row, first, last);
      if (args.out.format == Format::f16) return quantise<Format::f16>(args, row, first, last);
    }
    const F32 scale = splat_f32(args.scale);
    for (std::int64_t column = first; column < last; column += kLanes) {
      const F32 x = load(args.x, row, column, 0.0F);
      const F32 real = args.dequantise ? x * scale : x / scale;
      store_code(args.out, row, column, encode_lanes(args.out.format, real, args.overflow));
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
