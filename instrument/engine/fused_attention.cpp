/// Attention that reads codes and scales of the cache by itself: the bits of kv_read before it, and no copy in f32.
#include "instrument/engine/forward.h"

namespace nanscope {

kernels::KvOperand Forward::cached(const LayerPlan& plan, KvTarget target, const RowGroup& group) const {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 31;
  if (!parts_.config.attention.fused || (target == KvTarget::k && stores_before_rope(plan))) return {};
  const kernels::KvReadArgs read = read_args(plan, target, group);
  const std::int64_t width = head_channels(parts_.config.model, target);
  const bool fits = kernels::group_fits_head(read.scale_group, width) &&
                    kernels::group_fits_head(read.zero_group, width) && read.pool.elements() < kMostElements;
  if (read.kept_rows.given() || !fits) return {};
  return {.pool = read.pool,
          .slots = key_slots_[group.index],
          .slot_scales = read.slot_scales,
          .slot_zeros = read.slot_zeros,
          .scale = read.scale,
          .scale_use = read.scale_use,
          .scale_group = read.scale_group,
          .zero_group = read.zero_group,
          .zero = read.zero};
}

/// The slot of each position that attention goes over, span by span.
void Forward::upload_key_slots() {
  if (!parts_.config.attention.fused) return;
  const std::int64_t block_size = parts_.config.kv.block_size;
  std::vector<std::int32_t> slots;
  for (const SpanInput& input : step_.spans) {
    const std::int64_t keys = keys_of_span(input);
    for (std::int64_t position = 0; position < keys; ++position) {
      const std::int64_t block = input.blocks[static_cast<std::size_t>(position / block_size)];
      slots.push_back(block < 0 ? -1 : static_cast<std::int32_t>(block * block_size + position % block_size));
    }
  }
  const kernels::TensorView all = upload_i32(Slot::key_slots, slots);
  std::int64_t first = 0;
  for (const SpanInput& input : step_.spans) {
    key_slots_.push_back(slice(all, first, keys_of_span(input)));
    first += keys_of_span(input);
  }
}

}  // namespace nanscope
