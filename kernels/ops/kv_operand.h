#pragma once
/// Keys or values of a context as attention reads them by itself, from the codes of the paged pool: the values, to the
/// bit, that kv_read would have put in between. What is kept apart in high precision is kv_read's alone.
#include "kernels/ops/kv_read.h"

namespace nanscope::kernels {

/// Shapes: pool (slots of the pool, C) codes; slots (S, 1) i32, side by side: the slot of each position, -1 for none,
/// which reads +0; scales and zero points as KvReadArgs has them.
struct KvOperand {
  TensorView pool = {};
  TensorView slots = {};
  TensorView slot_scales = {};
  TensorView slot_zeros = {};
  float scale = 1.0F;
  ScaleUse scale_use = ScaleUse::once;
  std::int64_t scale_group = 0;
  std::int64_t zero_group = 0;
  ZeroPoint zero = ZeroPoint::code;

  constexpr bool given() const { return pool.given(); }
};

/// Whether 32 channels of a head of `width`, from a multiple of 32 of its own on, lie in one group of channels or in
/// groups of one.
constexpr bool group_fits_head(std::int64_t group, std::int64_t width) {
  return group <= 1 || group % width == 0 || (group % 32 == 0 && width % 32 == 0);
}

inline void check_operand(ArgsCheck& check, const KvOperand& cache, std::int64_t heads) {
  check.format("slots", cache.slots, {Format::i32});
  check.that(cache.slots.columns == 1 && cache.slots.stride == 1, "slots side by side");
  check.that(cache.pool.stride == cache.pool.columns && cache.pool.elements() < (std::int64_t{1} << 31),
             "a pool of less than 2^31 elements without gaps");
  const std::int64_t channels = cache.pool.columns;
  if (cache.slot_scales.given()) {
    check.format("slot_scales", cache.slot_scales, {Format::f32});
    check.shape("slot_scales", cache.slot_scales, cache.pool.rows, group_count(channels, cache.scale_group));
  }
  check.that(cache.scale_group == 0 || cache.slot_scales.given(), "scales of slots where groups have their own");
  if (cache.slot_zeros.given()) {
    check.format("slot_zeros", cache.slot_zeros, {Format::f32});
    check.shape("slot_zeros", cache.slot_zeros, cache.pool.rows, group_count(channels, cache.zero_group));
  }
  if (heads <= 0 || channels % heads != 0) return;
  check.that(
      group_fits_head(cache.scale_group, channels / heads) && group_fits_head(cache.zero_group, channels / heads),
      "groups of channels that a head's 32 lie in");
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
namespace nanscope::kernels::NANSCOPE_ISA {

/// Channels [column, column + n) of one position, n at most 32 and of one head.
NANSCOPE_FN F32 cached_row(const KvOperand& cache, std::int64_t position, std::int64_t column, std::int64_t n) {
  const std::int64_t slot = read_index(cache.slots, position);
  if (slot < 0 || slot >= cache.pool.rows) return splat_f32(0.0F);
  const F32 scale = of_groups(cache.slot_scales, slot, column, n, cache.scale_group, cache.scale);
  const F32 zero = of_groups(cache.slot_zeros, slot, column, n, cache.zero_group, 0.0F);
  return canonical(dequantised(load_range(cache.pool, slot, column, n, 0.0F),
                               KvRead::factors_of(cache.scale_use, scale), zero, cache.slot_zeros.given(), cache.zero));
}

/// 32 positions, of which one channel after another is read.
struct CachedKeys {
  const KvOperand& cache;
  I32 slot;
  Mask present;
  F32 factor;
  F32 zero;
  std::int64_t scale_at;  ///< the group whose factors are held, -1: none
  std::int64_t zero_at;
};

NANSCOPE_FN CachedKeys cached_keys(const KvOperand& cache, std::int64_t first, std::int64_t left) {
  const I32 slot = to_i32(load_code_range(cache.slots, first, 0, left < kLanes ? left : kLanes));
  const Mask in_pool = (slot >= splat_i32(0)) & (slot < splat_i32(static_cast<std::int32_t>(cache.pool.rows)));
  const Mask there = in_pool & lanes_below(left);
  return {cache, slot, there, splat_f32(1.0F), splat_f32(0.0F), -1, -1};
}

NANSCOPE_FN F32 of_group(const CachedKeys& keys, const TensorView& view, std::int64_t group) {
  const I32 offset = keys.slot * splat_i32(static_cast<std::int32_t>(view.stride));
  return gather_f32(static_cast<const float*>(view.data) + group, offset, keys.present);
}

NANSCOPE_FN U32 codes_of(const CachedKeys& keys, std::int64_t column) {
  const TensorView& pool = keys.cache.pool;
  const I32 offset = keys.slot * splat_i32(static_cast<std::int32_t>(pool.stride));
  switch (storage_size(pool.format)) {
    case 4:
      return gather_code(static_cast<const std::uint32_t*>(pool.data) + column, offset, keys.present);
    case 2:
      return gather_code(static_cast<const std::uint16_t*>(pool.data) + column, offset, keys.present);
    default:
      return gather_code(static_cast<const std::uint8_t*>(pool.data) + column, offset, keys.present);
  }
}

NANSCOPE_FN F32 channel_of(CachedKeys& keys, std::int64_t column) {
  const KvOperand& cache = keys.cache;
  const std::int64_t scale_group = cache.scale_group <= 0 ? 0 : column / cache.scale_group;
  if (scale_group != keys.scale_at) {
    const bool given = cache.slot_scales.given();
    keys.factor = KvRead::factors_of(cache.scale_use,
                                     given ? of_group(keys, cache.slot_scales, scale_group) : splat_f32(cache.scale));
    keys.scale_at = scale_group;
  }
  const std::int64_t zero_group = cache.zero_group <= 0 ? 0 : column / cache.zero_group;
  if (cache.slot_zeros.given() && zero_group != keys.zero_at) {
    keys.zero = of_group(keys, cache.slot_zeros, zero_group);
    keys.zero_at = zero_group;
  }
  const F32 code = decode_lanes(cache.pool.format, codes_of(keys, column));
  const F32 value = dequantised(code, keys.factor, keys.zero, cache.slot_zeros.given(), cache.zero);
  return select(keys.present, canonical(value), splat_f32(0.0F));
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
