#include "instrument/engine/kv_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "instrument/engine/prefix_cache.h"

namespace nanscope {
namespace {

TEST(BlockAllocator, HandsOutFreshBlocksInOrder) {
  BlockAllocator allocator(3, BlockReuse::lifo);
  EXPECT_EQ(allocator.take(), 0);
  EXPECT_EQ(allocator.take(), 1);
  EXPECT_EQ(allocator.take(), 2);
  EXPECT_EQ(allocator.take(), std::nullopt);
}

TEST(BlockAllocator, LifoReusesTheNewestLastBlockFirst) {
  BlockAllocator allocator(4, BlockReuse::lifo);
  const std::vector<std::int64_t> table{*allocator.take(), *allocator.take()};
  allocator.give_back(table);
  EXPECT_EQ(allocator.take(), 1);
  EXPECT_EQ(allocator.take(), 0);
  EXPECT_EQ(allocator.take(), 2);
}

TEST(BlockAllocator, FifoReusesFreedBlocksLast) {
  BlockAllocator allocator(4, BlockReuse::fifo);
  const std::vector<std::int64_t> table{*allocator.take(), *allocator.take()};
  allocator.give_back(table);
  EXPECT_EQ(allocator.take(), 2);
  EXPECT_EQ(allocator.take(), 3);
  EXPECT_EQ(allocator.take(), 1);
  EXPECT_EQ(allocator.take(), 0);
}

TEST(BlockAllocator, ASharedBlockIsFreeWhenAllGaveItBack) {
  BlockAllocator allocator(3, BlockReuse::lifo);
  allocator.share(1);
  allocator.share(1);
  EXPECT_EQ(allocator.free_blocks(), 2);
  EXPECT_EQ(allocator.take(), 0);
  EXPECT_EQ(allocator.take(), 2);
  const std::vector<std::int64_t> shared{1};
  EXPECT_TRUE(allocator.give_back(shared).empty());
  EXPECT_EQ(allocator.take(), std::nullopt);
  EXPECT_EQ(allocator.give_back(shared), shared);
  EXPECT_EQ(allocator.take(), 1);
}

TEST(PrefixCache, AHashDependsOnEveryTokenBeforeIt) {
  const std::vector<std::uint64_t> a{1, 2, 3, 4};
  const std::vector<std::uint64_t> b{1, 2, 3, 5};
  EXPECT_EQ(PrefixCache::chain(0, a), PrefixCache::chain(0, a));
  EXPECT_NE(PrefixCache::chain(0, a), PrefixCache::chain(0, b));
  EXPECT_NE(PrefixCache::chain(PrefixCache::chain(0, a), a), PrefixCache::chain(PrefixCache::chain(0, b), a));
}

TEST(PrefixCache, ForgetsABlockThatIsHandedOut) {
  PrefixCache cache;
  cache.insert(11, 3);
  cache.insert(11, 4);  // the older block stays
  cache.insert(12, 5);
  EXPECT_EQ(cache.find(11), 3);
  cache.forget(4);
  EXPECT_EQ(cache.find(11), 3);
  cache.forget(3);
  EXPECT_EQ(cache.find(11), std::nullopt);
  EXPECT_EQ(cache.find(12), 5);
}

class Pool : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.model.layers = 3;
    config_.model.recurrent_layers = {1};
    config_.model.width = 16;
    config_.model.kv_heads = 2;
    config_.model.head_dim = 8;
    config_.kv.format = Format::e4m3;
    config_.kv.policy = "per_token";
    config_.kv.block_size = 4;
    config_.kv.blocks = 3;
    device_ = kernels::make_cpu_device(kernels::Isa::baseline, 1).value();
  }
  Result<KvPool> make() {
    kernels::Buffer memory = device_->allocate(KvPool::bytes_needed(config_), false).value();
    std::memset(memory.data(), 0x5a, memory.bytes());
    return KvPool::create(config_, *device_, memory);
  }

  EngineConfig config_;
  std::unique_ptr<kernels::Device> device_;
};

TEST_F(Pool, RegionsLieSideBySide) {
  const KvPool pool = make().value();
  EXPECT_EQ(pool.memory().bytes(), 4U * 3 * 4 * 16);  // K and V of two attention layers, one byte a value
  std::set<const void*> starts;
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    for (const KvTarget target : {KvTarget::k, KvTarget::v}) {
      const kernels::TensorView region = pool.region(layer, target);
      EXPECT_EQ(region.rows, 12);
      EXPECT_EQ(region.columns, 16);
      const auto offset = static_cast<const std::byte*>(region.data) - static_cast<std::byte*>(pool.memory().data());
      EXPECT_EQ(offset, (2 * layer + (target == KvTarget::v ? 1 : 0)) * 12 * 16);
      EXPECT_TRUE(starts.insert(region.data).second);
      EXPECT_TRUE(starts.insert(pool.slot_scales(layer, target).data).second);
    }
  }
}

TEST_F(Pool, ARecurrentStateLivesInABlockOfTheSameMemory) {
  const KvPool pool = make().value();
  const kernels::TensorView state = pool.state(0, 2);
  EXPECT_EQ(state.columns, 16);
  EXPECT_EQ(static_cast<std::byte*>(state.data) - static_cast<std::byte*>(pool.memory().data()), 2 * 4 * 16);
  config_.kv.block_size = 2;  // 32 bytes a block, 64 a state
  const Result<KvPool> small = make();
  ASSERT_FALSE(small);
  EXPECT_NE(small.error().message.find("kv.block_size"), std::string::npos);
}

/// A GPU reads an f32 at multiples of 4 alone; a block of three slots of six codes of 8 bits is none.
TEST_F(Pool, ARecurrentStateIsAlignedInEveryBlock) {
  config_.model.kv_heads = 1;
  config_.model.head_dim = 6;
  config_.model.width = 3;
  config_.kv.block_size = 3;
  config_.kv.blocks = 5;
  config_.model.layers = 6;
  config_.model.recurrent_layers = {0, 2, 3, 4};
  const KvPool pool = make().value();
  const auto begin = reinterpret_cast<std::uintptr_t>(pool.memory().data());
  ASSERT_EQ(begin % 4, 0U);
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    for (std::int64_t block = 0; block < config_.kv.blocks; ++block) {
      const auto at = reinterpret_cast<std::uintptr_t>(pool.state(rank, block).data);
      EXPECT_EQ(at % 4, 0U) << "layer " << rank << " block " << block;
      // Within its own block, which the regions show.
      const kernels::TensorView region = pool.region(rank / 2, rank % 2 == 1 ? KvTarget::v : KvTarget::k);
      const auto own = reinterpret_cast<std::uintptr_t>(region.data) + static_cast<std::uintptr_t>(block * 3 * 6);
      EXPECT_GE(at, own);
      EXPECT_LE(at + 3 * 4, own + 3 * 6);
    }
  }
  EXPECT_GE(begin + pool.memory().bytes(),
            reinterpret_cast<std::uintptr_t>(pool.region(0, KvTarget::v).data) + 5 * 3 * 6);
}

TEST_F(Pool, ScrubZeroesOneBlockOfEveryRegionAndNothingElse) {
  KvPool pool = make().value();
  ASSERT_TRUE(pool.scrub(1));
  const auto* bytes = static_cast<const unsigned char*>(pool.memory().data());
  for (std::size_t i = 0; i < pool.memory().bytes(); ++i) {
    const bool in_block = i / 64 % 3 == 1;
    ASSERT_EQ(bytes[i], in_block ? 0 : 0x5a) << i;
  }
}

}  // namespace
}  // namespace nanscope
