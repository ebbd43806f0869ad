#include "gui/prepare/bits_pair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/gui/built_view.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::gui {
namespace {

using nanscope::testing::RunBuilder;
using ::testing::HasSubstr;

/// A value projection of 2 tokens x `channels`, and its codes with scale 0.5. Token 1 has `value` in channel 0.
RunBuilder stored_run(float value, std::int64_t channels = 2) {
  RunBuilder builder;
  builder.request(0, {5, 6});
  builder.step(0, 0, 0, 2);
  builder.op(1, "v_proj", "gemm", {});
  const std::int64_t v = builder.output("out", {2, channels, 0, 1}, [=](std::int64_t row, std::int64_t channel) {
    return row == 1 && channel == 0 ? value : 1.0F;
  });
  builder.op(1, "kv_store", "kv_store", {{"v", v}}, R"({"policy":"locked","scale_v":0.5})");
  ScaleRow scale;
  scale.scale = 0.5;
  builder.store("v", v, scale);
  return builder;
}

BitsPair pair_of(RunBuilder& here, RunBuilder& there, const std::string& place) {
  const Result<BitsSheet> sheet = make_bits_sheet(BuiltView(here), *parse_place(place));
  EXPECT_TRUE(sheet) << sheet.error().message;
  Result<BitsPair> pair = make_bits_pair(*sheet, BuiltView(there), "other");
  EXPECT_TRUE(pair) << pair.error().message;
  return pair ? std::move(*pair) : BitsPair{};
}

BitsStage stage_of(Format format, std::uint32_t code) {
  BitsStage stage;
  stage.title = "Stored";
  stage.anatomy = dissect(format, code);
  return stage;
}

TEST(StagePair, CountsBitsAndStepsOfOneFormat) {
  // 448 is 0x7e and 416 is 0x7d in e4m3 (OCP 8-bit floating point, 2023).
  const StagePair pair = compare_stages(stage_of(Format::e4m3, 0x7e), stage_of(Format::e4m3, 0x7d));
  EXPECT_EQ(pair.differ, 0x03U);
  EXPECT_EQ(pair.words, "0x7e here, 0x7d there: 2 of 8 bits differ, 1 ulp apart");
}

TEST(StagePair, ANanIsNoNumberOfStepsAway) {
  const StagePair pair = compare_stages(stage_of(Format::e4m3, 0x7f), stage_of(Format::e4m3, 0x7e));
  EXPECT_EQ(pair.words, "0x7f here, 0x7e there: 1 of 8 bits differ");
}

TEST(StagePair, EqualCodesAreEqualBits) {
  const StagePair pair = compare_stages(stage_of(Format::f32, 0x7fffffff), stage_of(Format::f32, 0x7fffffff));
  EXPECT_EQ(pair.differ, 0U);
  EXPECT_EQ(pair.words, "equal bits");
}

TEST(StagePair, CodesOfTwoFormatsAreComparedByTheirValues) {
  const StagePair pair = compare_stages(stage_of(Format::e4m3, 0x7e), stage_of(Format::bf16, 0x7f80));
  EXPECT_FALSE(pair.differ);
  EXPECT_EQ(pair.words, "e4m3 448 here, bf16 Inf there");
}

TEST(BitsPair, TellsEachStageApart) {
  RunBuilder here = stored_run(300);  // 600 in units of the scale: clipped at 448
  RunBuilder there = stored_run(224);
  const BitsPair pair = pair_of(here, there, "0/0/1/kv_store.v_codes[1,0]");
  ASSERT_TRUE(pair.there);
  EXPECT_EQ(pair.label, "other");
  EXPECT_EQ(pair.words, "equal bits") << "both are stored as 448";
  ASSERT_EQ(pair.stages.size(), 2U);
  // 300 is 0x43960000, 224 is 0x43600000: the bits of 0x00f60000 differ.
  EXPECT_EQ(pair.stage("Before storing")->differ, 0x00f60000U);
  EXPECT_EQ(pair.stage("Stored")->differ, 0U);
  EXPECT_EQ(pair.stage("Read back"), nullptr);
  EXPECT_THAT(pair.here.verdict, HasSubstr("clipped"));
  EXPECT_THAT(pair.there->verdict, ::testing::Not(HasSubstr("clipped")));
}

TEST(BitsPair, TheTwinOfTheWorstIsTheSameElement) {
  RunBuilder here = stored_run(kNotANumber);
  RunBuilder there = stored_run(1);
  const BitsPair pair = pair_of(here, there, "0/0/1/v_proj");
  ASSERT_TRUE(pair.there);
  EXPECT_EQ(to_string(pair.there->stages[pair.there->main].target.place), "0/0/1/v_proj.out[1,0]");
  EXPECT_THAT(pair.words, HasSubstr("there: "));
}

TEST(BitsPair, SaysThatThereIsNoTwin) {
  RunBuilder here = stored_run(1);
  RunBuilder narrower = stored_run(1, 1);
  BitsPair pair = pair_of(here, narrower, "0/0/1/v_proj.out[1,1]");
  EXPECT_FALSE(pair.there) << "another element is no twin";
  EXPECT_EQ(pair.words, "the other run has no such element");
  RunBuilder other = stored_run(1);
  other.run.op_rows[0].name = "fused";
  pair = pair_of(here, other, "0/0/1/v_proj.out[1,1]");
  EXPECT_FALSE(pair.there);
  EXPECT_EQ(pair.words, "the other run has no such element: The step has no op called v_proj");
  RunBuilder empty;
  pair = pair_of(empty, other, "0/0/1/v_proj.out[1,1]");
  EXPECT_TRUE(pair.here.stages.empty());
}

}  // namespace
}  // namespace nanscope::gui
