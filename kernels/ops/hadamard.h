#pragma once
/// Hadamard rotation of each head's channels: out = H x / sqrt(D), H the Sylvester matrix of +-1, H[i][j] = -1 where i
/// and j have an odd number of bits in common (llama.cpp's rotated caches, vLLM's int4_per_token_head without its
/// random signs). Its own inverse; scores of rotated queries and keys are those of plain ones.
///
/// Order: out channel i is a chain over j = 0, 1, ... of its head, one rounding an addition; then one for the factor,
/// 1 / sqrt(D) rounded to f32, and one to out's format. NaN and Inf: one of a head makes NaN, or Inf, of the whole
/// head. May not run in place. Traps: a rotated key under a plain query is confident gibberish (llama.cpp #25382).
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x, out (T, heads * D), D a power of two; f32, f16 or bf16, each its own.
struct HadamardArgs {
  TensorView x;
  TensorView out;
  std::int64_t heads = 1;
};

inline Status check(const HadamardArgs& args) {
  ArgsCheck check("hadamard");
  check.floats("x", args.x).floats("out", args.out).shape("x", args.x, args.out.rows, args.out.columns);
  const std::int64_t width = args.heads > 0 ? args.out.columns / args.heads : 0;
  check.that(width > 0 && width * args.heads == args.out.columns && (width & (width - 1)) == 0,
             "heads whose width is a power of two");
  check.that(args.x.data != args.out.data, "out to be other memory than x");
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct Hadamard {
  using Args = HadamardArgs;

  /// Warp = one row.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    return args.out.columns * (args.out.columns / args.heads);
  }

  /// The sign bit of H[i][j] of lanes i.
  NANSCOPE_LANE U32 sign(const U32& i, std::uint32_t j) {
    U32 common = i & splat_u32(j);
    common = common ^ (common >> 16);
    common = common ^ (common >> 8);
    common = common ^ (common >> 4);
    common = common ^ (common >> 2);
    common = common ^ (common >> 1);
    return (common & splat_u32(1)) << 31;
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const std::int64_t width = args.out.columns / args.heads;
    const F32 factor = splat_f32(1.0F) / sqrt(splat_f32(static_cast<float>(width)));
    for (std::int64_t head = 0; head < args.heads; ++head) {
      for (std::int64_t first = 0; first < width; first += kLanes) {
        const U32 i = lane_id() + splat_u32(static_cast<std::uint32_t>(first));
        F32 chain = splat_f32(-0.0F);
        for (std::int64_t j = 0; j < width; ++j) {
          const F32 x = splat_f32(broadcast(load_range(args.x, row, head * width + j, 1, 0.0F), 0));
          chain = chain + from_bits(raw_bits(x) ^ sign(i, static_cast<std::uint32_t>(j)));
        }
        store_range(args.out, row, head * width + first, width - first, chain * factor);
      }
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
