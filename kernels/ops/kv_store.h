#pragma once
/// KV store: quantises the new rows of K or V into their slots of the paged pool.
/// code = encode(format, x / scale); the division is correctly rounded f32.
///
/// NaN, Inf, -0: as cast. With `clamp` the quotient is fmax(-clamp, fmin(quotient, clamp)) first, as many kernels
/// write it: both functions pass over a NaN, which becomes +clamp, a number like any other (tilelang #3024).
/// Rows of one launch must name different slots: warps run in any order.
/// Traps: with a scale locked on an earlier, narrower range, everything beyond 448 * scale becomes the
/// one value 448 * scale, and equal values are what a one-pass variance cannot stand; a scale of 0 (an
/// all-zero calibration) makes NaN of zeros; a NaN scale makes NaN of everything.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (T, C) with C = kv_heads * head_dim; pool: bytes of one layer's K or V, block-major:
/// slot s of block b starts at element (b * block_size + s) * C; slots (T, 1) i32: block * block_size + slot,
/// -1 is not written; scales (T, 1) f32 of each row's scale (per token policies) or (1, 1) for all rows;
/// slot_scales (blocks * block_size, 1) f32 or not given: the scale each slot was written with, kept for reading;
/// codes (T, C) in pool format or not given: a copy of what was stored, for the recording.
struct KvStoreArgs {
  TensorView x;
  TensorView pool;
  TensorView slots;
  TensorView scales;
  TensorView slot_scales;
  TensorView codes;
  Overflow overflow = Overflow::saturate;
  float clamp = 0.0F;  ///< 0: not at all
};

inline Status check(const KvStoreArgs& args) {
  ArgsCheck check("kv_store");
  check.floats("x", args.x).given("pool", args.pool).that(args.x.columns > 0, "at least one channel");
  check.format("slots", args.slots, {Format::i32}).shape("slots", args.slots, args.x.rows, 1);
  if (args.scales.given()) {
    check.format("scales", args.scales, {Format::f32});
    check.shape("scales", args.scales, args.scales.rows == 1 ? 1 : args.x.rows, 1);
  }
  if (args.slot_scales.given()) {
    check.format("slot_scales", args.slot_scales, {Format::f32});
    check.that(args.x.columns <= 0 || args.slot_scales.rows >= args.pool.elements() / args.x.columns,
               "a scale for every slot of the pool");
  }
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

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const std::int64_t channels = args.x.columns;
    const std::int64_t slot = read_index(args.slots, row);
    if (slot < 0 || slot >= args.pool.elements() / channels) return;
    const float scale = read_scale(args.scales, row);
    const TensorView pool{args.pool.data, args.pool.format, slot + 1, channels, channels};
    for (std::int64_t column = 0; column < channels; column += kLanes) {
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
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
