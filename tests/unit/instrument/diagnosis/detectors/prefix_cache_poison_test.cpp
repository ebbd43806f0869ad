#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/diagnosis/dump_graph.h"
#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/small_cascade.h"

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

/// Request 1 reads the block that request 0 wrote; slot 5 of the pool (position 1) holds `value` by then.
Diagnosis shared(float value, bool written_so) {
  const auto after = [=](std::int64_t row, std::int64_t) {
    return row == 5 || (written_so && row == 1) ? value : 1.0F;
  };
  Pool pool(written_so ? row_of(1, value) : constant(1), written_so ? row_of(5, value) : constant(1), after);
  DumpGraph& g = pool.g;
  const TensorId q = g.op("q_rope", OpKind::rope, {}, {.role = "q_rot", .tokens = 2});
  g.op("scores", OpKind::attention_scores, {{"q", q}, {"k", pool.second}},
       {.tokens = 2, .channels = 6, .fill = [=](auto, auto key) { return key == 1 ? value : 1.0F; }});
  return diagnosis_of(g, false);
}

TEST(PrefixCachePoison, NaNInABlockThatAnotherRequestWrote) {
  const Diagnosis found = shared(kNan, false);
  ASSERT_THAT(classes(found), ElementsAre("prefix-cache-poison"));
  EXPECT_EQ(number(found.faults[0], "keys"), "1");
  EXPECT_EQ(number(found.faults[0], "writer"), "0");
  EXPECT_TRUE(found.faults[0].breaks);
}

TEST(PrefixCachePoison, WhereTheWriterMadeItIsItsCause) {
  const Diagnosis found = shared(kNan, true);
  ASSERT_THAT(classes(found), ElementsAre("invalid-op", "prefix-cache-poison"));
  EXPECT_EQ(found.faults[1].because, 0U);
}

/// Request 0 looks a NaN up, nobody knows where it comes from, and shares the block that holds its keys.
TEST(PrefixCachePoison, OfANanOfUnknownOriginIsAtFault) {
  DumpGraph g;
  KvStoreAttributes blocks;
  blocks.block_size = 4;
  g.pass();
  const TensorId x = g.source({.fill = row_of(1, kNan)});
  const TensorId k = g.op("k_rope", OpKind::rope, {{"x", x}}, {.role = "k_rot", .fill = row_of(1, kNan)});
  g.op("kv_store", OpKind::kv_store, {{"k", k}}, Pool::cache(row_of(5, kNan)), blocks);
  g.kv(0, 1, 0, 4, 0, KvAction::allocated);
  g.kv(0, 1, 0, 4, 0, KvAction::written);
  g.pass({Span{1, 0, 0, 2, 4, 6}}, 2);
  const TensorId next = g.op("k_rope", OpKind::rope, {}, {.role = "k_rot", .tokens = 2});
  const TensorId pool = g.op("kv_store", OpKind::kv_store, {{"k", next}}, Pool::cache(row_of(5, kNan)), blocks);
  g.kv(1, 1, 0, 4, 0, KvAction::allocated);
  g.kv(1, 0, 0, 4, 4, KvAction::allocated);
  g.kv(1, 0, 0, 2, 4, KvAction::written);
  const TensorId q = g.op("q_rope", OpKind::rope, {}, {.role = "q_rot", .tokens = 2});
  g.op("scores", OpKind::attention_scores, {{"q", q}, {"k", pool}},
       {.tokens = 2, .channels = 6, .fill = [](auto, auto key) { return key == 1 ? kNan : 1.0F; }});
  const Diagnosis found = diagnosis_of(g, false);
  ASSERT_THAT(classes(found), ElementsAre("invalid-op", "prefix-cache-poison"));
  EXPECT_EQ(found.faults[1].because, 0U);
  EXPECT_EQ(root_of(found), "prefix-cache-poison");
}

TEST(PrefixCachePoison, AHealthySharedBlockIsClean) { EXPECT_EQ(root_of(shared(2, true)), "clean"); }

TEST(PrefixCachePoison, OfARecordingIsTheCollapsesConsequence) {
  testing::SmallCascade made;
  const Diagnosis found = diagnosis_of(made.builder);
  const Fault fault = testing::fault(found, "prefix-cache-poison");
  EXPECT_EQ(fault.where.request, 2);
  ASSERT_TRUE(fault.because.has_value());
  EXPECT_EQ(found.faults[*fault.because].fault_class, "variance-collapse");
}

}  // namespace
}  // namespace nanscope
