#include "instrument/diagnosis/cascade.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/instrument/diagnosis/small_cascade.h"

namespace nanscope {
namespace {

using testing::CascadeOptions;
using testing::SmallCascade;

Cascade cascade_of(SmallCascade& made) {
  Result<Cascade> found = cascade(made.builder.run, made.builder.tensors);
  EXPECT_TRUE(found.has_value());
  return found.value_or(Cascade{});
}

std::vector<int> numbers_found(const Cascade& cascade) {
  std::vector<int> numbers;
  for (const Link& link : cascade.links) {
    if (link.state == LinkState::found) numbers.push_back(link.number);
  }
  return numbers;
}

TEST(Cascade, FindsAllFourteenLinksInOrder) {
  SmallCascade made;
  const Cascade found = cascade_of(made);
  for (const Link& link : found.links) EXPECT_EQ(link.state, LinkState::found) << link.id << ": " << link.summary;
  EXPECT_EQ(found.found(), 14);
  EXPECT_EQ(found.breaks_at(), 0);
}

/// A window that is closed stops its reads, between any two of them.
TEST(Cascade, ReadingThatIsStoppedIsAnErrorWhereverItIs) {
  SmallCascade whole;
  cascade_of(whole);
  for (std::size_t rows = 0; rows < whole.builder.run.rows_read; ++rows) {
    SmallCascade made;
    made.builder.run.rows_until_stop = rows;
    EXPECT_FALSE(cascade(made.builder.run, made.builder.tensors)) << "after " << rows;
  }
}

TEST(Cascade, EveryLinkHasItsPlaceAndNumbers) {
  SmallCascade made;
  const Cascade found = cascade_of(made);
  const auto place = [&](int number) { return place_text(found.links[static_cast<std::size_t>(number - 1)].where); };
  const auto number = [&](int link, const char* name) {
    const EvidenceValue* value = find(found.links[static_cast<std::size_t>(link - 1)].evidence, name);
    return value == nullptr ? std::string("-") : to_string(*value);
  };
  EXPECT_EQ(place(1), "0/0/0/kv_store");
  EXPECT_EQ(number(2, "calibrated by request"), "0");
  EXPECT_EQ(number(2, "scale"), "0.01");
  EXPECT_EQ(place(3), "1/0/0/kv_store");
  EXPECT_EQ(number(3, "absmax"), "47");
  EXPECT_EQ(number(3, "headroom"), "0.0953191");  // 448 * 0.01 / 47
  EXPECT_EQ(place(4), "1/0/0/kv_store.v_codes[0]");
  EXPECT_EQ(number(4, "raw code"), "0x7E");
  EXPECT_EQ(number(4, "clipped"), "8");
  EXPECT_EQ(number(4, "codes of that magnitude"), "8");
  EXPECT_EQ(place(5), "1/0/0/kv_store.v_codes[0]");
  EXPECT_EQ(number(5, "collapsed tokens"), "2");
  EXPECT_EQ(number(5, "distinct values before"), "4");
  EXPECT_EQ(number(5, "constant rows of attn_mix"), "2");
  EXPECT_EQ(place(6), "1/0/0/inner_norm.stats[0,1]");
  EXPECT_EQ(number(6, "variance"), "-0.003448");
  EXPECT_EQ(place(7), "1/0/0/inner_norm.stats[0,2]");
  EXPECT_EQ(number(7, "rows born NaN"), "2");
  EXPECT_EQ(place(8), "1/0/1/q_proj.out[0]");
  EXPECT_EQ(number(8, "NaN tokens"), "2");
  EXPECT_EQ(place(9), "1/0/1/scores.out[0,0]");
  EXPECT_EQ(number(9, "NaN columns"), "2");
  EXPECT_EQ(place(10), "1/0/1/softmax.probs[0]");
  EXPECT_EQ(number(10, "NaN rows"), "3");
  EXPECT_EQ(place(11), "1/0/1/attn_residual.out[0]");
  EXPECT_EQ(number(11, "NaN tokens before"), "2");
  EXPECT_EQ(number(11, "NaN tokens after"), "3");
  EXPECT_EQ(place(12), "1/0/1/kv_store.k_codes[0]");
  EXPECT_EQ(number(12, "raw code"), "0x7F");
  EXPECT_EQ(number(13, "by shared prefix"), "1");
  EXPECT_EQ(number(13, "by recycled block"), "1");
  EXPECT_EQ(number(13, "request 3 reads request"), "1");
  EXPECT_EQ(place(14), "1/0/-/lm_head.logits[2]");
  EXPECT_EQ(number(14, "text"), "!");
}

TEST(Cascade, AnUnquantizedCacheHasNoLinkAtAll) {
  CascadeOptions options;
  options.format = Format::bf16;
  options.one_pass = false;
  SmallCascade made(options);
  EXPECT_THAT(numbers_found(cascade_of(made)), ::testing::IsEmpty());
}

TEST(Cascade, AScalePerRequestBreaksItAtTheLock) {
  CascadeOptions options;
  options.locked = false;
  options.one_pass = false;
  SmallCascade made(options);
  const Cascade found = cascade_of(made);
  EXPECT_THAT(numbers_found(found), ::testing::ElementsAre(1));
  EXPECT_EQ(found.breaks_at(), 2);
}

TEST(Cascade, ATwoPassVarianceBreaksItAtTheRoot) {
  CascadeOptions options;
  options.one_pass = false;
  SmallCascade made(options);
  const Cascade found = cascade_of(made);
  EXPECT_THAT(numbers_found(found), ::testing::ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(found.breaks_at(), 7);
  EXPECT_EQ(to_string(*find(found.links[5].evidence, "variance")), "0");
}

TEST(Cascade, ValuesWithinTheRangeBreakItAtTheRange) {
  CascadeOptions options;
  options.image = false;
  SmallCascade made(options);
  const Cascade found = cascade_of(made);
  EXPECT_THAT(numbers_found(found), ::testing::ElementsAre(1, 2));
  EXPECT_THAT(found.links[2].summary, ::testing::HasSubstr("4.48"));
}

/// A ledger with one entry, to see the first three links alone.
Cascade cascade_of(const ScaleRow& scale) {
  testing::RunBuilder b;
  b.request(0, {1});
  b.step(0, 0, 0, 1);
  b.op(0, "kv_store", "kv_store", {});
  ScaleRow row = scale;
  row.step = 1;
  row.op = 1;
  row.target.push_back('k');
  b.run.scale_rows.push_back(row);
  const Result<Cascade> found = cascade(b.run, b.tensors);
  return found.value_or(Cascade{});
}

TEST(Cascade, OnlyAScaleComputedFromDataInEightBitsIsDynamic) {
  ScaleRow scale;
  scale.format = Format::e4m3;
  scale.source = ScaleSource::calibrated;
  scale.calibrated_step = 1;
  scale.headroom = 0.5;
  EXPECT_THAT(numbers_found(cascade_of(scale)), ::testing::ElementsAre(1));  // not locked, not a later step
  scale.format = Format::f16;
  EXPECT_THAT(numbers_found(cascade_of(scale)), ::testing::IsEmpty());
  scale.format = Format::e4m3;
  scale.source = ScaleSource::fixed;
  scale.locked = true;
  EXPECT_THAT(numbers_found(cascade_of(scale)), ::testing::IsEmpty());
}

/// A residual sum of `tokens` rows of which some are NaN before and after.
Cascade residual_cascade(std::int64_t before, std::int64_t after) {
  const auto rows = [](std::int64_t bad) {
    return [bad](std::int64_t row, std::int64_t) { return row < bad ? 0.0F / 0.0F : 1.0F; };
  };
  testing::RunBuilder b;
  b.request(0, {1, 1, 1});
  b.step(0, 0, 0, 3);
  b.op(0, "mlp_residual", "residual_add", {});
  const std::int64_t x = b.output("out", {3, 4, 0, 1}, rows(before));
  b.op(1, "attn_residual", "residual_add", {{"a", x}});
  b.output("out", {3, 4, 0, 1}, rows(after));
  const Result<Cascade> found = cascade(b.run, b.tensors);
  return found.value_or(Cascade{});
}

TEST(Cascade, TheRawNaNCodeIsTheOneThatWasStored) {
  testing::RunBuilder b;
  b.request(0, {1});
  b.step(0, 0, 0, 1);
  b.op(0, "kv_store", "kv_store", {});
  const std::int64_t codes = b.output("k_codes", {1, 4, 0, 1}, testing::constant(0.0F / 0.0F), Format::e4m3);
  b.tensors.data.at(codes).bytes[1] = b.tensors.data.at(codes).bytes[2] = b.tensors.data.at(codes).bytes[3] =
      std::byte{0xFF};
  const Result<Cascade> found = cascade(b.run, b.tensors);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(to_string(*find(found->links[11].evidence, "raw code")), "0xFF");
}

TEST(Cascade, SomeTokensBecomingAllIsWhatMakesTheLink) {
  EXPECT_EQ(residual_cascade(1, 3).links[10].state, LinkState::found);
  EXPECT_EQ(residual_cascade(2, 3).links[10].state, LinkState::found);
  EXPECT_EQ(residual_cascade(0, 3).links[10].state, LinkState::not_reached);
  EXPECT_EQ(residual_cascade(1, 2).links[10].state, LinkState::not_reached);
  EXPECT_EQ(residual_cascade(3, 3).links[10].state, LinkState::not_reached);
  EXPECT_THAT(residual_cascade(1, 2).links[10].summary, ::testing::HasSubstr("1 of 3 tokens before and 2 after"));
}

TEST(Cascade, WithoutElementsItSaysSoAndStillFindsWhatHealthShows) {
  SmallCascade made;
  NoTensors nothing;
  const Result<Cascade> found = cascade(made.builder.run, nothing);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->links[5].state, LinkState::not_available);
  EXPECT_EQ(found->links[6].state, LinkState::not_available);
  EXPECT_EQ(found->links[4].state, LinkState::found);
  EXPECT_EQ(found->links[8].state, LinkState::found);
  EXPECT_EQ(found->found(), 12);
}

TEST(Cascade, AnEmptyRunIsNoCascade) {
  testing::MemoryRun run;
  NoTensors nothing;
  const Result<Cascade> found = cascade(run, nothing);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->links.size(), 14U);
  EXPECT_EQ(found->found(), 0);
}

TEST(Cascade, AFailedReadIsAnError) {
  testing::MemoryRun run;
  run.error = Error{"the disk is gone"};
  NoTensors nothing;
  const Result<Cascade> found = cascade(run, nothing);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().message, "the disk is gone");
}

TEST(Cascade, JsonHasOneObjectALink) {
  SmallCascade made;
  const nlohmann::ordered_json json = to_json(cascade_of(made));
  ASSERT_EQ(json["links"].size(), 14U);
  EXPECT_EQ(json["links"][6]["id"], "nan-in-root");
  EXPECT_EQ(json["links"][6]["state"], "found");
  EXPECT_EQ(json["links"][6]["evidence"]["1/sqrt(variance + eps)"], "nan");
  EXPECT_EQ(json["links"][6]["tokens"], (nlohmann::ordered_json::array({0, 0})));
  EXPECT_TRUE(json["breaks_at"].is_null());
}

}  // namespace
}  // namespace nanscope
