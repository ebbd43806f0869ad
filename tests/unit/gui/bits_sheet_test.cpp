#include "gui/prepare/bits_sheet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/gui/built_view.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::gui {
namespace {

using nanscope::testing::constant;
using nanscope::testing::RunBuilder;

/// A value projection, its codes with scale 0.5, and what is read back: two requests of two tokens; the
/// second shares the first one's block.
RunBuilder stored_run(const std::string& policy = "locked") {
  RunBuilder builder;
  builder.request(0, {5, 6});
  builder.request(1, {5, 6, 7});
  builder.step(0, 0, 0, 2);
  builder.op(1, "v_proj", "gemm", {});
  const std::int64_t v = builder.output("out", {2, 2, 0, 1}, [](std::int64_t row, std::int64_t channel) {
    const float values[] = {215, 300, 1, kNotANumber};
    return values[row * 2 + channel];
  });
  builder.op(1, "kv_store", "kv_store", {{"v", v}}, R"({"policy":")" + policy + R"(","scale_v":0.5})");
  ScaleRow scale;
  scale.scale = 0.5;
  builder.store("v", v, scale);
  builder.kv(0, 3, 0, 2, 0, KvAction::allocated);
  builder.kv(0, 3, 0, 2, 0, KvAction::written);
  const auto read = [](std::int64_t row, std::int64_t channel) {
    const float values[] = {208, 224, 1, kNotANumber};
    return values[row * 2 + channel];
  };
  builder.op(1, "kv_read", "kv_read", {});
  builder.output("v_read", {2, 2, 0, 1}, read);
  builder.step(1, 0, 2, 1);
  builder.kv(1, 3, 0, 2, 0, KvAction::shared);
  builder.op(1, "kv_read", "kv_read", {});
  builder.output("v_read", {2, 2, 0, 1}, read);
  return builder;
}

BitsSheet sheet_of(RunBuilder& builder, const std::string& place) {
  Result<BitsSheet> sheet = make_bits_sheet(BuiltView(builder), *parse_place(place));
  EXPECT_TRUE(sheet) << sheet.error().message;
  return sheet ? *sheet : BitsSheet{};
}

std::vector<std::string> titles(const BitsSheet& sheet) {
  std::vector<std::string> out;
  for (const BitsStage& stage : sheet.stages) out.push_back(stage.title + " " + to_string(stage.target.place));
  return out;
}

TEST(BitsSheet, FollowsACodeFromBeforeStoringToReadingBack) {
  RunBuilder builder = stored_run();
  const BitsSheet sheet = sheet_of(builder, "0/0/1/kv_store.v_codes[0,0]");
  EXPECT_THAT(titles(sheet),
              ::testing::ElementsAre("Before storing 0/0/1/v_proj.out[0,0]", "Stored 0/0/1/kv_store.v_codes[0,0]",
                                     "Read back 0/0/1/kv_read.v_read[0,0]"));
  EXPECT_EQ(sheet.main, 1U);
  EXPECT_TRUE(sheet.stage().selected);
  EXPECT_EQ(sheet.stages[0].anatomy.value, 215);
  EXPECT_EQ(sheet.stage().anatomy.code, 0x7dU) << "215 / 0.5 = 430 is nearest to 416";
  EXPECT_THAT(sheet.stages[0].next, ::testing::HasSubstr("430"));
  EXPECT_THAT(sheet.verdict, ::testing::HasSubstr("3.26 %"));
  EXPECT_THAT(sheet.bucket, ::testing::HasSubstr("432"));
  EXPECT_EQ(sheet.lost, "215 became 208: 7 lost (3.26 %)");
}

TEST(BitsSheet, SaysWhatClippingLost) {
  RunBuilder builder = stored_run();
  const BitsSheet sheet = sheet_of(builder, "0/0/1/kv_store.v_codes[0,1]");
  EXPECT_EQ(sheet.stage().tone, kClipped);
  EXPECT_THAT(sheet.verdict, ::testing::HasSubstr("clipped"));
  EXPECT_THAT(sheet.stages[0].next, ::testing::HasSubstr("beyond the largest finite 448"));
  EXPECT_EQ(sheet.lost, "300 became 224: 76 lost (25.3 %)");
  EXPECT_TRUE(sheet.ruler.broken);
}

TEST(BitsSheet, ReadingFindsWhatAnotherRequestStored) {
  RunBuilder builder = stored_run();
  const BitsSheet sheet = sheet_of(builder, "1/0/1/kv_read.v_read[1,1]");
  EXPECT_THAT(titles(sheet),
              ::testing::ElementsAre("Before storing 0/0/1/v_proj.out[1,1]", "Stored 0/0/1/kv_store.v_codes[1,1]",
                                     "Read back 1/0/1/kv_read.v_read[1,1]"));
  EXPECT_TRUE(sheet.stages[2].selected);
  EXPECT_EQ(sheet.stage().anatomy.code, 0x7fU);
  EXPECT_EQ(sheet.stage().tone, kNan);
  EXPECT_TRUE(sheet.ruler.marks.empty()) << "NaN has no neighbours";
}

TEST(BitsSheet, ClaimsNoRoundingWhereEachTokenHasItsOwnScale) {
  RunBuilder builder = stored_run("per_token");
  const BitsSheet sheet = sheet_of(builder, "0/0/1/kv_store.v_codes[0,0]");
  EXPECT_EQ(sheet.stages.size(), 3U);
  EXPECT_EQ(sheet.verdict, "");
  EXPECT_THAT(sheet.stages[0].next, ::testing::HasSubstr("its token"));
  EXPECT_FALSE(sheet.ruler.marks.empty()) << "the code itself has neighbours";
}

TEST(BitsSheet, ClaimsNoRoundingThatTheCodeContradicts) {
  RunBuilder builder = stored_run();
  builder.run.op_rows[1].attributes = R"({"policy":"locked","scale_v":0.25})";
  EXPECT_EQ(sheet_of(builder, "0/0/1/kv_store.v_codes[0,0]").verdict, "");
}

TEST(BitsSheet, SaysWhoLeftWhatNobodyStored) {
  RunBuilder builder = stored_run();
  builder.run.kv_rows.erase(builder.run.kv_rows.begin() + 1);
  const BitsSheet unwritten = sheet_of(builder, "1/0/1/kv_read.v_read[1,1]");
  EXPECT_EQ(unwritten.stages.size(), 1U);
  EXPECT_THAT(unwritten.origin, ::testing::HasSubstr("Nobody wrote"));
  KvRow state = builder.run.kv_rows[0];
  state.action = KvAction::written;
  state.writer = "recurrent_state";
  state.format = Format::f32;
  builder.run.kv_rows.insert(builder.run.kv_rows.begin() + 1, state);
  EXPECT_THAT(sheet_of(builder, "1/0/1/kv_read.v_read[1,1]").origin, ::testing::HasSubstr("recurrent state"));
}

TEST(BitsSheet, TakesTheWorstWhereNoElementIsNamed) {
  RunBuilder builder = stored_run();
  EXPECT_EQ(to_string(sheet_of(builder, "0/0/1/v_proj").stage().target.place), "0/0/1/v_proj.out[1,1]");
  const BitsSheet row = sheet_of(builder, "0/0/1/v_proj[0]");
  EXPECT_EQ(to_string(row.stage().target.place), "0/0/1/v_proj.out[0,1]");
  EXPECT_EQ(row.choice, "the largest value of token 0");
  EXPECT_EQ(row.stages.size(), 1U);
  EXPECT_EQ(sheet_of(builder, "0/0/1/v_proj[0,1]").choice, "");
}

TEST(BitsSheet, SaysWhatItTookWhereNoElementIsNamed) {
  RunBuilder builder = stored_run();
  EXPECT_EQ(sheet_of(builder, "0/0/1/v_proj").choice, "the first NaN of the tensor");
  EXPECT_EQ(sheet_of(builder, "0/0/1/kv_store.v_codes[0]").choice, "the first clipped value of token 0");
}

TEST(BitsSheet, SaysWhyThereIsNothing) {
  RunBuilder builder = stored_run();
  EXPECT_EQ(sheet_of(builder, "0/0/1/nothing").notice, "The step has no op called nothing");
  builder.tensors.data.clear();
  const BitsSheet sheet = sheet_of(builder, "0/0/1/v_proj[0,0]");
  EXPECT_EQ(sheet.notice, "The elements of v_proj.out cannot be had");
  EXPECT_NE(sheet.advice, "");
  EXPECT_TRUE(sheet.stages.empty());
}

TEST(Ruler, PutsTheValueBetweenItsNeighbours) {
  const Ruler ruler = make_ruler(round_value(Format::e4m3, 430, Overflow::saturate));
  std::vector<std::string> values;
  for (const Ruler::Mark& mark : ruler.marks) values.push_back(mark.value);
  EXPECT_THAT(values, ::testing::ElementsAre("384", "416", "448"));
  EXPECT_TRUE(ruler.marks[1].stored);
  EXPECT_FALSE(ruler.broken);
  EXPECT_NEAR(ruler.bucket_begin, (ruler.marks[0].at + ruler.marks[1].at) / 2, 1e-6);
  EXPECT_NEAR(ruler.bucket_end, (ruler.marks[1].at + ruler.marks[2].at) / 2, 1e-6);
  EXPECT_GT(ruler.value_at, ruler.marks[1].at);
  EXPECT_LT(ruler.value_at, ruler.bucket_end) << "it is below the midpoint 432";
}

TEST(Ruler, AValueBeyondTheRangeStandsBeyondTheMarks) {
  const Ruler above = make_ruler(round_value(Format::e4m3, 1e6, Overflow::saturate));
  EXPECT_TRUE(above.broken);
  EXPECT_GT(above.value_at, above.marks.back().at + 0.1F);
  EXPECT_EQ(above.bucket_end, 1) << "everything beyond is the same code";
  const Ruler below = make_ruler(round_value(Format::e4m3, -1e6, Overflow::saturate));
  EXPECT_LT(below.value_at, below.marks.front().at - 0.1F);
  EXPECT_EQ(below.bucket_begin, 0);
}

TEST(Ruler, WhatLeftTheRangeIsInNoBucket) {
  const Ruler ruler = make_ruler(round_value(Format::e4m3, 1e6, Overflow::overflow));
  EXPECT_FALSE(ruler.marks.empty());
  EXPECT_EQ(ruler.bucket_begin, ruler.bucket_end) << "it became NaN";
}

TensorData data_of(Format format, const std::vector<std::uint32_t>& codes) {
  TensorData data{format, 1, static_cast<std::int64_t>(codes.size()), {}};
  for (const std::uint32_t code : codes) {
    for (std::size_t i = 0; i < info(format).storage_bytes(); ++i) {
      data.bytes.push_back(static_cast<std::byte>((code >> (8 * i)) & 0xffU));
    }
  }
  return data;
}

std::uint64_t total(const Histogram& histogram) {
  std::uint64_t sum = 0;
  for (const CodeBin& bin : histogram.bins) sum += bin.count;
  return sum;
}

TEST(HistogramOfCodes, HasABinForEveryCodeInOrderOfValue) {
  const Histogram histogram = make_histogram(data_of(Format::e4m3, {0x7e, 0x7e, 0xfe, 0x7f, 0x00, 0xff}), 0x7e, true);
  ASSERT_EQ(histogram.bins.size(), 256U);
  EXPECT_EQ(histogram.ordered, 254U);
  EXPECT_EQ(histogram.bins.front().name, "0xfe");
  EXPECT_EQ(histogram.bins.front().values, "-448");
  EXPECT_EQ(histogram.bins[253].name, "0x7e");
  EXPECT_EQ(histogram.bins[253].count, 2U);
  EXPECT_EQ(histogram.bins[253].tone, kClipped);
  EXPECT_EQ(histogram.chosen, 253U);
  EXPECT_EQ(histogram.bins[254].tone, kNan);
  EXPECT_EQ(histogram.bins[255].count, 1U);
  EXPECT_EQ(total(histogram), 6U);
  EXPECT_EQ(histogram.most, 2U);
}

/// A row of 40 values in blocks of 32 of e2m1: channel 5 is 8, the others 0.5.
RunBuilder block_run() {
  RunBuilder builder;
  builder.request(0, {5});
  builder.step(0, 0, 0, 1);
  builder.op(1, "up", "gemm", {});
  const auto value = [](std::int64_t channel) { return channel == 5 ? 8.0F : channel == 33 ? -3.0F : 0.5F; };
  const std::int64_t x = builder.output("out", {1, 40, 0, 1}, [&](std::int64_t, std::int64_t c) { return value(c); });
  builder.op(1, "quantise", "block_quantise", {{"x", x}}, R"({"format":"mxfp4","block":32,"tensor_scale":1})");
  builder.output(
      "codes", {1, 40, 0, 1}, [&](std::int64_t, std::int64_t c) { return value(c) / (c < 32 ? 2.0F : 0.5F); },
      Format::e2m1);
  builder.output(
      "scales", {1, 2, 0, 1}, [](std::int64_t, std::int64_t c) { return c == 0 ? 2.0F : 0.5F; }, Format::e8m0);
  return builder;
}

TEST(BitsSheet, OfABlockItShowsTheScaleAndWhoSetIt) {
  RunBuilder builder = block_run();
  const BitsSheet sheet = sheet_of(builder, "0/0/1/quantise.codes[0,7]");
  EXPECT_THAT(titles(sheet),
              ::testing::ElementsAre("Before storing 0/0/1/up.out[0,7]", "Stored 0/0/1/quantise.codes[0,7]",
                                     "Scale of the block 0/0/1/quantise.scales[0,0]"));
  EXPECT_EQ(sheet.main, 1U);
  EXPECT_EQ(sheet.stages[0].next, "\u00F7 scale 2 = 0.25");
  EXPECT_EQ(sheet.stages[1].next, "\u00D7 scale 2 = 0");
  EXPECT_EQ(sheet.stages[2].anatomy.value, 2);
  EXPECT_EQ(sheet.block, "Channel 5 set the scale of channels 0 to 31 with 8; 31 of 32 stored as 0");
  EXPECT_EQ(sheet.lost, "0.5 became 0: 0.5 lost (100 %)");
}

TEST(BitsSheet, OfAScaleItShowsTheElementThatSetIt) {
  RunBuilder builder = block_run();
  const BitsSheet sheet = sheet_of(builder, "0/0/1/quantise.scales[0,1]");
  ASSERT_EQ(sheet.stages.size(), 3U);
  EXPECT_EQ(to_string(sheet.stages[1].target.place), "0/0/1/quantise.codes[0,33]");
  EXPECT_TRUE(sheet.stages[2].selected);
  EXPECT_EQ(sheet.main, 2U);
  EXPECT_EQ(sheet.block, "Channel 33 set the scale of channels 32 to 39 with -3");
}

TEST(HistogramOfCodes, CountsEveryElementOfEveryFormat) {
  for (const FormatInfo& format : formats()) {
    std::vector<std::uint32_t> codes;
    const std::uint32_t mask = format.bits >= 32 ? 0xffffffffU : (1U << format.bits) - 1U;
    for (std::uint32_t i = 0; i < 4096; ++i) codes.push_back((i * 2654435761U) & mask);
    const Histogram histogram = make_histogram(data_of(format.format, codes), codes[17], false);
    EXPECT_EQ(total(histogram), 4096U) << format.name;
    ASSERT_TRUE(histogram.chosen) << format.name;
    EXPECT_GT(histogram.bins[*histogram.chosen].count, 0U) << format.name;
    EXPECT_EQ(histogram.by_exponent, format.bits > 8) << format.name;
  }
}

TEST(HistogramOfCodes, WiderFormatsAreBinnedByPowerOfTwo) {
  const Histogram histogram =
      make_histogram(data_of(Format::f32, {0x3f800000, 0x3fc00000, 0xc0800000, 0, 0x7fffffff, 0xff800000}), 0, false);
  std::vector<std::string> names;
  for (const CodeBin& bin : histogram.bins) names.push_back(bin.name);
  EXPECT_THAT(names, ::testing::ElementsAre("-Inf", "-2^2", "-2^1", "-2^0", "0", "2^0", "2^1", "2^2", "NaN"));
  EXPECT_EQ(histogram.bins[5].count, 2U) << "1 and 1.5";
  EXPECT_EQ(histogram.bins[0].tone, kInf);
  EXPECT_EQ(histogram.ordered, 8U);
}

TEST(Typeset, RaisesExponents) {
  EXPECT_EQ(typeset("(-1)^0 x 2^(15-7) x (1 + 6/8) = 448"),
            "(\u22121)\u2070 \u00D7 2\u00B9\u2075\u207B\u2077 \u00D7 (1 + 6/8) = 448");
  EXPECT_EQ(typeset("-2^-12"), "\u22122\u207B\u00B9\u00B2");
  EXPECT_EQ(typeset("0x7e"), "0x7e");
  EXPECT_EQ(typeset("2^"), "2");
  EXPECT_EQ(typeset("2^(1"), "2\u00B9");
}

}  // namespace
}  // namespace nanscope::gui
