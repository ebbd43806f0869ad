#pragma once
/// Elements of a cache of codes, single or four side by side, for a GPU whose lanes have elements of their own.
#include "kernels/ops/kv_operand.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// What the groups of channels have for one of them; `none` where no view is given.
NANSCOPE_FN float of_channel(const TensorView& view, std::int64_t slot, std::int64_t channel, std::int64_t group,
                             float none) {
  if (!view.given()) return none;
  return load_f32_scalar(view, view.rows == 1 ? 0 : slot, group <= 0 ? 0 : channel / group);
}

/// As cached_row() has it.
NANSCOPE_FN float cached_value(const KvOperand& cache, std::int64_t position, std::int64_t channel) {
  const std::int64_t slot = read_index(cache.slots, position);
  if (slot < 0 || slot >= cache.pool.rows) return 0.0F;
  const float scale = of_channel(cache.slot_scales, slot, channel, cache.scale_group, cache.scale);
  const float zero = of_channel(cache.slot_zeros, slot, channel, cache.zero_group, 0.0F);
  std::uint32_t code = 0;
  switch (storage_size(cache.pool.format)) {
    case 4:
      code = load_scalar(element_ptr<const std::uint32_t>(cache.pool, slot, channel));
      break;
    case 2:
      code = load_scalar(element_ptr<const std::uint16_t>(cache.pool, slot, channel));
      break;
    default:
      code = load_scalar(element_ptr<const std::uint8_t>(cache.pool, slot, channel));
  }
  return canonical(dequantised(decode_lanes(cache.pool.format, code), KvRead::factors_of(cache.scale_use, scale), zero,
                               cache.slot_zeros.given(), cache.zero));
}

/// Whether four channels of a head of `width`, from a multiple of four on, are read as one: codes of 8 or 16 bits, and
/// one scale and zero point.
NANSCOPE_HOST bool has_code_quads(const KvOperand& cache, std::int64_t width) {
  const std::int64_t bytes = storage_size(cache.pool.format);
  const auto address = reinterpret_cast<std::uintptr_t>(cache.pool.data);
  const auto groups_fit = [](std::int64_t group) NANSCOPE_INLINE_LAMBDA { return group <= 0 || group % 4 == 0; };
  return bytes <= 2 && address % (4 * bytes) == 0 && cache.pool.stride % 4 == 0 && width % 4 == 0 &&
         groups_fit(cache.scale_group) && groups_fit(cache.zero_group);
}

/// Codes of four channels of a slot in x and y, its scale in z, its zero point in w.
NANSCOPE_FN float4 load_code_quad(const KvOperand& cache, std::int64_t slot, std::int64_t channel) {
  float4 quad = make_float4(0.0F, 0.0F, of_channel(cache.slot_scales, slot, channel, cache.scale_group, cache.scale),
                            of_channel(cache.slot_zeros, slot, channel, cache.zero_group, 0.0F));
  if (storage_size(cache.pool.format) == 2) {
    const auto codes = *reinterpret_cast<const float2*>(element_ptr<const std::uint16_t>(cache.pool, slot, channel));
    quad.x = codes.x;
    quad.y = codes.y;
  } else {
    quad.x = *reinterpret_cast<const float*>(element_ptr<const std::uint8_t>(cache.pool, slot, channel));
  }
  return quad;
}

/// As cached_value() has each.
NANSCOPE_FN float4 decode_code_quad(const KvOperand& cache, const float4& quad) {
  const bool halves = storage_size(cache.pool.format) == 2;
  const F32 factor = KvRead::factors_of(cache.scale_use, quad.z);
  float values[4];
  NANSCOPE_UNROLL for (int i = 0; i < 4; ++i) {
    const U32 word = raw_bits(halves && i >= 2 ? quad.y : quad.x);
    const U32 code = halves ? (word >> (16 * (i % 2))) & 0xffffU : (word >> (8 * i)) & 0xffU;
    values[i] = canonical(
        dequantised(decode_lanes(cache.pool.format, code), factor, quad.w, cache.slot_zeros.given(), cache.zero));
  }
  return make_float4(values[0], values[1], values[2], values[3]);
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
