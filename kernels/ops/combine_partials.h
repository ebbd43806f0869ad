#pragma once
/// Adds what blocks of keys gave of a mix (attention_mix.h with split): out[t, h * D + i] = sum over b of
/// partials[t, (h * blocks + b) * D + i], the second step of flash-decoding (Dao et al. 2023), whose blocks are here
/// under one maximum already.
///
/// Order: b ascending, from the first; one rounding to out's format. One block: the rounding alone.
/// NaN, Inf: IEEE's.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: partials (T, heads * blocks * D) f32, out (T, heads * D) f32, f16 or bf16.
struct CombinePartialsArgs {
  TensorView partials;
  TensorView out;
  std::int64_t heads = 1;
  std::int64_t blocks = 1;
};

inline Status check(const CombinePartialsArgs& args) {
  ArgsCheck check("combine_partials");
  check.floats("out", args.out).format("partials", args.partials, {Format::f32});
  check.that(args.heads > 0 && args.out.columns % args.heads == 0, "columns to be a multiple of heads");
  check.that(args.blocks > 0, "at least one block");
  check.shape("partials", args.partials, args.out.rows, args.out.columns * args.blocks);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct CombinePartials {
  using Args = CombinePartialsArgs;

  NANSCOPE_HOST std::int64_t width(const Args& args) { return args.out.columns / args.heads; }
  NANSCOPE_HOST std::int64_t channel_blocks(const Args& args) { return div_up(width(args), kLanes); }

  /// Warp = 32 channels of one head of a row.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows * args.heads * channel_blocks(args); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.blocks * kLanes; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t channel = warp % channel_blocks(args) * kLanes;
    const std::int64_t head = warp / channel_blocks(args) % args.heads;
    const std::int64_t token = warp / channel_blocks(args) / args.heads;
    const std::int64_t left = width(args) - channel;
    const std::int64_t first = head * args.blocks * width(args) + channel;
    F32 total = load_range(args.partials, token, first, left, 0.0F);
    for (std::int64_t block = 1; block < args.blocks; ++block) {
      total = total + load_range(args.partials, token, first + block * width(args), left, 0.0F);
    }
    store_range(args.out, token, head * width(args) + channel, left, total);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
