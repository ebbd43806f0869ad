#pragma once
/// KV store: quantises the new rows of K or V into their slots of the paged pool.
/// code = encode(format, x / scale); the division is correctly rounded f32.
///
/// NaN, Inf, -0: as cast. With `clamp` the quotient is fmax(-clamp, fmin(quotient, clamp)) first, as many kernels
/// write it: both functions pass over a NaN, which becomes +clamp, a number like any other (tilelang #3024).
///
/// Groups of channels may have scales of their own, and zero points: code = encode(x / scale + zero), or of
/// ZeroPoint::value encode((x - zero) / scale), one rounding an operation; `multiply`: the scales are what x is
/// multiplied by. Integers between `low` and `high` are rounded as `rounding` says; NaN has the code 0, and where
/// zero points are of codes the lowest.
/// Rows of one launch must name different slots: warps run in any order.
/// Traps: with a scale locked on an earlier, narrower range, everything beyond 448 * scale becomes the
/// one value 448 * scale, and equal values are what a one-pass variance cannot stand; a scale of 0 (an
/// all-zero calibration) makes NaN of zeros; a NaN scale makes NaN of everything.
#include "kernels/check.h"
#include "kernels/ops/kv_groups.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (T, C) with C = kv_heads * head_dim; pool: bytes of one layer's K or V, block-major:
/// slot s of block b starts at element (b * block_size + s) * C; slots (T, 1) i32: block * block_size + slot,
/// -1 is not written; scales (T, G) f32 of each row's scales (per token policies) or (1, G) for all rows, G = C /
/// scale_group rounded up; kept, of the same shape, or not given: what the slots are read with, where it differs;
/// zeros (T or 1, C / zero_group rounded up) f32 or not given; slot_scales and slot_zeros (blocks * block_size, as
/// many) f32 or not given: those each slot was written with, kept for reading; codes (T, C) in pool format or not
/// given: a copy of what was stored, for the recording.
struct KvStoreArgs {
  TensorView x;
  TensorView pool;
  TensorView slots;
  TensorView scales;
  TensorView slot_scales;
  TensorView codes;
  Overflow overflow = Overflow::saturate;
  float clamp = 0.0F;  ///< 0: not at all
  TensorView kept = {};
  TensorView zeros = {};
  TensorView slot_zeros = {};
  std::int64_t scale_group = 0;  ///< channels that share a scale; 0: all
  std::int64_t zero_group = 0;
  ZeroPoint zero = ZeroPoint::code;
  bool multiply = false;
  IntRounding rounding = IntRounding::even;
  std::int32_t low = 0;  ///< of integers; both 0: as the format has it
  std::int32_t high = 0;

  constexpr bool integers() const { return low != 0 || high != 0; }
  /// Whether it is x / scale alone, one scale a row.
  constexpr bool plain() const {
    return scale_group == 0 && !kept.given() && !zeros.given() && !multiply && !integers();
  }
};

inline Status check(const KvStoreArgs& args) {
  ArgsCheck check("kv_store");
  check.floats("x", args.x).given("pool", args.pool).that(args.x.columns > 0, "at least one channel");
  check.format("slots", args.slots, {Format::i32}).shape("slots", args.slots, args.x.rows, 1);
  const std::int64_t groups = group_count(args.x.columns, args.scale_group);
  const std::int64_t zero_groups = group_count(args.x.columns, args.zero_group);
  check_groups(check, "scales", args.scales, args.x.rows, groups);
  if (args.kept.given()) check.format("kept", args.kept, {Format::f32});
  check.that(!args.kept.given() || (args.kept.rows == args.scales.rows && args.kept.columns == groups),
             "as many scales kept as there are");
  check_groups(check, "zeros", args.zeros, args.x.rows, zero_groups);
  const auto slots = [&](std::string_view name, const TensorView& view, std::int64_t columns) {
    if (!view.given()) return;
    check.format(name, view, {Format::f32});
    check.that(args.x.columns <= 0 || view.rows >= args.pool.elements() / args.x.columns,
               "a scale for every slot of the pool");
    check.that(view.columns == columns, "a scale of every group for each slot");
  };
  slots("slot_scales", args.slot_scales, groups);
  slots("slot_zeros", args.slot_zeros, zero_groups);
  check.that(!args.integers() ||
                 (args.pool.format == Format::int8 && args.low >= -128 && args.high <= 127 && args.low < args.high),
             "integers between -128 and 127 in an int8 pool");
  if (args.codes.given()) {
    check.format("codes", args.codes, {args.pool.format}).shape("codes", args.codes, args.x.rows, args.x.columns);
  }
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct KvStore {
  using Args = KvStoreArgs;

  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.x.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.x.columns; }

  NANSCOPE_LANE void store_plain(const Args& args, std::int64_t row, std::int64_t slot, const TensorView& pool) {
    const float scale = read_scale(args.scales, row);
    for (std::int64_t column = 0; column < pool.columns; column += kLanes) {
      F32 scaled = load(args.x, row, column, 0.0F) / splat_f32(scale);
      if (args.clamp > 0.0F) {
        scaled = max_ignore(splat_f32(-args.clamp), min_ignore(scaled, splat_f32(args.clamp)));
      }
      const U32 code = encode_lanes(pool.format, scaled, args.overflow);
      store_code(pool, slot, column, code);
      if (args.codes.given()) store_code(args.codes, row, column, code);
    }
    if (args.slot_scales.given()) {
      store_uniform(static_cast<float*>(args.slot_scales.data) + slot * args.slot_scales.stride, scale);
    }
  }

  NANSCOPE_LANE U32 code_of(const Args& args, std::int64_t row, std::int64_t column, std::int64_t n) {
    F32 x = load_range(args.x, row, column, n, 0.0F);
    const F32 scale = of_groups(args.scales, row, column, n, args.scale_group, 1.0F);
    const F32 zero = of_groups(args.zeros, row, column, n, args.zero_group, 0.0F);
    if (args.zeros.given() && args.zero == ZeroPoint::value) x = x - zero;
    F32 scaled = args.multiply ? x * scale : x / scale;
    if (args.zeros.given() && args.zero == ZeroPoint::code) scaled = scaled + zero;
    if (args.clamp > 0.0F) {
      scaled = max_ignore(splat_f32(-args.clamp), min_ignore(scaled, splat_f32(args.clamp)));
    }
    if (args.integers()) {
      const bool counted_from_low = args.zeros.given() && args.zero == ZeroPoint::code;
      return integer_code(scaled, args.rounding, args.low, args.high, counted_from_low ? args.low : 0);
    }
    return encode_lanes(args.pool.format, scaled, args.overflow);
  }

  NANSCOPE_LANE void keep(const TensorView& to, std::int64_t slot, const TensorView& from, std::int64_t row,
                          float none) {
    if (!to.given()) return;
    for (std::int64_t column = 0; column < to.columns; column += kLanes) {
      store(to, slot, column, of_groups(from, row, column, to.columns - column, 1, none));
    }
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const std::int64_t channels = args.x.columns;
    const std::int64_t slot = read_index(args.slots, row);
    if (slot < 0 || slot >= args.pool.elements() / channels) return;
    const TensorView pool{args.pool.data, args.pool.format, slot + 1, channels, channels};
    if (args.plain()) return store_plain(args, row, slot, pool);
    for (std::int64_t column = 0; column < channels;) {
      std::int64_t n = run_of_group(column, channels, args.scale_group);
      if (args.zeros.given())
        n = n < run_of_group(column, channels, args.zero_group) ? n : run_of_group(column, channels, args.zero_group);
      const U32 code = code_of(args, row, column, n);
      store_code_range(pool, slot, column, n, code);
      if (args.codes.given()) store_code_range(args.codes, row, column, n, code);
      column += n;
    }
    keep(args.slot_scales, slot, args.kept.given() ? args.kept : args.scales, row, 1.0F);
    keep(args.slot_zeros, slot, args.zeros, row, 0.0F);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
