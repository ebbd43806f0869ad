#include "instrument/engine/kv_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "instrument/engine/scheme_book.h"

namespace nanscope {
namespace {

using kernels::TensorView;

constexpr std::int64_t kStateAlignment = 4;  ///< of f32, which GPUs read at multiples of their size alone

std::int64_t aligned(std::int64_t bytes) { return (bytes + kStateAlignment - 1) / kStateAlignment * kStateAlignment; }

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

std::int64_t block_with_states(const EngineConfig& config) {
  const auto recurrent = static_cast<std::int64_t>(config.model.recurrent_layers.size());
  const std::int64_t regions = 2 * (config.model.layers - recurrent);
  const std::int64_t channels =
      std::min(kv_channels(config.model, KvTarget::k), kv_channels(config.model, KvTarget::v));
  const std::int64_t token = channels * static_cast<std::int64_t>(info(config.kv.format).storage_bytes());
  if (regions <= 0 || token <= 0) return 0;
  const std::int64_t states = (recurrent + regions - 1) / regions * 4 * state_width(config.model) + kStateAlignment - 1;
  return (states + 16 * token - 1) / (16 * token) * 16;
}

std::vector<KvPool::Region> KvPool::regions_of(const EngineConfig& config) {
  std::vector<Region> regions;
  std::int64_t offset = 0;
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    if (is_recurrent(config.model, layer)) continue;
    const std::optional<KvSchemes> schemes = kv_schemes(config, layer);
    for (const KvTarget target : {KvTarget::k, KvTarget::v}) {
      Region region;
      region.format = schemes ? schemes->of(target).format : config.kv.format;
      region.offset = offset;
      region.channels = kv_channels(config.model, target);
      region.block_bytes =
          config.kv.block_size * region.channels * static_cast<std::int64_t>(info(region.format).storage_bytes());
      offset += aligned(config.kv.blocks * region.block_bytes);
      regions.push_back(std::move(region));
    }
  }
  return regions;
}

std::size_t KvPool::bytes_needed(const EngineConfig& config) {
  const Region last = regions_of(config).back();
  return static_cast<std::size_t>(last.offset + aligned(config.kv.blocks * last.block_bytes));
}

/// What slots keep besides codes.
Status KvPool::allocate_scales(const EngineConfig& config) {
  const bool per_slot = find_scale_policy(config.kv.policy)->per_slot;
  const auto allocate = [&](std::int64_t columns, kernels::Buffer& into) -> Status {
    if (columns == 0) return {};
    Result<kernels::Buffer> made = device_->allocate(static_cast<std::size_t>(slots() * columns) * sizeof(float), true);
    if (!made) return tl::unexpected(made.error());
    into = *made;
    return {};
  };
  std::size_t index = 0;
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    if (is_recurrent(config.model, layer)) continue;
    const std::optional<KvSchemes> schemes = kv_schemes(config, layer);
    for (const KvTarget target : {KvTarget::k, KvTarget::v}) {
      Region& region = regions_[index++];
      if (!schemes) {
        if (Status status = allocate(per_slot ? 1 : 0, region.scales); !status) return status;
        continue;
      }
      const SchemeGroups groups = groups_of(schemes->of(target), config.model, target);
      region.scale_groups = groups.scales;
      region.zero_groups = groups.zeros;
      if (Status status = allocate(groups.scales, region.scales); !status) return status;
      if (Status status = allocate(groups.zeros, region.zeros); !status) return status;
      if (Status status = allocate(keeps_rows(schemes->of(target)) ? region.channels : 0, region.kept); !status)
        return status;
    }
  }
  return {};
}

Result<KvPool> KvPool::create(const EngineConfig& config, kernels::Device& device, kernels::Buffer memory) {
  KvPool pool;
  pool.device_ = &device;
  pool.memory_ = std::move(memory);
  pool.regions_ = regions_of(config);
  pool.blocks_ = config.kv.blocks;
  pool.block_size_ = config.kv.block_size;
  pool.width_ = state_width(config.model) / config.ranks.count;
  const auto state_bytes = 4 * pool.width_;
  if (!config.model.recurrent_layers.empty()) {
    std::int64_t block_bytes = pool.regions_.front().block_bytes;
    for (const Region& region : pool.regions_) block_bytes = std::min(block_bytes, region.block_bytes);
    const auto recurrent = static_cast<std::int64_t>(config.model.recurrent_layers.size());
    const std::int64_t regions = std::ssize(pool.regions_);
    const std::int64_t states_in_a_block = (recurrent + regions - 1) / regions;
    const std::int64_t skipped = block_bytes % kStateAlignment == 0 ? 0 : kStateAlignment - 1;
    if (states_in_a_block * state_bytes + skipped > block_bytes) {
      return fail(fmt::format("a recurrent state of {} bytes does not fit into a KV block of {}; raise kv.block_size",
                              states_in_a_block * state_bytes + skipped, block_bytes));
    }
  }
  if (Status status = pool.allocate_scales(config); !status) return tl::unexpected(status.error());
  std::int64_t largest = 0;
  for (const Region& region : pool.regions_) {
    const std::int64_t floats =
        std::max({region.scale_groups, region.zero_groups, region.kept.data() == nullptr ? 0 : region.channels});
    largest = std::max({largest, region.block_bytes, 4 * pool.block_size_ * floats});
  }
  Result<kernels::Buffer> zeros = device.allocate(static_cast<std::size_t>(largest), true);
  if (!zeros) return tl::unexpected(zeros.error());
  pool.zeros_ = *zeros;
  return pool;
}

std::uint64_t KvPool::bytes() const {
  std::uint64_t bytes = memory_.bytes();
  for (const Region& region : regions_) bytes += region.scales.bytes() + region.zeros.bytes() + region.kept.bytes();
  return bytes;
}

const KvPool::Region& KvPool::region_of(std::int64_t attention_rank, KvTarget target) const {
  return regions_[static_cast<std::size_t>(2 * attention_rank + (target == KvTarget::v ? 1 : 0))];
}

std::byte* KvPool::block_data(const Region& region, std::int64_t block) const {
  return static_cast<std::byte*>(memory_.data()) + region.offset + block * region.block_bytes;
}

TensorView KvPool::region(std::int64_t attention_rank, KvTarget target) const {
  const Region& region = region_of(attention_rank, target);
  return {block_data(region, 0), region.format, slots(), region.channels, region.channels};
}

TensorView KvPool::slot_scales(std::int64_t attention_rank, KvTarget target) const {
  const Region& region = region_of(attention_rank, target);
  if (region.scales.data() == nullptr) return {};
  return {region.scales.data(), Format::f32, slots(), region.scale_groups, region.scale_groups};
}

TensorView KvPool::slot_zeros(std::int64_t attention_rank, KvTarget target) const {
  const Region& region = region_of(attention_rank, target);
  if (region.zeros.data() == nullptr) return {};
  return {region.zeros.data(), Format::f32, slots(), region.zero_groups, region.zero_groups};
}

TensorView KvPool::kept_rows(std::int64_t attention_rank, KvTarget target) const {
  const Region& region = region_of(attention_rank, target);
  if (region.kept.data() == nullptr) return {};
  return {region.kept.data(), Format::f32, slots(), region.channels, region.channels};
}

TensorView KvPool::state(std::int64_t recurrent_rank, std::int64_t block) const {
  const std::int64_t count = std::ssize(regions_);
  const Region& region = regions_[static_cast<std::size_t>(recurrent_rank % count)];
  std::byte* data = block_data(region, 0) + aligned(block * region.block_bytes) + recurrent_rank / count * width_ * 4;
  return {data, Format::f32, 1, width_, width_};
}

Status KvPool::scrub(std::int64_t block) {
  for (const Region& region : regions_) {
    const auto bytes = static_cast<std::size_t>(region.block_bytes);
    if (Status status = device_->copy(block_data(region, block), zeros_.data(), bytes); !status) return status;
    const auto clear = [&](const kernels::Buffer& floats, std::int64_t columns) -> Status {
      if (floats.data() == nullptr) return {};
      float* first = static_cast<float*>(floats.data()) + block * block_size_ * columns;
      return device_->copy(first, zeros_.data(), static_cast<std::size_t>(block_size_ * columns) * sizeof(float));
    };
    if (Status status = clear(region.scales, region.scale_groups); !status) return status;
    if (Status status = clear(region.zeros, region.zero_groups); !status) return status;
    if (Status status = clear(region.kept, region.channels); !status) return status;
  }
  return {};
}

}  // namespace nanscope
