#include "gui/prepare/causality_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gui/export/tables.h"

namespace nanscope::gui {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// 40 tokens in tiles of 32; token 38 reaches 33 and 35 through values, and 39 as it should.
CausalityMap leaking() {
  scenarios::Influence one;
  one.token = 38;
  one.moved.assign(40, 0);
  one.moved[33] = 0.5F;
  one.moved[35] = 2;
  one.moved[39] = 8;
  one.born = scenarios::LeakPlace{1, "attn_mix", "out", 33, 35, 0.1, {{33, 4}, {35, 7}}};
  one.operand = scenarios::LeakPlace{1, "v_quantise", "scales", 32, 37, 1, {}};
  CausalityMap map;
  map.title = "this run";
  map.report.prompt = 40;
  map.report.tile = 32;
  map.report.influences = {one};
  map.map = scenarios::influence_map(map.report);
  map.leaks = map.map.leaks();
  return map;
}

TEST(CausalityMap, ColoursLeaksAsTheLargerCells) {
  EXPECT_EQ(influence_cell(std::nan(""), true, 1), kAbsent);
  EXPECT_EQ(influence_cell(0, true, 1), kZero);
  EXPECT_EQ(influence_cell(1, false, 1), kLeakFirst - 1);
  EXPECT_EQ(influence_cell(1, true, 1), kLeakLast);
  EXPECT_EQ(influence_cell(HUGE_VAL, true, 1), kLeakLast);
  EXPECT_EQ(influence_cell(1e-30, true, 1), kLeakFirst);
  EXPECT_EQ(influence_cell(1e-30, false, 1), kInfluenceFirst);
  // Half of six decades is half of the ramp.
  EXPECT_EQ(influence_cell(1e-3 * 1.01, true, 1), kLeakFirst + kInfluenceSteps / 2);
  EXPECT_LT(kLeakLast, kLowHeadroom);
}

TEST(CausalityMap, SaysWhatALeakCameThrough) {
  const CausalityMap map = leaking();
  EXPECT_EQ(map.leaks, 2);
  EXPECT_THAT(influence_words(map, 35, 38), ElementsAre("logits move by up to 2", "a leak: token 38 comes 3 later",
                                                        "first seen in layer 1 attn_mix.out, tokens 33 to 35",
                                                        "through layer 1 v_quantise.scales, block 1: tokens 32 to 39"));
  EXPECT_THAT(influence_words(map, 39, 38), ElementsAre("logits move by up to 8", "an earlier token, as it should be"));
  EXPECT_THAT(influence_words(map, 34, 38),
              ElementsAre("the same bits of logits", "a later token, which it must not know"));
  EXPECT_THAT(influence_words(map, 1, 2), ElementsAre("not changed"));
}

TEST(CausalityMap, AMaskIsNoOperand) {
  CausalityMap map = leaking();
  map.report.influences[0].operand.reset();
  EXPECT_THAT(influence_words(map, 35, 38), ::testing::Contains("through no keys or values: the mask"));
}

/// A prompt of 40 tokens that was read in chunks of 34 and 6.
RunMap chunked() {
  RunMap run;
  MapStep first;
  first.row = {.id = 1, .request = 0, .index = 0, .first_token = 0, .tokens = 34};
  first.tokens = 34;
  MapStep second;
  second.row = {.id = 2, .request = 0, .index = 1, .first_token = 34, .tokens = 6};
  second.tokens = 6;
  second.first_column = 34;
  run.steps = {first, second};
  MapRequest request;
  request.row.id = 0;
  request.steps = {0, 1};
  run.requests = {request};
  MapRow row;
  row.op = "attn_mix";
  row.layer = 1;
  run.rows = {row};
  return run;
}

TEST(CausalityMap, ALeakIsFoundInTheStepThatReadItsToken) {
  const CausalityMap map = leaking();
  const RunMap run = chunked();
  EXPECT_EQ(to_string(*leak_place(map, run, 0, 35, 38)), "0/1/1/attn_mix.out[35,7]");
  EXPECT_EQ(to_string(*leak_place(map, run, 0, 33, 38)), "0/0/1/attn_mix.out[33,4]");
  // Born at others: it reached this token in a later layer.
  EXPECT_EQ(to_string(*leak_place(map, run, 0, 36, 38)), "0/0/1/attn_mix.out[33,4]");
  EXPECT_FALSE(leak_place(map, run, 0, 39, 38).has_value());
  EXPECT_FALSE(leak_place(map, run, 1, 35, 38).has_value());
  EXPECT_FALSE(leak_place(map, {}, 0, 35, 38).has_value());
}

TEST(CausalityMap, ATableBeginsWithTheLeaks) {
  CausalityMaps maps;
  maps.here = leaking();
  const Table table = table_of(maps);
  ASSERT_EQ(table.rows.size(), 3U);
  EXPECT_THAT(table.rows[0], ElementsAre("33", "38", "yes", "0.5", "attn_mix", "v_quantise", "1", ""));
  EXPECT_THAT(table.rows[2], ElementsAre("39", "38", "no", "8", "", "", "", ""));
}

TEST(CausalityPlan, SaysFormsInFewWords) {
  EXPECT_EQ(form_words({{"attention.diagonal=exact"}}), "attention.diagonal=exact");
  EXPECT_EQ(form_words({{"attention.blocks_v=", "attention.blocks_p="}}), "without blocks");
  EXPECT_EQ(form_words({{"kv.scheme=bf16", "attention.blocks_v="}}), "kv.scheme=bf16 without blocks");
}

TEST(CausalityPlan, OfADumpSaysThatItCannotBeRun) {
  EXPECT_THAT(plan_causality(nullptr, 0).notice, HasSubstr("a dump cannot be run again"));
}

}  // namespace
}  // namespace nanscope::gui
