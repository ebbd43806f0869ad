/// Recurrent states in blocks of the KV pool: where they are, and what they start from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "engine_rig.h"
#include "instrument/engine/kv_pool.h"

namespace nanscope::testing {
namespace {

const char* const kStateText = "A storm rises over the sea.";

EngineConfig hybrid(const Knobs& changes = {}) {
  // Two blocks: the second request's state lies where the first one's keys were.
  Knobs knobs{{"model.recurrent_layers", "0"}, {"kv.blocks", "2"}, {"kv.block_size", "32"}};
  knobs.insert(knobs.end(), changes.begin(), changes.end());
  return tiny_config(knobs);
}

bool same_logits(const CollectProbe& a, std::int64_t request_a, const CollectProbe& b, std::int64_t request_b,
                 std::int64_t step) {
  return a.find(request_a, step, -1, "lm_head", "logits").bytes ==
         b.find(request_b, step, -1, "lm_head", "logits").bytes;
}

TEST(RecurrentState, StartsAtZeroUnlessItIsNotReset) {
  const std::vector<RequestSpec> twice{text_request(kStateText, 2), text_request(kStateText, 2)};
  const CollectProbe reset = collect(hybrid(), twice);
  EXPECT_TRUE(same_logits(reset, 0, reset, 1, 0));
  EXPECT_TRUE(same_logits(reset, 0, reset, 1, 1));
  const CollectProbe kept = collect(hybrid({{"kv.resume_state", "always"}}), twice);
  EXPECT_TRUE(same_logits(kept, 0, reset, 0, 0)) << "the pool begins with zeros";
  EXPECT_FALSE(same_logits(kept, 1, reset, 1, 0));
}

/// A gated delta net in the place of the recurrence: its state holds the inputs that convolutions see, too.
EngineConfig delta_hybrid(const Knobs& changes = {}) {
  Knobs knobs{{"model.norm", "rms_norm"},
              {"model.delta_key_heads", "1"},
              {"model.delta_value_heads", "2"},
              {"model.delta_key_dim", "4"},
              {"model.delta_value_dim", "6"}};
  knobs.insert(knobs.end(), changes.begin(), changes.end());
  return hybrid(knobs);
}

TEST(RecurrentState, OfADeltaNetStartsAtZeroUnlessItIsNotReset) {
  const std::vector<RequestSpec> twice{text_request(kStateText, 2), text_request(kStateText, 2)};
  const CollectProbe reset = collect(delta_hybrid(), twice);
  EXPECT_TRUE(same_logits(reset, 0, reset, 1, 0));
  EXPECT_TRUE(same_logits(reset, 0, reset, 1, 1));
  const CollectProbe kept = collect(delta_hybrid({{"kv.resume_state", "always"}}), twice);
  EXPECT_TRUE(same_logits(kept, 0, reset, 0, 0)) << "the pool begins with zeros";
  EXPECT_FALSE(same_logits(kept, 1, reset, 1, 0));
}

TEST(RecurrentState, OfADeltaNetHasToFitIntoABlock) {
  EngineConfig config = delta_hybrid({{"model.delta_value_dim", "64"}, {"model.delta_value_heads", "64"}});
  const auto device = kernels::make_device("cpu", 1).value();
  const Status large = set_knob(config, "kv.block_size", std::to_string(block_with_states(config)));
  ASSERT_TRUE(large) << large.error().message;
  EXPECT_TRUE(KvPool::create(config, *device, device->allocate(KvPool::bytes_needed(config), true).value()));
  ASSERT_TRUE(set_knob(config, "kv.block_size", std::to_string(block_with_states(config) - 16)));
  const auto small = KvPool::create(config, *device, device->allocate(KvPool::bytes_needed(config), true).value());
  ASSERT_FALSE(small);
  EXPECT_THAT(small.error().message, ::testing::HasSubstr("raise kv.block_size"));
}

TEST(RecurrentState, AnIndexOneTooSmallIsAnotherBlockWhenDecoding) {
  const std::vector<RequestSpec> one{text_request(kStateText, 2)};
  const CollectProbe own = collect(hybrid(), one);
  const CollectProbe before = collect(hybrid({{"kv.state_index", "minus_one"}}), one);
  EXPECT_TRUE(same_logits(own, 0, before, 0, 0)) << "the prefill is right";
  EXPECT_FALSE(same_logits(own, 0, before, 0, 1));
  const auto written = [](const CollectProbe& seen) {
    std::set<std::int64_t> blocks;
    for (const KvRow& row : seen.kv) {
      if (row.action == KvAction::written && row.writer == "recurrent_state") blocks.insert(row.block);
    }
    return blocks;
  };
  EXPECT_EQ(written(own), (std::set<std::int64_t>{1}));
  EXPECT_EQ(written(before), (std::set<std::int64_t>{0, 1}));
}

}  // namespace
}  // namespace nanscope::testing
