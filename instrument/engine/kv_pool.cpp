#include "instrument/engine/kv_pool.h"

#include <fmt/format.h>

#include <algorithm>

namespace nanscope {
namespace {

using kernels::TensorView;

std::int64_t region_count(const ModelConfig& model) {
  return 2 * (model.layers - static_cast<std::int64_t>(model.recurrent_layers.size()));
}

std::int64_t block_bytes(const EngineConfig& config) {
  return config.kv.block_size * config.model.kv_heads * config.model.head_dim *
         static_cast<std::int64_t>(info(config.kv.format).storage_bytes());
}

constexpr std::int64_t kStateAlignment = 4;  ///< of f32, which GPUs read at multiples of their size alone

std::int64_t aligned(std::int64_t bytes) { return (bytes + kStateAlignment - 1) / kStateAlignment * kStateAlignment; }

std::int64_t region_bytes(const EngineConfig& config) { return aligned(config.kv.blocks * block_bytes(config)); }

}  // namespace

BlockAllocator::BlockAllocator(std::int64_t blocks, BlockReuse reuse)
    : reuse_(reuse), users_(static_cast<std::size_t>(blocks), 0) {
  for (std::int64_t block = 0; block < blocks; ++block) free_.push_back(block);
}

std::optional<std::int64_t> BlockAllocator::take() {
  if (free_.empty()) return std::nullopt;
  const std::int64_t block = free_.front();
  free_.pop_front();
  users_[static_cast<std::size_t>(block)] = 1;
  return block;
}

void BlockAllocator::share(std::int64_t block) {
  if (users_[static_cast<std::size_t>(block)]++ == 0) free_.erase(std::find(free_.begin(), free_.end(), block));
}

std::vector<std::int64_t> BlockAllocator::give_back(std::span<const std::int64_t> blocks) {
  std::vector<std::int64_t> freed;
  for (const std::int64_t block : blocks) {
    if (--users_[static_cast<std::size_t>(block)] == 0) freed.push_back(block);
  }
  if (reuse_ == BlockReuse::lifo) {
    for (const std::int64_t block : freed) free_.push_front(block);
  } else {
    free_.insert(free_.end(), freed.rbegin(), freed.rend());
  }
  return freed;
}

std::size_t KvPool::bytes_needed(const EngineConfig& config) {
  return static_cast<std::size_t>(region_count(config.model) * region_bytes(config));
}

Result<KvPool> KvPool::create(const EngineConfig& config, kernels::Device& device, kernels::Buffer memory) {
  KvPool pool;
  pool.device_ = &device;
  pool.memory_ = std::move(memory);
  pool.format_ = config.kv.format;
  pool.regions_ = region_count(config.model);
  pool.region_bytes_ = region_bytes(config);
  pool.blocks_ = config.kv.blocks;
  pool.block_size_ = config.kv.block_size;
  pool.channels_ = config.model.kv_heads * config.model.head_dim;
  pool.width_ = config.model.width / config.ranks.count;
  const auto state_bytes = 4 * pool.width_;
  if (!config.model.recurrent_layers.empty()) {
    const auto recurrent = static_cast<std::int64_t>(config.model.recurrent_layers.size());
    const std::int64_t states_in_a_block = (recurrent + pool.regions_ - 1) / pool.regions_;
    const std::int64_t skipped = block_bytes(config) % kStateAlignment == 0 ? 0 : kStateAlignment - 1;
    if (states_in_a_block * state_bytes + skipped > block_bytes(config)) {
      return fail(fmt::format("a recurrent state of {} bytes does not fit into a KV block of {}; raise kv.block_size",
                              states_in_a_block * state_bytes + skipped, block_bytes(config)));
    }
  }
  if (find_scale_policy(config.kv.policy)->per_slot) {
    const auto slots = static_cast<std::size_t>(pool.regions_ * pool.blocks_ * pool.block_size_);
    Result<kernels::Buffer> scales = device.allocate(slots * sizeof(float), true);
    if (!scales) return tl::unexpected(scales.error());
    pool.scales_ = *scales;
  }
  Result<kernels::Buffer> zeros = device.allocate(
      static_cast<std::size_t>(std::max<std::int64_t>(block_bytes(config), pool.block_size_ * 4)), true);
  if (!zeros) return tl::unexpected(zeros.error());
  pool.zeros_ = *zeros;
  return pool;
}

std::int64_t KvPool::block_offset(std::int64_t block) const {
  return block * block_size_ * channels_ * static_cast<std::int64_t>(info(format_).storage_bytes());
}

std::byte* KvPool::block_data(std::int64_t region, std::int64_t block) const {
  return static_cast<std::byte*>(memory_.data()) + region * region_bytes_ + block_offset(block);
}

TensorView KvPool::region(std::int64_t attention_rank, KvTarget target) const {
  const std::int64_t index = 2 * attention_rank + (target == KvTarget::v ? 1 : 0);
  return {block_data(index, 0), format_, blocks_ * block_size_, channels_, channels_};
}

TensorView KvPool::slot_scales(std::int64_t attention_rank, KvTarget target) const {
  if (scales_.data() == nullptr) return {};
  const std::int64_t index = 2 * attention_rank + (target == KvTarget::v ? 1 : 0);
  const std::int64_t slots = blocks_ * block_size_;
  return {static_cast<float*>(scales_.data()) + index * slots, Format::f32, slots, 1, 1};
}

TensorView KvPool::state(std::int64_t recurrent_rank, std::int64_t block) const {
  const std::int64_t region = recurrent_rank % regions_;
  std::byte* data = block_data(region, 0) + aligned(block_offset(block)) + recurrent_rank / regions_ * width_ * 4;
  return {data, Format::f32, 1, width_, width_};
}

Status KvPool::scrub(std::int64_t block) {
  const auto bytes = static_cast<std::size_t>(block_data(0, 1) - block_data(0, 0));
  for (std::int64_t region = 0; region < regions_; ++region) {
    if (Status status = device_->copy(block_data(region, block), zeros_.data(), bytes); !status) return status;
    if (scales_.data() == nullptr) continue;
    float* scales = static_cast<float*>(scales_.data()) + (region * blocks_ + block) * block_size_;
    const auto scale_bytes = static_cast<std::size_t>(block_size_) * sizeof(float);
    if (Status status = device_->copy(scales, zeros_.data(), scale_bytes); !status) return status;
  }
  return {};
}

}  // namespace nanscope
