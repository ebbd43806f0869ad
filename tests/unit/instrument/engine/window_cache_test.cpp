// Sliding windows whose cache is a ring of blocks, or gives back what is behind: the bits of a cache that keeps all.
#include "instrument/engine/window_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine_rig.h"

namespace nanscope {
namespace {

using testing::CollectProbe;
using testing::Knobs;
using testing::Seen;

Knobs windowed(const Knobs& more) {
  Knobs knobs{{"model.window", "9"}, {"kv.block_size", "4"}, {"kv.prefix_cache", "false"}};
  knobs.insert(knobs.end(), more.begin(), more.end());
  return knobs;
}

const std::vector<RequestSpec>& long_requests() {
  static const std::vector<RequestSpec> all{
      testing::text_request("the lamp turns above the water and nobody counts", 14),
      testing::text_request("another", 23)};
  return all;
}

/// What attention makes of the cache, and what is answered.
std::vector<const Seen*> results(const CollectProbe& probe) {
  std::vector<const Seen*> found;
  for (const Seen& seen : probe.tensors) {
    if (seen.op == "attn_mix" || seen.role == "logits") found.push_back(&seen);
  }
  return found;
}

void expect_same(Knobs knobs, const std::string& cache) {
  const CollectProbe all = testing::collect(testing::tiny_config(windowed(knobs)), long_requests());
  knobs.emplace_back("kv.window_cache", cache);
  const CollectProbe some = testing::collect(testing::tiny_config(windowed(knobs)), long_requests());
  const auto expected = results(all);
  const auto found = results(some);
  ASSERT_EQ(expected.size(), found.size());
  ASSERT_GT(expected.size(), 60U);
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(expected[i]->bytes, found[i]->bytes)
        << cache << ' ' << knobs[0].second << ' ' << found[i]->op << " of request " << found[i]->request << ", step "
        << found[i]->step;
  }
}

TEST(WindowCache, HasTheBitsOfACacheThatKeepsAll) {
  for (const std::string cache : {"ring", "rolling"}) {
    for (const std::string policy : {"unit_scale", "locked", "per_request", "per_token"}) {
      expect_same({{"kv.policy", policy}, {"kv.format", policy == "unit_scale" ? "f32" : "e4m3"}}, cache);
    }
    expect_same({{"kv.scheme", "vllm-int8-per-token-head"}}, cache);
    expect_same({{"kv.scheme", "running"}, {"attention.fused", "true"}}, cache);
    expect_same({{"attention.mask", "additive"}}, cache);
    expect_same({{"engine.batch", "2"}, {"engine.chunk", "6"}}, cache);
    expect_same({{"engine.batch", "2"}, {"engine.chunk", "5"}, {"kv.block_size", "2"}}, cache);
  }
}

/// A window of 9 and chunks of 6 are at most 14 positions: 4 blocks of 4, or 5 where they roll on.
TEST(WindowCache, NeedsNoMoreBlocksThanWindowAndChunkFill) {
  for (const auto& [cache, blocks] : {std::pair("ring", "4"), std::pair("rolling", "5"), std::pair("all", "5")}) {
    testing::Rig rig(testing::tiny_config(
        windowed({{"engine.batch", "2"}, {"engine.chunk", "6"}, {"kv.blocks", blocks}, {"kv.window_cache", cache}})));
    CollectProbe probe(*rig.device);
    EXPECT_EQ(rig.engine->run(std::span(long_requests()).first(1), probe).has_value(),
              std::string_view(cache) != "all");
  }
}

TEST(WindowCache, TheHistorySaysWhoHasWhichPosition) {
  const CollectProbe probe =
      testing::collect(testing::tiny_config(windowed({{"kv.window_cache", "ring"}})), {long_requests().back()});
  std::vector<std::int64_t> block_0;
  for (const KvRow& row : probe.kv) {
    if (row.block == probe.kv.front().block && row.action == KvAction::allocated) block_0.push_back(row.first_token);
  }
  EXPECT_THAT(block_0, ::testing::ElementsAre(0, 12, 24));
}

TEST(WindowCache, IsRefusedWhereALayerSeesAll) {
  EngineConfig config = testing::tiny_config({{"kv.window_cache", "ring"}});
  EXPECT_EQ(check(config).error().message,
            "kv.window_cache needs a model whose every layer has a window: model.window, without model.full_layers");
  config = testing::tiny_config(windowed({{"kv.window_cache", "rolling"}, {"kv.scheme", "kivi-2"}}));
  EXPECT_EQ(check(config).error().message, "kv.window_cache needs a kv.scheme that keeps no rows as they are");
}

}  // namespace
}  // namespace nanscope
