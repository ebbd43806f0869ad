#include "core/run/kv_slots.h"

#include <gtest/gtest.h>

#include "core/run/kv_cache.h"
#include "core/run/recording_view.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope {
namespace {

using testing::constant;
using testing::RunBuilder;

KvRow row(std::int64_t step, std::int64_t request, std::int64_t block, std::int64_t begin, std::int64_t end,
          std::int64_t first_token, KvAction action, const std::string& writer = "attention", std::int64_t layer = -1) {
  return {step, request, layer, block, begin, end, first_token, action, writer, Format::e4m3};
}

TEST(KvSlots, FindsTheSlotOfAPosition) {
  const std::vector<KvRow> history = {row(1, 0, 5, 0, 16, 0, KvAction::allocated),
                                      row(1, 0, 3, 0, 16, 16, KvAction::allocated)};
  const KvSlots slots(history);
  ASSERT_TRUE(slots.locate(0, 17, 1).has_value());
  EXPECT_EQ(slots.locate(0, 17, 1)->block, 3);
  EXPECT_EQ(slots.locate(0, 17, 1)->slot, 1);
  EXPECT_EQ(slots.locate(0, 15, 1)->block, 5);
  EXPECT_FALSE(slots.locate(0, 32, 1).has_value());
  EXPECT_FALSE(slots.locate(9, 0, 1).has_value());
}

TEST(KvSlots, ASharedBlockIsFreedByTheLastWhoHasIt) {
  const std::vector<KvRow> history = {row(1, 0, 5, 0, 16, 0, KvAction::allocated),
                                      row(1, 0, 5, 0, 16, 0, KvAction::written),
                                      row(2, 1, 5, 0, 16, 0, KvAction::shared), row(3, 0, 5, 0, 16, 0, KvAction::freed),
                                      row(4, 1, 5, 0, 16, 0, KvAction::freed)};
  const KvSlots slots(history);
  EXPECT_FALSE(slots.freed_since(history[1], 3));
  EXPECT_TRUE(slots.freed_since(history[1], 4));
}

TEST(KvSlots, ABlockIsGivenBackBeforeTheRowsOfAStepOrAfterTheyWereRead) {
  const std::vector<KvRow> history = {
      row(1, 0, 5, 0, 8, 0, KvAction::allocated), row(1, 0, 5, 0, 8, 0, KvAction::written),
      row(2, 0, 5, 0, 8, 0, KvAction::freed),     row(2, 0, 5, 0, 8, 8, KvAction::allocated),
      row(2, 0, 5, 0, 8, 8, KvAction::written),   row(3, 0, 6, 0, 8, 16, KvAction::allocated),
      row(3, 0, 6, 0, 8, 16, KvAction::written),  row(3, 0, 5, 0, 8, 8, KvAction::freed),
      row(3, 0, 6, 0, 8, 16, KvAction::freed),    row(4, 0, 7, 0, 8, 0, KvAction::allocated),
      row(4, 0, 7, 0, 8, 0, KvAction::written)};
  const KvSlots slots(history);
  EXPECT_FALSE(slots.given_back(0, 3, 1));
  EXPECT_TRUE(slots.given_back(0, 3, 2)) << "behind the window";
  EXPECT_FALSE(slots.given_back(0, 11, 2));
  EXPECT_TRUE(slots.given_back(0, 3, 3));
  EXPECT_FALSE(slots.given_back(0, 11, 3)) << "the request ends after this step";
  EXPECT_FALSE(slots.given_back(0, 17, 3));
  EXPECT_TRUE(slots.given_back(0, 11, 4));
  EXPECT_FALSE(slots.given_back(0, 3, 4)) << "another block since";
  EXPECT_FALSE(slots.given_back(1, 3, 4)) << "another request";
}

/// A block that was given back by another rank, or that held a recurrent state, or that was cleared since.
TEST(KvSlots, ABlockIsGivenBackByItsOwnRankAndAsPartOfTheContext) {
  std::vector<Step> steps(4);
  for (std::int64_t i = 0; i < 4; ++i) {
    steps[static_cast<std::size_t>(i)].id = i + 1;
    steps[static_cast<std::size_t>(i)].rank = i % 2;
  }
  const std::vector<KvRow> history = {row(1, 0, 5, 0, 8, 0, KvAction::written),
                                      row(1, 0, 6, 0, 8, 0, KvAction::written, "recurrent_state"),
                                      row(2, 0, 5, 0, 8, 0, KvAction::written), row(3, 0, 5, 0, 8, 0, KvAction::freed),
                                      row(3, 0, 5, 0, 8, 0, KvAction::scrubbed)};
  const KvSlots slots(history, steps);
  EXPECT_FALSE(slots.given_back(0, 3, 1));
  EXPECT_FALSE(slots.given_back(0, 3, 4)) << "rank 1 has it still";
  const KvSlots one_rank(history);
  EXPECT_TRUE(one_rank.given_back(0, 3, 4)) << "cleared, and not given to it again";
  const std::vector<KvRow> state = {row(1, 0, 5, 0, 8, 0, KvAction::written),
                                    row(2, 0, 6, 0, 8, 0, KvAction::freed, "recurrent_state")};
  EXPECT_FALSE(KvSlots(state).given_back(0, 3, 3));
}

TEST(KvSlots, WhatComesLaterIsNotSeen) {
  const std::vector<KvRow> history = {row(1, 0, 5, 0, 16, 0, KvAction::allocated),
                                      row(2, 0, 3, 0, 16, 16, KvAction::allocated),
                                      row(2, 0, 3, 0, 1, 16, KvAction::written)};
  const KvSlots slots(history);
  EXPECT_FALSE(slots.locate(0, 16, 1).has_value());
  EXPECT_TRUE(slots.locate(0, 16, 2).has_value());
  EXPECT_EQ(slots.last_writer({3, 0}, 0, 1, false), nullptr);
  EXPECT_NE(slots.last_writer({3, 0}, 0, 2, false), nullptr);
}

TEST(KvSlots, TheLastWriterOfASlotWins) {
  const std::vector<KvRow> history = {row(1, 0, 5, 0, 4, 0, KvAction::written), row(1, 0, 5, 0, 16, 0, KvAction::freed),
                                      row(2, 1, 5, 0, 16, 0, KvAction::allocated),
                                      row(2, 1, 5, 0, 2, 0, KvAction::written)};
  const KvSlots slots(history);
  EXPECT_EQ(slots.last_writer({5, 1}, 0, 2, false)->request, 1);
  EXPECT_EQ(slots.last_writer({5, 2}, 0, 2, false)->request, 0);
  EXPECT_EQ(slots.last_writer({5, 4}, 0, 2, false), nullptr);  // never written
  EXPECT_TRUE(slots.freed_since(history[0], 2));
  EXPECT_FALSE(slots.freed_since(history[3], 2));
}

TEST(KvSlots, AScrubIsTheLastWrite) {
  const std::vector<KvRow> history = {row(1, 0, 5, 0, 4, 0, KvAction::written),
                                      row(2, 1, 5, 0, 16, 0, KvAction::scrubbed)};
  const KvSlots slots(history);
  EXPECT_EQ(slots.last_writer({5, 1}, 0, 2, false)->action, KvAction::scrubbed);
}

TEST(KvSlots, EachRankHasAPoolOfItsOwn) {
  std::vector<Step> steps(4);
  for (std::int64_t i = 0; i < 4; ++i) {
    steps[static_cast<std::size_t>(i)].id = i + 1;
    steps[static_cast<std::size_t>(i)].rank = i % 2;
  }
  const std::vector<KvRow> history = {
      row(1, 0, 5, 0, 16, 0, KvAction::allocated), row(1, 0, 5, 0, 4, 0, KvAction::written),
      row(2, 0, 5, 0, 16, 0, KvAction::allocated), row(2, 0, 5, 0, 3, 0, KvAction::written),
      row(1, 0, 5, 0, 16, 0, KvAction::freed)};
  const KvSlots slots(history, steps);
  EXPECT_EQ(slots.last_writer({5, 1}, 0, 1, false), &history[1]);
  EXPECT_EQ(slots.last_writer({5, 1}, 0, 3, false), &history[1]);
  EXPECT_EQ(slots.last_writer({5, 1}, 0, 4, false), &history[3]);
  EXPECT_EQ(slots.last_writer({5, 3}, 0, 4, false), nullptr);
  EXPECT_TRUE(slots.freed_since(history[1], 3));
  EXPECT_FALSE(slots.freed_since(history[3], 4));
}

TEST(KvSlots, SharingHoldsUntilTheBlockIsAllocatedAnew) {
  const std::vector<KvRow> history = {row(1, 0, 5, 0, 16, 0, KvAction::allocated),
                                      row(2, 1, 5, 0, 16, 0, KvAction::shared)};
  const KvSlots slots(history);
  EXPECT_EQ(slots.shared(0, 5, 2), nullptr);
  EXPECT_NE(slots.shared(1, 5, 2), nullptr);
  EXPECT_EQ(slots.shared(1, 5, 1), nullptr);
}

TEST(KvSlots, ARecurrentStateIsNoPartOfTheContext) {
  const std::vector<KvRow> history = {row(1, 0, 5, 0, 16, 0, KvAction::allocated),
                                      row(1, 0, 6, 0, 16, 0, KvAction::allocated, "recurrent_state"),
                                      row(1, 0, 6, 0, 16, 0, KvAction::written, "recurrent_state", 2)};
  const KvSlots slots(history);
  EXPECT_EQ(slots.locate(0, 3, 1)->block, 5);
  EXPECT_EQ(slots.last_writer({6, 0}, 0, 1, false), nullptr);
  EXPECT_NE(slots.last_writer({6, 0}, 0, 1, true), nullptr);
}

TEST(KeyRows, WhatAttentionStoredExplainsANaNBeforeALaterStateDoes) {
  for (const bool stored_nan : {true, false}) {
    RunBuilder b;
    b.request(0, {1, 1});
    b.step(0, 0, 0, 2);
    b.op(0, "kv_store", "kv_store", {});
    const float value = stored_nan ? 0.0F / 0.0F : 1.0F;
    b.output("k_codes", {2, 4, 0, 1}, constant(value), Format::e4m3);
    b.output("v_codes", {2, 4, 0, 1}, constant(1), Format::e4m3);
    b.kv(0, 5, 0, 2, 0, KvAction::written);
    b.kv(0, 5, 0, 2, 0, KvAction::written, "recurrent_state", Format::f32, 3);
    b.request(1, {1});
    const std::int64_t step = b.step(1, 0, 0, 1);
    b.kv(1, 5, 0, 2, 0, KvAction::allocated);
    b.op(0, "kv_read", "kv_read", {{"pool"}});
    const std::int64_t read = b.output("k_read", {2, 4, 0, 1}, constant(1));
    RecordingView run(b.run, b.tensors);
    KvCache cache(run);
    const Step& at = *run.step(step);
    const KeyRow key = cache.key_row(*run.tensor(read), at, at.spans.front(), 1, 0);
    ASSERT_NE(key.writer, nullptr);
    EXPECT_EQ(key.writer->writer, stored_nan ? "attention" : "recurrent_state");
    EXPECT_FALSE(key.in_context);
    EXPECT_FALSE(key.own);
  }
}

}  // namespace
}  // namespace nanscope
