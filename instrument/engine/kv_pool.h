#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "core/result.h"
#include "instrument/engine/config.h"
#include "instrument/engine/scale_policies.h"
#include "instrument/kv_schemes/kv_scheme.h"
#include "kernels/device.h"
#include "kernels/tensor_view.h"

namespace nanscope {

/// Hands out block numbers, and counts who uses each. At first in ascending order, then freed ones, newest or oldest
/// first.
class BlockAllocator {
 public:
  BlockAllocator(std::int64_t blocks, BlockReuse reuse);

  /// Nothing when none is free.
  std::optional<std::int64_t> take();
  /// Takes this very block too, free or in use: it is free again when all who took it gave it back.
  void share(std::int64_t block);
  /// Gives back a request's blocks, in the order of its tokens. The last ones are reused first, so
  /// that a shared beginning survives longest. Returns those that are free now.
  std::vector<std::int64_t> give_back(std::span<const std::int64_t> blocks);
  std::int64_t free_blocks() const { return static_cast<std::int64_t>(free_.size()); }

 private:
  BlockReuse reuse_;
  std::vector<std::int64_t> users_;  ///< of each block
  std::deque<std::int64_t> free_;
};

/// Tokens of a block that the states of recurrent layers fit into, a multiple of 16; 0 without attention layers.
std::int64_t block_with_states(const EngineConfig& config);

/// The paged KV memory: for each attention layer K then V, block-major, slot-major, kv_heads *
/// head_dim (of V value_dim) values of kv.format, or of the layer's KvScheme. The state of recurrent layer i,
/// state_width() f32 values (of several ranks: its part), lives in region i modulo the number of regions, in the first
/// bytes of its block from the first address on that is a multiple of 4: regions begin at one, blocks of codes of 8
/// bits need not.
class KvPool {
 public:
  /// Bytes of memory() that a pool of this configuration needs.
  static std::size_t bytes_needed(const EngineConfig& config);
  /// `memory` holds what it held. Errors: a recurrent state does not fit into a block.
  static Result<KvPool> create(const EngineConfig& config, kernels::Device& device, kernels::Buffer memory);

  /// (blocks * block_size, kv_heads * channels of a head) of the attention layer with this rank among them.
  kernels::TensorView region(std::int64_t attention_rank, KvTarget target) const;
  /// (blocks * block_size, 1 or groups of a scheme's channels) f32, or not given when one scale reads all slots.
  kernels::TensorView slot_scales(std::int64_t attention_rank, KvTarget target) const;
  /// (blocks * block_size, groups of channels) f32, or not given where the scheme has no zero points.
  kernels::TensorView slot_zeros(std::int64_t attention_rank, KvTarget target) const;
  /// Rows as they are, of the region's shape in f32, or not given where the scheme keeps none.
  kernels::TensorView kept_rows(std::int64_t attention_rank, KvTarget target) const;
  /// (1, state_width()) f32 of the recurrent layer with this rank among them.
  kernels::TensorView state(std::int64_t recurrent_rank, std::int64_t block) const;
  /// Zeroes the block in all layers, and its slots' scales.
  Status scrub(std::int64_t block);

  std::uint64_t bytes() const;
  const kernels::Buffer& memory() const { return memory_; }

 private:
  /// One layer's K or V.
  struct Region {
    Format format = Format::f32;
    std::int64_t offset = 0;  ///< of its first block in the memory
    std::int64_t block_bytes = 0;
    std::int64_t channels = 0;
    kernels::Buffer scales, zeros, kept;
    std::int64_t scale_groups = 1;
    std::int64_t zero_groups = 0;
  };

  KvPool() = default;
  static std::vector<Region> regions_of(const EngineConfig& config);
  Status allocate_scales(const EngineConfig& config);
  const Region& region_of(std::int64_t attention_rank, KvTarget target) const;
  std::byte* block_data(const Region& region, std::int64_t block) const;
  std::int64_t slots() const { return blocks_ * block_size_; }

  kernels::Device* device_ = nullptr;
  kernels::Buffer memory_;
  kernels::Buffer zeros_;  ///< what a block is scrubbed with
  std::vector<Region> regions_;
  std::int64_t blocks_ = 0;
  std::int64_t block_size_ = 0;
  std::int64_t width_ = 0;
};

}  // namespace nanscope
