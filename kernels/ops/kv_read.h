#pragma once
/// KV read: gathers K or V of a context from the paged pool and dequantises: out = decode(code) * factor
/// in f32. What attention sees of the cache, stale slots included when the tail is read.
///
/// The factor is the scale, or by `scale_use` what a kernel made of it: 1, scale * scale, 1 / scale.
/// Rounding: one product; scale * scale and 1 / scale are rounded before it, once a row. NaN codes give the canonical
/// NaN, 0 * Inf (a bad scale) too; -0 stays. A block outside the pool reads nothing and gives rows of +0. Traps: a slot
/// that nobody wrote holds whatever lay there: read as e4m3, 1 byte in 128 is a NaN. A scale that differs from the one
/// a slot was written with rescales it silently. The pool may be given in another format of the same width than it was
/// written in: e4m3 read as e4m3fnuz halves every value, and makes NaN of -0.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// How often a reader applies the scale: right, dropped (vllm PR #42580), folded in twice (vllm #39407; the
/// product of two scales is one factor, as in vllm-omni PR #5262), or its reciprocal.
enum class ScaleUse : std::uint8_t { once, none, twice, inverse };

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
  ScaleUse scale_use = ScaleUse::once;
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

  NANSCOPE_LANE float factor_of(ScaleUse use, float scale) {
    switch (use) {
      case ScaleUse::none:
        return 1.0F;
      case ScaleUse::twice:
        return scale * scale;
      case ScaleUse::inverse:
        return 1.0F / scale;
      default:
        return scale;
    }
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const std::int64_t channels = args.out.columns;
    const std::int64_t entry = row / args.block_size;
    const std::int64_t block = entry < args.blocks.rows ? read_index(args.blocks, entry) : -1;
    const std::int64_t slot = block * args.block_size + row % args.block_size;
    const bool known = block >= 0 && slot < args.pool.elements() / channels;
    const TensorView pool{args.pool.data, args.pool.format, slot + 1, channels, channels};
    const float scale = known && args.slot_scales.given() ? read_scale(args.slot_scales, slot) : args.scale;
    const float factor = factor_of(args.scale_use, scale);
    for (std::int64_t column = 0; column < channels; column += kLanes) {
      const F32 value = known ? load(pool, slot, column, 0.0F) * splat_f32(factor) : splat_f32(0.0F);
      store(args.out, row, column, value);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
