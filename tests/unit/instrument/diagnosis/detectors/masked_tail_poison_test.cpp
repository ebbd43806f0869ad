#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "tests/unit/instrument/diagnosis/dump_graph.h"
#include "tests/unit/instrument/diagnosis/found.h"

namespace nanscope {
namespace {

using testing::classes;
using testing::constant;
using testing::diagnosis_of;
using testing::DumpGraph;
using ::testing::ElementsAre;
using testing::kNan;
using testing::number;
using testing::Pool;
using testing::root_of;
using testing::row_of;

/// Request 1 of a pool writes slots 0 and 1 of block 0, and mixes over `keys` keys: what is behind its end is whatever
/// `slot` holds.
Diagnosis mixed(std::int64_t slot, bool out_bad, std::int64_t keys = 8) {
  Pool pool(constant(1), constant(1), row_of(slot, kNan));
  DumpGraph& g = pool.g;
  const TensorId probs = g.op("softmax", OpKind::softmax, {},
                              {.role = "probs", .tokens = 2, .channels = keys, .fill = [](auto row, auto key) {
                                 return key <= row + 4 ? 1.0F / static_cast<float>(row + 5) : 0.0F;
                               }});
  g.op("attn_mix", OpKind::attention_mix, {{"probs", probs}, {"v", pool.second}},
       {.tokens = 2, .fill = constant(out_bad ? kNan : 1.0F)});
  return diagnosis_of(g, false);
}

TEST(MaskedTailPoison, NaNOfASlotBehindTheEndTimesZero) {
  const Diagnosis found = mixed(3, true);  // block 0, slot 3: nobody wrote it
  ASSERT_THAT(classes(found), ElementsAre("masked-tail-poison"));
  EXPECT_EQ(found.faults[0].tensor, "p2.kv_store.k_cache");
  EXPECT_EQ(found.spread.first_bad_tensor, "p2.attn_mix");  // what a slot of nobody holds is nobody's harm
  EXPECT_EQ(number(found.faults[0], "keys"), "1");
  EXPECT_TRUE(found.faults[0].breaks);
}

TEST(MaskedTailPoison, WhatNothingReadsIsClean) { EXPECT_EQ(root_of(mixed(3, false, 6)), "clean"); }

TEST(MaskedTailPoison, NaNOfASlotOfTheContextIsAnothers) {
  EXPECT_THAT(classes(mixed(4, true)), ElementsAre("prefix-cache-poison"));  // block 1, slot 0: request 0 wrote it
}

/// A recording's request 0 leaves the states of recurrent layers 1 and 2 in block 4, request 1 gets it for its KV.
TEST(MaskedTailPoison, WhatWasNaNBeforeItIsItsCause) {
  Pool pool(row_of(3, kNan), row_of(7, kNan), row_of(7, kNan));
  DumpGraph& g = pool.g;
  const TensorId probs = g.op("softmax", OpKind::softmax, {}, {.role = "probs", .tokens = 2, .channels = 8});
  g.op("attn_mix", OpKind::attention_mix, {{"probs", probs}, {"v", pool.second}},
       {.tokens = 2, .fill = constant(kNan)});
  const Diagnosis found = diagnosis_of(g, false);
  ASSERT_EQ(root_of(found), "invalid-op");
  EXPECT_EQ(testing::fault(found, "prefix-cache-poison").because, found.root_cause);
}

/// Attention in one op, without a mask: `whole` heads are bad, or one channel.
Diagnosis fused(bool whole) {
  Pool pool(constant(1), constant(1), row_of(3, kNan));
  DumpGraph& g = pool.g;
  const TensorId q = g.op("q_rope", OpKind::rope, {}, {.role = "q_rot", .tokens = 2});
  const TensorId k =
      g.op("k_store", OpKind::kv_store, {{"k", pool.k_second}}, Pool::cache(row_of(3, kNan)), pool.blocks);
  g.op("attention", OpKind::attention, {{"q", q}, {"k", k}, {"v", pool.second}},
       {.tokens = 2, .fill = [=](auto, auto channel) { return whole || channel == 0 ? kNan : 1.0F; }});
  return diagnosis_of(g, false);
}

TEST(MaskedTailPoison, AttentionInOneOpThatReadsBehindTheEnd) {
  ASSERT_EQ(root_of(fused(false)), "masked-tail-poison");
  EXPECT_EQ(fused(false).faults[0].tensor, "p2.kv_store.k_cache");  // read as values: one channel of them is bad
  EXPECT_EQ(fused(true).faults[0].tensor, "p2.k_store.k_cache");
}

}  // namespace
}  // namespace nanscope
