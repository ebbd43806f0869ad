#pragma once
/// Single elements of a cache of codes, for a GPU whose lanes have elements of their own.
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

}  // namespace nanscope::kernels::NANSCOPE_ISA
