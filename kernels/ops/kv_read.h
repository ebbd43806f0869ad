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
///
/// Groups of channels may have scales of their own and zero points, as kv_store has them: one rounding an operation.
/// Rows at positions outside [coded_from, coded_end), and with outliers_beyond elements whose kept magnitude is larger
/// than that times the scale, are read from `kept_rows`, a second pool in high precision.
#include <limits>

#include "kernels/check.h"
#include "kernels/choices.h"
#include "kernels/ops/kv_groups.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: pool as in kv_store; blocks (B, 1) i32: the request's block table; slot_scales as in kv_store, or
/// not given and `scale` is used for every slot; out (S, C) f32 with S = context rounded up to whole blocks
/// when the tail is read, else the context. slot_scales (slots, G) and slot_zeros are those of kv_store; kept_rows has
/// the slots and channels of the pool, or is not given.
struct KvReadArgs {
  TensorView pool;
  TensorView blocks;
  TensorView slot_scales;
  TensorView out;
  std::int64_t block_size = 16;
  float scale = 1.0F;
  ScaleUse scale_use = ScaleUse::once;
  TensorView slot_zeros = {};
  TensorView kept_rows = {};
  std::int64_t scale_group = 0;  ///< channels that share a scale; 0: all
  std::int64_t zero_group = 0;
  ZeroPoint zero = ZeroPoint::code;
  std::int64_t coded_from = 0;
  std::int64_t coded_end = std::numeric_limits<std::int64_t>::max();
  float outliers_beyond = 0;  ///< 0: there are none

  constexpr bool plain() const { return scale_group == 0 && !slot_zeros.given() && !kept_rows.given(); }
};

inline Status check(const KvReadArgs& args) {
  ArgsCheck check("kv_read");
  check.given("pool", args.pool).floats("out", args.out).format("blocks", args.blocks, {Format::i32});
  check.that(args.block_size > 0, "a block_size of at least 1");
  check.that(args.out.columns > 0, "at least one channel");
  check.that(args.block_size <= 0 || args.out.rows <= args.blocks.rows * args.block_size,
             "no more rows than the block table covers");
  if (args.slot_scales.given()) {
    check.format("slot_scales", args.slot_scales, {Format::f32});
    check.that(args.slot_scales.columns == group_count(args.out.columns, args.scale_group),
               "a scale of every group for each slot");
  }
  check.that(args.scale_group == 0 || args.slot_scales.given(), "scales of slots where groups have their own");
  if (args.slot_zeros.given()) {
    check.format("slot_zeros", args.slot_zeros, {Format::f32});
    check.that(args.slot_zeros.columns == group_count(args.out.columns, args.zero_group),
               "a zero point of every group for each slot");
  }
  if (args.kept_rows.given()) {
    check.floats("kept_rows", args.kept_rows);
    check.that(args.kept_rows.elements() == args.pool.elements(), "as many kept rows as there are slots");
  }
  check.that(args.outliers_beyond == 0 || args.kept_rows.given(), "kept rows where there are outliers");
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

  NANSCOPE_LANE F32 factors_of(ScaleUse use, const F32& scale) {
    switch (use) {
      case ScaleUse::none:
        return splat_f32(1.0F);
      case ScaleUse::twice:
        return scale * scale;
      case ScaleUse::inverse:
        return splat_f32(1.0F) / scale;
      default:
        return scale;
    }
  }

  /// Channels [column, column + n) of a slot, which lie in one group of each kind.
  NANSCOPE_LANE F32 value_of(const Args& args, const TensorView& pool, std::int64_t slot, std::int64_t column,
                             std::int64_t n) {
    const F32 scale = of_groups(args.slot_scales, slot, column, n, args.scale_group, args.scale);
    const F32 factor = factors_of(args.scale_use, scale);
    const F32 zero = of_groups(args.slot_zeros, slot, column, n, args.zero_group, 0.0F);
    const F32 value =
        dequantised(load_range(pool, slot, column, n, 0.0F), factor, zero, args.slot_zeros.given(), args.zero);
    if (args.outliers_beyond == 0.0F) return value;
    const F32 kept = kept_of(args, slot, column, n);
    return select(abs(kept) > splat_f32(args.outliers_beyond) * scale, kept, value);
  }
  NANSCOPE_LANE F32 kept_of(const Args& args, std::int64_t slot, std::int64_t column, std::int64_t n) {
    const std::int64_t channels = args.out.columns;
    return load_range({args.kept_rows.data, args.kept_rows.format, slot + 1, channels, channels}, slot, column, n,
                      0.0F);
  }
  NANSCOPE_LANE void read_groups(const Args& args, const TensorView& pool, std::int64_t row, std::int64_t slot) {
    const std::int64_t channels = args.out.columns;
    const bool coded = !args.kept_rows.given() || (row >= args.coded_from && row < args.coded_end);
    for (std::int64_t column = 0; column < channels;) {
      const std::int64_t scales = run_of_group(column, channels, args.scale_group);
      const std::int64_t zeros = run_of_group(column, channels, args.zero_group);
      const std::int64_t n = scales < zeros ? scales : zeros;
      const F32 value = coded ? value_of(args, pool, slot, column, n) : kept_of(args, slot, column, n);
      store_range(args.out, row, column, n, value);
      column += n;
    }
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const std::int64_t channels = args.out.columns;
    const std::int64_t entry = row / args.block_size;
    const std::int64_t block = entry < args.blocks.rows ? read_index(args.blocks, entry) : -1;
    const std::int64_t slot = block * args.block_size + row % args.block_size;
    const bool known = block >= 0 && slot < args.pool.elements() / channels;
    const TensorView pool{args.pool.data, args.pool.format, slot + 1, channels, channels};
    if (known && !args.plain()) return read_groups(args, pool, row, slot);
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
