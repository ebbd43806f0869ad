#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/run/graph.h"
#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/reference.h"

namespace nanscope {
namespace {

using testing::classes;
using testing::diagnosis_of;
using testing::DumpGraph;
using ::testing::ElementsAre;
using testing::Fill;
using ::testing::HasSubstr;
using testing::noise;

/// A request of four tokens and its next one, with the cache that each step left. `second` is the cache after the
/// second step.
Diagnosis two_steps(const Fill& second, Format format = Format::f32) {
  DumpGraph g;
  g.layer = 0;
  for (const bool later : {false, true}) {
    if (later) {
      g.pass({Span{0, 1, 0, 1, 4, 5}}, 1);
    } else {
      g.pass({Span{0, 0, 0, 4, 0, 4}}, 4);
    }
    const std::int64_t tokens = later ? 1 : 4;
    const TensorId k = g.op("k_rope", OpKind::rope, {}, {.role = "k_rot", .tokens = tokens, .fill = noise(7)});
    KvStoreAttributes blocks;
    blocks.block_size = 8;
    g.op("kv_store", OpKind::kv_store, {{"k", k}},
         {.role = "k_cache", .tokens = 8, .fill = later ? second : noise(3), .format = format, .axis = Axis::slots},
         blocks);
    g.kv(0, 0, 0, 8, 0, KvAction::allocated);
    g.kv(0, 0, 0, tokens, later ? 4 : 0, KvAction::written);
  }
  return diagnosis_of(g, false);
}

TEST(KvSlotChanged, ACacheThatKeepsItsSlotsIsHealthy) {
  // The slot that the second step wrote may hold anything.
  const Diagnosis found = two_steps([](auto row, auto channel) { return row == 4 ? 9.0F : noise(3)(row, channel); });
  EXPECT_TRUE(found.healthy());
  EXPECT_EQ(testing::check(found, "kv-slot-changed").state, Checked::excluded);
}

TEST(KvSlotChanged, ASlotThatNoOpWroteIsNamed) {
  const Diagnosis found = two_steps(
      [](auto row, auto channel) { return noise(3)(row, channel) + (row == 2 && channel == 1 ? 1.0F : 0.0F); });
  ASSERT_THAT(classes(found), ElementsAre("kv-slot-changed"));
  EXPECT_EQ(testing::number(found.faults[0], "rows"), "2");
  EXPECT_THAT(found.faults[0].summary, HasSubstr("no op of this step wrote it"));
}

/// A new scale changes all codes by right.
TEST(KvSlotChanged, CodesAreNotCompared) {
  const Diagnosis found = two_steps(noise(4), Format::e4m3);
  EXPECT_TRUE(found.healthy());
  EXPECT_EQ(testing::check(found, "kv-slot-changed").state, Checked::not_in_dump);
}

}  // namespace
}  // namespace nanscope
