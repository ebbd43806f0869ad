#include "instrument/diagnosis/why.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/run/recording_view.h"
#include "tests/unit/instrument/diagnosis/small_cascade.h"

namespace nanscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::In;
using testing::kInf;
using testing::kNan;
using testing::RunBuilder;
using testing::SmallCascade;

WhyPath why_of(RunBuilder& builder, std::int64_t tensor, std::int64_t row, std::int64_t channel) {
  RecordingView run(builder.run, builder.tensors);
  Result<WhyPath> path = why(run, Element{tensor, row, channel});
  EXPECT_TRUE(path.has_value());
  return path.value_or(WhyPath{});
}

std::vector<std::string> places(const WhyPath& path) {
  std::vector<std::string> found;
  for (const Hop& hop : path.hops) {
    found.push_back(hop.kind == HopKind::element ? place_text(hop.where) : std::string(name(hop.kind)));
  }
  return found;
}

TEST(Why, CrossesFromARecycledBlockToTheRequestThatLockedTheScale) {
  SmallCascade made;
  const WhyPath path = why_of(made.builder, made.tensor.at("3/-1/lm_head.logits"), 0, 0);
  EXPECT_THAT(places(path),
              ElementsAre("3/0/-/lm_head.logits[0,0]", "3/0/1/attn_residual.out[0,0]", "3/0/1/o_proj.out[0,0]",
                          "3/0/1/inner_norm.out[0,0]", "3/0/1/attn_mix.out[0,0]", "3/0/1/softmax.probs[0,0]",
                          "3/0/1/scores.out[0,1]", "3/0/1/kv_read.k_read[1,0]", "slot", "1/0/1/kv_store.k_codes[1,0]",
                          "1/0/1/k_proj.out[1,0]", "1/0/1/attn_norm.out[1,0]", "1/0/0/attn_residual.out[1,0]",
                          "1/0/0/o_proj.out[1,0]", "1/0/0/inner_norm.out[1,0]", "1/0/0/attn_mix.out[1,0]",
                          "1/0/0/kv_read.v_read[0,0]", "slot", "1/0/0/kv_store.v_codes[0,0]", "scale"));
  ASSERT_TRUE(path.origin.has_value());
  EXPECT_EQ(place_text(path.hops[*path.origin].where), "1/0/0/inner_norm.out[1,0]");
  EXPECT_THAT(path.conclusion, HasSubstr("computed by request 0 step 0 from 2 tokens"));
}

TEST(Why, EachHopCarriesNumbersAndBits) {
  SmallCascade made;
  const WhyPath path = why_of(made.builder, made.tensor.at("3/-1/lm_head.logits"), 0, 0);
  ASSERT_EQ(path.hops.size(), 20U);
  const Hop& poisoned = path.hops[9];
  EXPECT_EQ(poisoned.format, Format::e4m3);
  EXPECT_EQ(poisoned.code, 0x7FU);
  EXPECT_TRUE(poisoned.bad);
  const Hop& slot = path.hops[8];
  EXPECT_THAT(slot.text, HasSubstr("block 1 slot 1 was last written by request 1 step 0"));
  EXPECT_THAT(slot.text, HasSubstr("given to request 3"));
  const Hop& origin = path.hops[14];
  EXPECT_EQ(to_string(*find(origin.numbers, "variance")), "-0.003448");
  EXPECT_EQ(to_string(*find(origin.numbers, "variance bits")), "0xBB61F7D7");
  EXPECT_THAT(origin.text, HasSubstr("no square root"));
  EXPECT_THAT(origin.text, HasSubstr("all 4 channels of the row are the same number"));
  const Hop& clipped = path.hops[18];
  EXPECT_EQ(clipped.code, 0x7EU);
  EXPECT_EQ(clipped.value, 448.0F);
  EXPECT_THAT(clipped.text, HasSubstr("clipped as 448 (0x7E)"));
  const Hop& scale = path.hops[19];
  EXPECT_EQ(to_string(*find(scale.numbers, "calibrated by request")), "0");
  EXPECT_EQ(to_string(*find(scale.numbers, "absmax then")), "1");
}

TEST(Why, GoesThroughASharedPrefix) {
  SmallCascade made;
  const WhyPath path = why_of(made.builder, made.tensor.at("2/-1/lm_head.logits"), 0, 0);
  std::string text;
  for (const Hop& hop : path.hops) text += hop.text + "\n";
  EXPECT_THAT(text, HasSubstr("shared by prefix with request 2"));
  EXPECT_EQ(path.hops.back().kind, HopKind::scale);
}

TEST(Why, AHealthyElementIsFollowedWithoutAnOrigin) {
  SmallCascade made;
  const WhyPath path = why_of(made.builder, made.tensor.at("0/-1/lm_head.logits"), 1, 3);
  EXPECT_FALSE(path.origin.has_value());
  EXPECT_THAT(path.conclusion, HasSubstr("healthy"));
  EXPECT_EQ(path.hops.back().op_kind, OpKind::embedding);
}

TEST(Why, WithoutElementsRowHealthLeadsToTheSameOrigin) {
  SmallCascade made;
  NoTensors nothing;
  RecordingView run(made.builder.run, nothing);
  const Result<WhyPath> path = why(run, Element{made.tensor.at("1/-1/lm_head.logits"), 2, 0});
  ASSERT_TRUE(path.has_value());
  ASSERT_TRUE(path->origin.has_value());
  EXPECT_EQ(path->hops[*path->origin].where.op, "inner_norm");
  EXPECT_EQ(path->hops.front().code, std::nullopt);
}

TEST(Why, RefusesElementsThatAreNotThere) {
  SmallCascade made;
  RecordingView run(made.builder.run, made.builder.tensors);
  EXPECT_FALSE(why(run, Element{99999, 0, 0}).has_value());
  const std::int64_t logits = made.tensor.at("0/-1/lm_head.logits");
  EXPECT_FALSE(why(run, Element{logits, 2, 0}).has_value());
  EXPECT_FALSE(why(run, Element{logits, 0, 5}).has_value());
  EXPECT_FALSE(why(run, Element{logits, -1, 0}).has_value());
}

TEST(Why, JsonCarriesHopsAndOrigin) {
  SmallCascade made;
  const nlohmann::ordered_json json = to_json(why_of(made.builder, made.tensor.at("3/-1/lm_head.logits"), 0, 0));
  EXPECT_EQ(json["origin"], 14);
  EXPECT_EQ(json["hops"][9]["code"], "0x7F");
  EXPECT_EQ(json["hops"][9]["value"], "nan");
  EXPECT_EQ(json["hops"][19]["kind"], "scale");
}

/// One op over given inputs, to see which element its rule names.
struct OneOp {
  RunBuilder b;
  OneOp() {
    b.request(0, {1, 2, 3});
    b.step(0, 0, 0, 3);
  }
  std::int64_t source(const testing::Shape& shape, const testing::Fill& fill) {
    b.op(0, "source", "unknown", {});
    return b.output("out", shape, fill);
  }
  std::string next(std::int64_t tensor, std::int64_t row, std::int64_t channel) {
    const WhyPath path = why_of(b, tensor, row, channel);
    return path.hops.size() > 1 ? place_text(path.hops[1].where) : std::string("end");
  }
};

TEST(Rules, GemmNamesTheBadChannelOfTheRow) {
  OneOp one;
  const auto x =
      one.source({3, 4, 0, 1}, [](auto row, auto channel) { return row == 1 && channel == 2 ? kNan : 1.0F; });
  one.b.op(0, "o_proj", "gemm", {{"x", x}});
  const auto out = one.b.output("out", {3, 2, 0, 1}, [](auto row, auto) { return row == 1 ? kNan : 1.0F; });
  EXPECT_EQ(one.next(out, 1, 0), "0/0/0/source.out[1,2]");
}

TEST(Rules, GemmWithABadWeightEndsAtTheWeight) {
  OneOp one;
  one.b.weight("w", 1);
  const auto x = one.source({3, 4, 0, 1}, testing::constant(1));
  one.b.op(0, "o_proj", "gemm", {{"x", x}, {"weight", 0, "w"}});
  const auto out = one.b.output("out", {3, 2, 0, 1}, testing::constant(kNan));
  const WhyPath path = why_of(one.b, out, 1, 0);
  EXPECT_EQ(path.hops.back().kind, HopKind::weight);
  EXPECT_EQ(path.origin, 0U);
}

TEST(Rules, RopeLooksAtThePartnerChannel) {
  OneOp one;
  const auto x =
      one.source({3, 8, 0, 2}, [](auto row, auto channel) { return row == 0 && channel == 6 ? kNan : 1.0F; });
  one.b.op(0, "q_rope", "rope", {{"x", x}});
  const auto out = one.b.output("out", {3, 8, 0, 2}, [](auto row, auto channel) {
    return row == 0 && (channel == 6 || channel == 4) ? kNan : 1.0F;
  });
  EXPECT_EQ(one.next(out, 0, 4), "0/0/0/source.out[0,6]");
  EXPECT_EQ(one.next(out, 0, 6), "0/0/0/source.out[0,6]");
}

TEST(Rules, RopeNamesAStretchThatHasNoPower) {
  OneOp one;
  const auto x = one.source({3, 8, 0, 2}, testing::constant(1));
  one.b.op(0, "q_rope", "rope", {{"x", x}}, R"({"base":1000,"factor":2,"trained":2048,"served":512,"stretch":-0.5})");
  const auto out = one.b.output("out", {3, 8, 0, 2}, testing::constant(kNan));
  const WhyPath path = why_of(one.b, out, 1, 0);
  EXPECT_EQ(path.origin, 0U);
  EXPECT_THAT(path.hops.front().text, HasSubstr("1000 is stretched by 2 * 512 / 2048 - 1 = -0.5"));
}

TEST(Rules, ScoresUseTheKeyHeadOfTheirGroup) {
  OneOp one;
  const auto q = one.source({3, 8, 0, 4}, testing::constant(1));
  const auto k =
      one.source({5, 4, 0, 2}, [](auto key, auto channel) { return key == 3 && channel == 3 ? kNan : 1.0F; });
  one.b.op(0, "scores", "attention_scores", {{"q", q}, {"k", k}}, R"({"heads":4,"kv_heads":2})");
  const auto out = one.b.output("out", {3, 20, 0, 4},
                                [](auto, auto channel) { return channel % 5 == 3 && channel / 5 >= 2 ? kNan : 1.0F; });
  EXPECT_EQ(one.next(out, 1, 3 * 5 + 3), "0/0/0/source.out[3,3]");
}

TEST(Rules, MixNamesTheNaNValueBehindAZeroProbability) {
  OneOp one;
  const auto p = one.source({3, 4, 0, 1}, [](auto, auto key) { return key == 0 ? 1.0F : 0.0F; });
  const auto v = one.source({4, 2, 0, 1}, [](auto key, auto) { return key == 3 ? kNan : 1.0F; });
  one.b.op(0, "attn_mix", "attention_mix", {{"probs", p}, {"v", v}},
           R"({"heads":1,"kv_heads":1,"visible_only":false})");
  const auto out = one.b.output("out", {3, 2, 0, 1}, testing::constant(kNan));
  const WhyPath path = why_of(one.b, out, 0, 1);
  EXPECT_EQ(place_text(path.hops[1].where), "0/0/0/source.out[3,1]");
  EXPECT_THAT(path.hops[0].text, HasSubstr("0 * NaN is NaN"));
}

TEST(Rules, SoftmaxUnderASelectingMaskIgnoresHiddenKeys) {
  OneOp one;
  const auto scores = one.source({3, 4, 0, 1}, [](auto, auto key) { return key >= 1 ? kNan : 1.0F; });
  one.b.op(0, "softmax", "softmax", {{"scores", scores}},
           R"({"mask":"select","heads":1,"first_position":0,"first_key":0})");
  const auto out = one.b.output("probs", {3, 4, 0, 1}, [](auto row, auto) { return row >= 1 ? kNan : 1.0F; });
  EXPECT_EQ(one.next(out, 2, 0), "0/0/0/source.out[2,1]");
  const WhyPath healthy = why_of(one.b, out, 0, 0);
  EXPECT_EQ(place_text(healthy.hops[1].where), "0/0/0/source.out[0,0]");
}

TEST(Rules, SoftmaxWithoutAKeyIsAnOrigin) {
  OneOp one;
  const auto scores = one.source({3, 4, 0, 1}, testing::constant(1));
  one.b.op(0, "softmax", "softmax", {{"scores", scores}},
           R"({"mask":"additive","heads":1,"first_position":0,"first_key":2})");
  const auto out = one.b.output("probs", {3, 4, 0, 1}, [](auto row, auto) { return row < 2 ? kNan : 1.0F; });
  const WhyPath path = why_of(one.b, out, 1, 0);
  EXPECT_EQ(path.origin, 0U);
  EXPECT_THAT(path.hops[0].text, HasSubstr("no key to attend to"));
}

TEST(Rules, ResidualShowsTheSumThatLeftTheRange) {
  OneOp one;
  const auto a = one.source({3, 4, 0, 1}, testing::constant(58820));
  const auto c = one.source({3, 4, 0, 1}, testing::constant(33760));
  one.b.op(0, "mlp_residual", "residual_add", {{"a", a}, {"b", c}});
  const auto out = one.b.output("out", {3, 4, 0, 1}, testing::constant(kInf), Format::f16);
  const WhyPath path = why_of(one.b, out, 0, 0);
  EXPECT_EQ(path.origin, 0U);
  EXPECT_THAT(path.hops[0].text, HasSubstr("58820 + 33760 = 92580 is beyond the largest finite f16 65504"));
  EXPECT_EQ(place_text(path.hops[1].where), "0/0/0/source.out[0,0]");
}

TEST(Rules, RecurrenceGoesBackToTheTokenThatWasBad) {
  OneOp one;
  const auto x =
      one.source({3, 2, 0, 1}, [](auto row, auto channel) { return row == 0 && channel == 1 ? kNan : 1.0F; });
  one.b.op(0, "recurrent", "recurrent_scan", {{"x", x}});
  const auto out = one.b.output("out", {3, 2, 0, 1}, [](auto, auto channel) { return channel == 1 ? kNan : 1.0F; });
  const WhyPath path = why_of(one.b, out, 2, 1);
  EXPECT_THAT(places(path), ElementsAre("0/0/0/recurrent.out[2,1]", "0/0/0/recurrent.out[1,1]",
                                        "0/0/0/recurrent.out[0,1]", "0/0/0/source.out[0,1]"));
}

TEST(Rules, EmbeddingOfAnImageTokenLeadsToItsPatch) {
  RunBuilder b;
  b.request(0, {1, -1, -1});
  b.step(0, 0, 0, 3);
  b.op(-1, "patch_embed", "patch_embedding", {{"weight", 0, "p"}});
  const auto patches = b.output("out", {2, 2, 1, 1}, [](auto row, auto) { return row == 1 ? kNan : 1.0F; });
  b.op(-1, "embed", "embedding", {{"patches", patches}});
  const auto out = b.output("out", {3, 2, 0, 1}, [](auto row, auto) { return row == 2 ? kNan : 1.0F; });
  const WhyPath path = why_of(b, out, 2, 1);
  EXPECT_THAT(places(path), ElementsAre("0/0/-/embed.out[2,1]", "0/0/-/patch_embed.out[2,1]"));
}

TEST(Rules, AttributesOfADamagedRowLeadNowhereElse) {
  for (const char* attributes : {R"({"heads":1e300,"kv_heads":-5})", R"({"heads":"many"})", "not json", "[]"}) {
    OneOp one;
    const auto q = one.source({3, 4, 0, 1}, testing::constant(1));
    const auto k = one.source({3, 4, 0, 1}, testing::constant(kNan));
    one.b.op(0, "scores", "attention_scores", {{"q", q}, {"k", k}}, attributes);
    const auto out = one.b.output("out", {3, 3, 0, 1}, testing::constant(kNan));
    EXPECT_FALSE(why_of(one.b, out, 2, 2).hops.empty()) << attributes;
  }
}

TEST(Rules, AnUnknownKindEndsTheWalkHonestly) {
  OneOp one;
  const auto out = one.source({3, 2, 0, 1}, testing::constant(kNan));
  const WhyPath path = why_of(one.b, out, 0, 0);
  EXPECT_EQ(path.hops.size(), 1U);
  EXPECT_THAT(path.hops[0].text, HasSubstr("nothing says how it was made"));
}

TEST(Rules, ReadingASlotThatNobodyWroteIsTheOrigin) {
  RunBuilder b;
  b.request(0, {1});
  b.step(0, 0, 0, 1);
  b.kv(0, 7, 0, 2, 0, KvAction::allocated);
  b.op(0, "kv_read", "kv_read", {{"pool"}});
  const auto v = b.output("v_read", {2, 2, 0, 1}, [](auto key, auto) { return key == 1 ? kNan : 1.0F; });
  const WhyPath path = why_of(b, v, 1, 0);
  EXPECT_THAT(path.hops.back().text, HasSubstr("block 7 slot 1 was never written"));
  EXPECT_TRUE(path.origin.has_value());
}

}  // namespace
}  // namespace nanscope
