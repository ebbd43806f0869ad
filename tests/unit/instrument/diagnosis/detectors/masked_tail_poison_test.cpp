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
  EXPECT_EQ(found.faults[0].tensor, "p2.attn_mix");
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

}  // namespace
}  // namespace nanscope
