#pragma once
/// KV read: gathers K or V of a context from the paged pool and dequantises: out = decode(code) * scale
/// in f32. What attention sees of the cache, stale slots included when the tail is read.
///
/// Rounding: one product. NaN codes give the canonical NaN, 0 * Inf (a bad scale) too; -0 stays.
/// A block outside the pool reads nothing and gives rows of +0.
/// Traps: a slot that nobody wrote holds whatever lay there: read as e4m3, 1 byte in 128 is a NaN. A
/// scale that differs from the one a slot was written with rescales it silently.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: pool as in kv_store; blocks (B, 1) i32: the request's block table; slot_scales as in kv_store, or
/// not given and `scale` is used for every slot; out (S, C) f32 with S = context rounded up to whole blocks
/// when the tail is read, else the context.
struct KvReadArgs {
  TensorView pool;
  TensorView blocks;
  TensorView slot_scales;
  TensorView out;
  std::int64_t block_size = 16;
  float scale = 1.0F;
};

inline Status check(const KvReadArgs& args) {
  ArgsCheck check("kv_read");
  check.given("pool", args.pool).floats("out", args.out).format("blocks", args.blocks, {Format::i32});
  check.that(args.block_size > 0, "a block_size of at least 1");
  check.that(args.out.columns > 0, "at least one channel");
  check.that(args.block_size <= 0 || args.out.rows <= args.blocks.rows * args.block_size,
             "no more rows than the block table covers");
  if (args.slot_scales.given()) check.format("slot_scales", args.slot_scales, {Format::f32});
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct KvRead {
  using Args = KvReadArgs;

  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const std::int64_t channels = args.out.columns;
    const std::int64_t entry = row / args.block_size;
    const std::int64_t block = entry < args.blocks.rows ? read_index(args.blocks, entry) : -1;
    const std::int64_t slot = block * args.block_size + row % args.block_size;
    const bool known = block >= 0 && slot < args.pool.elements() / channels;
    const TensorView pool{args.pool.data, args.pool.format, slot + 1, channels, channels};
    const float scale = known && args.slot_scales.given() ? read_scale(args.slot_scales, slot) : args.scale;
    for (std::int64_t column = 0; column < channels; column += kLanes) {
      const F32 value = known ? load(pool, slot, column, 0.0F) * splat_f32(scale) : splat_f32(0.0F);
      store(args.out, row, column, value);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
