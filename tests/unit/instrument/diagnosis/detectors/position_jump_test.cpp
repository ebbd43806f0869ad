#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "instrument/diagnosis/diagnosis.h"
#include "tests/unit/core/dump/memory_dump.h"
#include "tests/unit/instrument/diagnosis/found.h"

namespace nanscope {
namespace {

using testing::classes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MemoryDump;

struct Chunk {
  std::int64_t first = 0;
  std::int64_t rows = 4;
  std::optional<double> past = {};
};

/// Chunks of one prompt: ids, positions, a norm, and the length of the cache where it is given.
Diagnosis chunks(const std::vector<Chunk>& all) {
  MemoryDump dump;
  for (std::size_t step = 0; step < all.size(); ++step) {
    const std::string folder = "step_" + std::to_string(step) + '/';
    const Chunk& one = all[step];
    std::vector<double> positions;
    for (std::int64_t at = 0; at < one.rows; ++at) positions.push_back(static_cast<double>(one.first + at));
    dump.add(folder + "positions", "i64", {1, one.rows}, positions);
    if (one.past) dump.add(folder + "past_length", "i64", {1}, {*one.past});
    dump.add(folder + "model.layers.0.input_layernorm.output", "f32", {1, one.rows, 8});
  }
  return testing::diagnosis_of(dump);
}

TEST(PositionJump, ChunksThatFollowEachOtherAreHealthy) {
  EXPECT_THAT(classes(chunks({{0}, {4}, {8}})), ElementsAre());
  EXPECT_THAT(classes(chunks({{0, 4, 0}, {4, 4, 4}, {8, 1, 8}})), ElementsAre());
}

TEST(PositionJump, AChunkThatLeavesPositionsOutIsNamed) {
  const Diagnosis found = chunks({{0}, {8}});
  ASSERT_THAT(classes(found), ElementsAre("position-jump"));
  EXPECT_THAT(found.faults[0].summary, HasSubstr("begins at position 8, where its sequence stands at 4"));
}

TEST(PositionJump, AContradictionToTheCacheIsNamed) {
  const Diagnosis found = chunks({{0, 4, 0}, {8, 4, 4}});
  ASSERT_THAT(classes(found), ElementsAre("position-jump"));
  EXPECT_THAT(found.faults[0].summary, HasSubstr("past_length"));
}

/// Two prompts of 2 and 4 tokens, the first behind two of padding, and two tokens more: `decoded` is where the first
/// prompt's next token stands.
Diagnosis padded(double prompt, double decoded) {
  MemoryDump dump;
  dump.add("step_0/attention_mask", "i64", {2, 4}, {0, 0, 1, 1, 1, 1, 1, 1});
  dump.add("step_0/position_ids", "i64", {2, 4}, {prompt - 2, prompt - 1, prompt, prompt + 1, 0, 1, 2, 3});
  dump.add("step_0/model.layers.0.input_layernorm.output", "f32", {2, 4, 8});
  dump.add("step_1/attention_mask", "i64", {2, 5}, {0, 0, 1, 1, 1, 1, 1, 1, 1, 1});
  dump.add("step_1/position_ids", "i64", {2, 1}, {decoded, 4});
  dump.add("step_1/model.layers.0.input_layernorm.output", "f32", {2, 1, 8});
  return testing::diagnosis_of(dump);
}

/// The same with the padded prompt second; `shown`: whether its mask shows the padding later on.
Diagnosis padded_second(double decoded, double shown) {
  MemoryDump dump;
  dump.add("step_0/attention_mask", "i64", {2, 4}, {1, 1, 1, 1, 0, 0, 1, 1});
  dump.add("step_0/position_ids", "i64", {2, 4}, {0, 1, 2, 3, -2, -1, 0, 1});
  dump.add("step_0/model.layers.0.input_layernorm.output", "f32", {2, 4, 8});
  dump.add("step_1/attention_mask", "i64", {2, 5}, {1, 1, 1, 1, 1, shown, shown, 1, 1, 1});
  dump.add("step_1/position_ids", "i64", {2, 1}, {4, decoded});
  dump.add("step_1/model.layers.0.input_layernorm.output", "f32", {2, 1, 8});
  return testing::diagnosis_of(dump);
}

TEST(PositionJump, TheMaskOfItsOwnSequenceCounts) {
  EXPECT_THAT(classes(padded_second(4, 0)), ElementsAre("position-jump"));
  EXPECT_THAT(classes(padded_second(2, 0)), ElementsAre());
  EXPECT_THAT(classes(padded_second(4, 1)), ElementsAre()) << "the mask shows tokens that nobody saw computed";
}

/// A server that takes the length of the cache for the position, behind a prompt whose padding counts as nothing
/// (unsloth #3699).
TEST(PositionJump, ADecodeStepThatCountsThePaddingIsNamed) {
  const Diagnosis found = padded(2, 4);
  EXPECT_THAT(classes(found), ElementsAre());
  const Diagnosis jumps = padded(0, 4);
  ASSERT_THAT(classes(jumps), ElementsAre("position-jump"));
  EXPECT_THAT(jumps.faults[0].summary, HasSubstr("begins at position 4, where its sequence stands at 2 by its mask"));
  EXPECT_THAT(jumps.faults[0].fix, HasSubstr("attention mask"));
  EXPECT_THAT(classes(padded(0, 2)), ElementsAre());
}

/// A prefix may lie in the cache, and tokens may be computed again.
TEST(PositionJump, WhatBeginsLaterOrGoesBackIsHealthy) {
  EXPECT_THAT(classes(chunks({{32}})), ElementsAre());
  EXPECT_THAT(classes(chunks({{0}, {2}})), ElementsAre());
}

}  // namespace
}  // namespace nanscope
