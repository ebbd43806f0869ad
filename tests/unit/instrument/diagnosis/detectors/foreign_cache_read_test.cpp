#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/diagnosis/dump_graph.h"
#include "tests/unit/instrument/diagnosis/found.h"

namespace nanscope {
namespace {

using testing::classes;
using testing::diagnosis_of;
using testing::DumpGraph;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::number;

/// Request 0 fills block 0 and ends; then request 1 decodes position 4, having block 0 since `given` (a pass) or by
/// sharing it.
Diagnosis decode_after(std::size_t given, bool shared) {
  DumpGraph g;
  g.pass({Span{0, 0, 0, 4, 0, 4}}, 4);
  g.source({});
  g.kv(0, 0, 0, 4, 0, KvAction::allocated);
  g.kv(0, 0, 0, 4, 0, KvAction::written);
  g.pass({Span{1, 0, 0, 4, 0, 4}}, 4);
  g.source({});
  if (given == 1) {
    g.kv(1, 0, 0, 4, 0, KvAction::allocated);
    g.kv(1, 0, 0, 4, 0, KvAction::written);
  }
  g.pass({Span{1, 1, 0, 1, 4, 5}}, 1);
  g.op("kv_read", OpKind::kv_read, {}, {.role = "k_read", .tokens = 8, .axis = Axis::keys});
  if (given == 2) g.kv(1, 0, 0, 4, 0, shared ? KvAction::shared : KvAction::allocated);
  g.kv(1, 1, 0, 4, 4, KvAction::allocated);
  return diagnosis_of(g, false);
}

TEST(ForeignCacheRead, KeysOfABlockThatWasGivenInTheStepThatReadsIt) {
  const Diagnosis found = decode_after(2, false);
  ASSERT_THAT(classes(found), ElementsAre("foreign-cache-read"));
  EXPECT_EQ(number(found.faults[0], "keys"), "4");
  EXPECT_THAT(found.faults[0].summary, HasSubstr("keys and values of request 0"));
}

TEST(ForeignCacheRead, WhatARequestWroteBeforeItsFirstStepIsNotKnown) {
  DumpGraph g;
  g.pass({Span{1, 0, 0, 1, 4, 5}}, 1);
  g.op("kv_read", OpKind::kv_read, {}, {.role = "k_read", .tokens = 8, .axis = Axis::keys});
  g.kv(1, 0, 0, 4, 0, KvAction::allocated);
  g.kv(1, 1, 0, 4, 4, KvAction::allocated);
  EXPECT_THAT(classes(diagnosis_of(g, false)), IsEmpty());
}

TEST(ForeignCacheRead, BlocksThatWereWrittenOrSharedAreItsOwn) {
  EXPECT_THAT(classes(decode_after(1, false)), IsEmpty());
  EXPECT_THAT(classes(decode_after(2, true)), IsEmpty());
}

}  // namespace
}  // namespace nanscope
