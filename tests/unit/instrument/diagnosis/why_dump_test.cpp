#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/diagnosis/dump_graph.h"

namespace nanscope::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(WhyInDumps, GoesThroughWhatWasNotDumpedToTheBadInput) {
  DumpGraph g;
  g.pass();
  const auto healthy = g.source();
  const auto bad = g.op("o_proj", OpKind::gemm, {{"x", healthy}}, {.fill = row_of(2, kNan)});
  const auto sum = g.unknown("attn_residual", OpKind::residual_add, {{"a", healthy}, {"b", bad}});
  const auto out = g.op("mlp_norm", OpKind::layer_norm, {{"x", sum}}, {.fill = row_of(2, kNan)});
  const WhyPath path = walk_from(g, out, 2, 1);
  EXPECT_THAT(names(path), ElementsAre("p1.mlp_norm", "0/0/0/attn_residual.out", "p1.o_proj"));
  EXPECT_THAT(hop(path, 1).text, HasSubstr("not dumped; of what its residual_add read, p1.o_proj[2,0] is NaN"));
  EXPECT_TRUE(hop(path, 1).bad);
  EXPECT_EQ(hop(path, 1).value, std::nullopt);
  EXPECT_EQ(path.origin, 2U);
  EXPECT_THAT(path.conclusion, HasSubstr("born at p1.o_proj[2,0]"));
}

TEST(WhyInDumps, OtherRowsOfWhatWasNotDumpedAreAnotherMatter) {
  DumpGraph g;
  g.pass();
  const auto x = g.source({.fill = row_of(1, kNan)});
  const auto middle = g.unknown("attn_residual", OpKind::residual_add, {{"a", x}});
  const auto out = g.op("mlp_norm", OpKind::layer_norm, {{"x", middle}}, {.fill = row_of(2, kNan)});
  const WhyPath path = walk_from(g, out, 2, 1);
  EXPECT_EQ(path.origin, 0U);
  EXPECT_THAT(hop(path, 0).text, HasSubstr("nothing bad is known of what that is made of: born here, or in between"));
}

TEST(WhyInDumps, ASequenceOfUnknownTensorsIsFollowedToItsEnd) {
  DumpGraph g;
  g.pass();
  const auto q = g.source();
  const auto x = g.source({.fill = row_of(0, kNan)});
  const auto k = g.unknown("k_proj", OpKind::gemm, {{"x", x}});
  const auto mixed = g.unknown("attention", OpKind::attention, {{"q", q}, {"k", k}, {"v", k}});
  const auto out = g.op("o_proj", OpKind::gemm, {{"x", mixed}}, {.fill = row_of(3, kNan)});
  const WhyPath path = walk_from(g, out, 3, 0);
  EXPECT_THAT(names(path), ElementsAre("p1.o_proj", "0/0/0/attention.out", "0/0/0/k_proj.out", "p1.source"));
}

TEST(WhyInDumps, AHealthyElementGoesToTheFirstInput) {
  DumpGraph g;
  g.pass();
  const auto weight = g.parameter("w", 4, 4, constant(1));
  const auto x = g.source();
  const auto middle = g.unknown("up_proj", OpKind::gemm, {{"weight", weight}, {"x", x}});
  const auto out = g.op("act", OpKind::activation, {{"x", middle}});
  const WhyPath path = walk_from(g, out, 1, 1);
  EXPECT_THAT(names(path), ElementsAre("p1.act", "0/0/0/up_proj.out", "p1.source"));
  EXPECT_THAT(path.conclusion, HasSubstr("healthy"));
}

TEST(WhyInDumps, ManyLayersThatWereNotDumpedEnd) {
  DumpGraph g;
  g.pass({Span{0, 0, 0, 64, 0, 64}}, 64);
  TensorId x = g.source({.tokens = 64});
  for (int layer = 0; layer < 60; ++layer) {
    const auto attended = g.unknown("attention", OpKind::attention, {{"q", x}, {"k", x}, {"v", x}});
    const auto middle = g.unknown("attn_residual", OpKind::residual_add, {{"a", x}, {"b", attended}});
    x = g.unknown("mlp_residual", OpKind::residual_add, {{"a", middle}, {"b", middle}});
  }
  const auto out = g.op("lm_head", OpKind::gemm, {{"x", x}}, {.tokens = 64, .fill = row_of(63, kNan)});
  EXPECT_EQ(walk_from(g, out, 63, 0).origin, 0U);
}

TEST(WhyInDumps, ACopyInANarrowerFormatOverflows) {
  DumpGraph g;
  g.pass();
  const auto x = g.source({.fill = one_at(1, 2, 70000)});
  const auto out = g.op("o_proj_input", OpKind::copy, {{"x", x}}, {.fill = one_at(1, 2, 70000), .format = Format::f16});
  const WhyPath path = walk_from(g, out, 1, 2);
  EXPECT_EQ(path.origin, 0U);
  EXPECT_THAT(hop(path, 0).text,
              HasSubstr("cast to f16: p1.source[1,2] is 70000 (0x4788B800), beyond the largest finite f16 65504"));
}

TEST(WhyInDumps, ASplitBeginsAtItsFirstChannel) {
  DumpGraph g;
  g.pass();
  const auto fused = g.op("qkv_proj", OpKind::gemm, {}, {.channels = 12, .fill = one_at(1, 9, kNan)});
  SplitAttributes at;
  at.first_channel = 8;
  const auto v = g.op("v_proj", OpKind::split, {{"x", fused}}, {.role = "v", .fill = one_at(1, 1, kNan)}, at);
  const WhyPath path = walk_from(g, v, 1, 1);
  ASSERT_EQ(path.hops.size(), 2U);
  EXPECT_EQ(place_text(hop(path, 1).where), "0/0/0/qkv_proj.out[1,9]");
  EXPECT_TRUE(hop(path, 1).bad);
}

/// Two heads of 6 channels, of which values are the last two; and keys of two own channels and two shared ones.
TEST(WhyInDumps, PartsOfHeadsLeadToTheirHeadAndToWhatAllShare) {
  DumpGraph g;
  g.pass();
  const auto kv = g.op("kv_b_proj", OpKind::gemm, {}, {.channels = 12, .fill = one_at(1, 11, kNan)});
  const auto v = g.op("v_split", OpKind::split, {{"x", kv}}, {.role = "v", .channels = 4, .fill = one_at(1, 3, kNan)},
                      SplitAttributes{4, 2});
  EXPECT_EQ(place_text(hop(walk_from(g, v, 1, 3), 1).where), "0/0/0/kv_b_proj.out[1,11]");
  const auto shared = g.op("k_rope", OpKind::rope, {}, {.channels = 2, .fill = one_at(1, 1, kNan)});
  const auto k = g.op("k_join", OpKind::join, {{"x", kv}, {"shared", shared}},
                      {.role = "k_rot", .channels = 8, .fill = one_at(1, 7, kNan)}, JoinAttributes{2});
  EXPECT_EQ(place_text(hop(walk_from(g, k, 1, 7), 1).where), "0/0/0/k_rope.out[1,1]");
  const auto own = g.op("kv_b_other", OpKind::gemm, {}, {.channels = 12, .fill = one_at(2, 7, kNan)});
  const auto joined = g.op("k_join_other", OpKind::join, {{"x", own}, {"shared", shared}},
                           {.role = "k_rot", .channels = 8, .fill = one_at(2, 5, kNan)}, JoinAttributes{2});
  EXPECT_EQ(place_text(hop(walk_from(g, joined, 2, 5), 1).where), "0/0/0/kv_b_other.out[2,7]");
}

TEST(WhyInDumps, ASplitBeyondItsSourceStaysInside) {
  DumpGraph g;
  g.pass();
  const auto fused = g.op("qkv_proj", OpKind::gemm, {}, {.fill = row_of(1, kNan)});
  SplitAttributes at;
  at.first_channel = std::numeric_limits<std::int64_t>::max();
  const auto v = g.op("v_proj", OpKind::split, {{"x", fused}}, {.fill = row_of(1, kNan)}, at);
  const WhyPath path = walk_from(g, v, 1, 3);
  EXPECT_THAT(names(path), ElementsAre("p1.v_proj", "p1.qkv_proj"));
  EXPECT_THAT(hop(path, 0).text, HasSubstr("not where its width says"));
}

/// x / scale as e4m3, where row 1 channel 2 of x is `value`.
struct Quantised {
  DumpGraph g;
  TensorId codes = 0;
  Quantised(float value, float scale, Overflow overflow) {
    g.pass();
    const auto x = g.source({.fill = one_at(1, 2, value)});
    const auto s = g.parameter("x_scale", 1, 1, constant(scale));
    const float quotient = value / scale;
    const float stored = overflow == Overflow::saturate ? std::min(quotient, 448.0F) : quotient;
    codes = g.op("x_quantise", OpKind::quantise, {{"x", x}, {"scale", s}},
                 {.role = "codes", .fill = one_at(1, 2, stored), .format = Format::e4m3});
  }
};

TEST(WhyInDumps, AQuantisedValueIsClippedByItsScale) {
  Quantised made(100, 0.125F, Overflow::saturate);
  const WhyPath path = walk_from(made.g, made.codes, 1, 2);
  EXPECT_THAT(names(path), ElementsAre("p1.x_quantise.codes", "scale p1.x_scale.weight"));
  EXPECT_THAT(hop(path, 0).text, HasSubstr("100 (0x42C80000) / 0.125 (p1.x_scale.weight) = 800 is beyond the largest "
                                           "finite e4m3 448: clipped as 448 (0x7E)"));
  EXPECT_THAT(path.conclusion, HasSubstr("the setting behind it: p1.x_scale.weight is 0.125"));
  EXPECT_EQ(number(hop(path, 1), "scale"), "0.125");
}

TEST(WhyInDumps, AQuantisedValueOverflows) {
  Quantised made(100, 0.125F, Overflow::overflow);
  const WhyPath path = walk_from(made.g, made.codes, 1, 2);
  EXPECT_EQ(path.origin, 0U);
  EXPECT_THAT(hop(path, 0).text, HasSubstr("overflowed as NaN (0x7F)"));
}

TEST(WhyInDumps, AScaleThatCannotBeOneIsNamed) {
  Quantised made(100, 0, Overflow::overflow);
  const WhyPath path = walk_from(made.g, made.codes, 1, 2);
  EXPECT_THAT(hop(path, 0).text, HasSubstr("/ 0 (p1.x_scale.weight) became NaN (0x7F)"));
  EXPECT_THAT(hop(path, 1).text, HasSubstr("a scale that is zero"));
}

TEST(WhyInDumps, ScalesOfHeadsAndRowsAreFound) {
  DumpGraph g;
  g.pass();
  const auto x = g.source({.fill = constant(100)});
  const auto rows = g.parameter("x_scale", 4, 1, [](auto row, auto) { return row == 2 ? 0.125F : 1.0F; });
  const auto groups = g.parameter("w_scale", 1, 2, [](auto, auto channel) { return channel == 1 ? 0.125F : 1.0F; });
  const auto clipped = Made{.role = "codes", .fill = constant(448), .format = Format::e4m3};
  const auto by_row = g.op("x_quantise", OpKind::quantise, {{"x", x}, {"scale", rows}}, clipped);
  const auto by_group = g.op("w_quantise", OpKind::quantise, {{"x", x}, {"scale", groups}}, clipped);
  EXPECT_EQ(place_text(hop(walk_from(g, by_row, 2, 0), 1).where), "0/0/0/x_scale.weight[2,0]");
  EXPECT_EQ(place_text(hop(walk_from(g, by_group, 0, 3), 1).where), "0/0/0/w_scale.weight[0,1]");
}

TEST(WhyInDumps, ReadingBackNamesTheScaleOrTheOtherFlavour) {
  DumpGraph g;
  g.pass();
  const auto x = g.source();
  const auto codes = g.op("x_quantise", OpKind::quantise, {{"x", x}},
                          {.role = "codes", .fill = one_at(0, 0, -0.0F), .format = Format::e4m3});
  const auto nan = g.parameter("x_scale", 1, 1, constant(kNan));
  const auto fine = g.parameter("y_scale", 1, 1, constant(2));
  const auto bad = Made{.fill = constant(kNan)};
  const auto scaled = g.op("x_dequantise", OpKind::dequantise, {{"codes", codes}, {"scale", nan}}, bad);
  const auto misread = g.op("y_dequantise", OpKind::dequantise, {{"codes", codes}, {"scale", fine}}, bad);
  const WhyPath by_scale = walk_from(g, scaled, 0, 1);
  EXPECT_EQ(by_scale.origin, 0U);
  EXPECT_THAT(names(by_scale), ElementsAre("p1.x_dequantise", "scale p1.x_scale.weight"));
  const WhyPath by_flavour = walk_from(g, misread, 0, 0);
  EXPECT_THAT(hop(by_flavour, 0).text, HasSubstr("-0 (0x80) times 2 (p1.y_scale.weight) became NaN"));
  EXPECT_THAT(hop(by_flavour, 0).text, HasSubstr("in e4m3fnuz the code is NaN or Inf"));
  EXPECT_THAT(names(by_flavour), ElementsAre("p1.y_dequantise", "p1.x_quantise.codes"));
}

TEST(WhyInDumps, FusedAttentionNamesTheBadQueryKeyOrValue) {
  const auto next = [](const Fill& q, const Fill& k, const Fill& v) {
    DumpGraph g;
    g.pass();
    const auto query = g.op("q_rope", OpKind::rope, {}, {.channels = 8, .fill = q, .heads = 4});
    const auto key = g.op("k_rope", OpKind::rope, {}, {.fill = k, .heads = 2});
    const auto value = g.op("v_proj", OpKind::gemm, {}, {.fill = v, .heads = 2});
    const auto out = g.op("attention", OpKind::attention, {{"q", query}, {"k", key}, {"v", value}},
                          {.channels = 8, .fill = constant(kNan), .heads = 4});
    const WhyPath path = walk_from(g, out, 2, 7);
    return path.hops.size() > 1 ? fmt::format("{}: {}", place_text(hop(path, 1).where), hop(path, 0).text)
                                : hop(path, 0).text;
  };
  const Fill fine = constant(1);
  EXPECT_THAT(next(one_at(2, 6, kNan), fine, fine), HasSubstr("q_rope.out[2,6]: head 3: the query: "));
  EXPECT_THAT(next(fine, one_at(1, 3, kNan), fine), HasSubstr("k_rope.out[1,3]: head 3: the key at position 1: "));
  EXPECT_THAT(next(fine, one_at(3, 2, kNan), fine), HasSubstr("the key at position 3, later than the row's own: "));
  EXPECT_THAT(next(fine, fine, one_at(0, 3, kNan)), HasSubstr("v_proj.out[0,3]: head 3: the value at position 0: "));
  EXPECT_THAT(next(one_at(2, 1, kNan), fine, fine),
              HasSubstr("all is finite where this head should read, and p1.q_rope[2,1] is NaN"));
  EXPECT_THAT(next(fine, fine, fine), HasSubstr("query, keys and values are healthy; what the attention made of them"));
}

TEST(WhyInDumps, ABatchHasItsKeysFrameByFrame) {
  DumpGraph g;
  // The second of two sequences in frames of three begins with one row of padding.
  g.pass({Span{0, 0, 0, 3, 0, 3}, Span{1, 0, 4, 2, 0, 2}}, 6, 2);
  const auto q = g.op("q_rope", OpKind::rope, {}, {.tokens = 6});
  const auto k = g.op("k_rope", OpKind::rope, {}, {.tokens = 6, .fill = row_of(3, kNan)});
  const auto v = g.op("v_proj", OpKind::gemm, {}, {.tokens = 6});
  const auto scores = g.op("scores", OpKind::attention_scores, {{"q", q}, {"k", k}},
                           {.role = "scores", .tokens = 6, .channels = 3, .fill = constant(kNan)});
  const auto out =
      g.op("attention", OpKind::attention, {{"q", q}, {"k", k}, {"v", v}}, {.tokens = 6, .fill = constant(kNan)});
  EXPECT_THAT(hop(walk_from(g, scores, 4, 0), 0).text, HasSubstr("at p1.k_rope[3,0] (padding)"));
  EXPECT_EQ(walk_from(g, scores, 1, 0).origin, 0U);
  EXPECT_THAT(hop(walk_from(g, out, 5, 0), 0).text, HasSubstr("in the padding of the batch: p1.k_rope[3,0]"));
}

TEST(WhyInDumps, ANormWithoutStatisticsIsRecomputed) {
  DumpGraph g;
  g.pass();
  const auto zero = g.source({.fill = constant(0)});
  const auto far = g.source({.fill = [](auto, auto channel) { return 3000.0F + 0.01F * static_cast<float>(channel); }});
  const auto part = g.source({.fill = constant(1500)});
  const auto sum = g.unknown("embed_sum", OpKind::residual_add, {{"a", part}, {"b", part}});
  const auto bad = Made{.fill = constant(kNan)};
  const auto of_zero = g.op("k_norm", OpKind::layer_norm, {{"x", zero}}, bad);
  const auto of_far = g.op("attn_norm", OpKind::layer_norm, {{"x", far}}, bad);
  const auto of_sum = g.op("mlp_norm", OpKind::layer_norm, {{"x", sum}}, bad);
  EXPECT_THAT(hop(walk_from(g, of_zero, 1, 0), 0).text, HasSubstr("it is all zero: without an epsilon that is 0/0"));
  EXPECT_THAT(hop(walk_from(g, of_far, 1, 0), 0).text, HasSubstr("E[x^2] - E[x]^2 can fall below 0 in f32"));
  EXPECT_THAT(hop(walk_from(g, of_sum, 1, 0), 0).text, HasSubstr("its variance is 0 at a mean of 3000"));
}

TEST(WhyInDumps, ANormOfHeadsLooksAtItsHead) {
  DumpGraph g;
  g.pass();
  const auto weight = g.parameter("q_norm_weight", 1, 2, constant(1));
  const auto x = g.source({.fill = one_at(1, 3, kNan), .heads = 2});
  const auto out =
      g.op("q_norm", OpKind::layer_norm, {{"x", x}, {"weight", weight}}, {.fill = row_of(1, kNan), .heads = 2});
  EXPECT_EQ(place_text(hop(walk_from(g, out, 1, 2), 1).where), "0/0/0/source.out[1,3]");
  EXPECT_EQ(walk_from(g, out, 1, 0).origin, 0U);
}

TEST(WhyInDumps, AWeightEndsTheWalkWhereItsRowIsBad) {
  DumpGraph g;
  g.pass();
  const auto weight = g.parameter("up_proj_weight", 3, 4, one_at(2, 1, kNan));
  const auto x = g.source();
  const auto out =
      g.op("up_proj", OpKind::gemm, {{"x", x}, {"weight", weight}}, {.channels = 3, .fill = constant(kNan)});
  const WhyPath path = walk_from(g, out, 0, 2);
  EXPECT_THAT(names(path), ElementsAre("p1.up_proj", "weight p1.up_proj_weight.weight"));
  EXPECT_EQ(place_text(hop(path, 1).where), "0/0/0/up_proj_weight.weight[2,1]");
  EXPECT_EQ(path.stopped, "a weight is bad");
  EXPECT_THAT(names(walk_from(g, out, 0, 1)), ElementsAre("p1.up_proj"));
}

TEST(WhyInDumps, AnEmbeddingLeadsToTheRowOfItsToken) {
  DumpGraph g;
  g.pass();
  const auto ids = g.op("tokens", OpKind::parameter, {},
                        {.role = "tokens", .channels = 1, .fill = row_of(2, 5), .format = Format::i32});
  const auto table = g.parameter("embed_weight", 8, 4, one_at(5, 3, kNan));
  const auto out = g.op("embed", OpKind::embedding, {{"tokens", ids}, {"weight", table}}, {.fill = one_at(2, 3, kNan)});
  const WhyPath path = walk_from(g, out, 2, 3);
  EXPECT_THAT(hop(path, 0).text, HasSubstr("the embedding of token 5, whose row of p1.embed_weight.weight holds NaN"));
  EXPECT_EQ(place_text(hop(path, 1).where), "0/0/0/embed_weight.weight[5,3]");
}

TEST(WhyInDumps, GatesThatAddUpToNothingAreNamed) {
  DumpGraph g;
  g.pass();
  const auto logits = g.source({.fill = constant(-20)});
  const auto weights = g.op("route", OpKind::route, {{"logits", logits}},
                            {.role = "router_weights", .channels = 2, .fill = constant(kNan)});
  g.op("route_ids", OpKind::route, {{"logits", logits}},
       {.role = "router_ids", .channels = 2, .fill = one_at(0, 1, 3), .format = Format::i32});
  EXPECT_THAT(hop(walk_from(g, weights, 1, 0), 0).text,
              HasSubstr("add up to 4.12e-09, of which f32 keeps nothing beside a bias of 1: 0/0"));
}

TEST(WhyInDumps, ExpertsAreFoundByTheirRole) {
  DumpGraph g;
  g.pass();
  const auto x = g.source();
  const auto weights = g.op("route", OpKind::route, {}, {.role = "router_weights", .channels = 2});
  const auto one = g.op("expert0_down_proj", OpKind::gemm, {});
  const auto two = g.op("expert1_down_proj", OpKind::gemm, {}, {.fill = one_at(1, 1, kNan)});
  const auto out = g.op("experts", OpKind::expert_mix,
                        {{"x", x}, {"weights", weights}, {"expert", one}, {"expert", two}}, {.fill = row_of(1, kNan)});
  EXPECT_THAT(names(walk_from(g, out, 1, 1)), ElementsAre("p1.experts", "p1.expert1_down_proj"));
  EXPECT_EQ(walk_from(g, out, 1, 2).origin, 0U);
}

TEST(WhyInDumps, LogitsAreDividedByTheTemperature) {
  DumpGraph g;
  g.pass();
  const auto logits = g.source({.role = "logits"});
  const auto zero = g.parameter("temperature", 1, 1, constant(0));
  const auto out = g.op("scaled_logits", OpKind::token_softmax, {{"x", logits}, {"temperature", zero}},
                        {.role = "scaled_logits", .fill = constant(kInf)});
  const WhyPath path = walk_from(g, out, 3, 0);
  EXPECT_THAT(hop(path, 0).text, HasSubstr("1 (0x3F800000) divided by the temperature 0 (p1.temperature.weight)"));
  EXPECT_EQ(hop(path, 1).kind, HopKind::scale);
}

TEST(WhyInDumps, WhatWasLaunderedIsSaid) {
  DumpGraph g;
  g.pass();
  const auto logits = g.source({.role = "logits", .fill = constant(kNan)});
  const auto out = g.op("token_softmax", OpKind::token_softmax, {{"logits", logits}}, {.role = "probs"});
  EXPECT_THAT(hop(walk_from(g, out, 3, 0), 0).text, HasSubstr("it was laundered"));
  const auto scores = g.op("scores", OpKind::attention_scores, {}, {.role = "scores", .fill = one_at(2, 1, kNan)});
  const auto probs = g.op("softmax", OpKind::softmax, {{"scores", scores}}, {.role = "probs"});
  EXPECT_THAT(hop(walk_from(g, probs, 2, 0), 0).text,
              HasSubstr("1 of 4 scores of the row are bad and what came out is not"));
  const auto copied = g.op("logits_processor", OpKind::copy, {{"x", logits}}, {.role = "logits"});
  EXPECT_THAT(hop(walk_from(g, copied, 2, 0), 0).text, HasSubstr("and here it is a number: it was laundered"));
  const auto token = g.op("argmax", OpKind::argmax, {{"logits", logits}},
                          {.role = "token", .channels = 1, .fill = constant(0), .format = Format::i32});
  EXPECT_THAT(hop(walk_from(g, token, 3, 0), 0).text, HasSubstr("4 of 4 logits are NaN or Inf, token 0"));
}

TEST(WhyInDumps, ValuesOfOtherHeadsAreMentioned) {
  DumpGraph g;
  g.pass();
  const auto probs = g.op("softmax", OpKind::softmax, {}, {.role = "probs", .channels = 8});
  const auto v = g.op("v_proj", OpKind::gemm, {}, {.role = "v", .fill = one_at(2, 3, kNan)});
  MixAttributes form;
  form.heads = form.kv_heads = 2;
  const auto out =
      g.op("attn_mix", OpKind::attention_mix, {{"probs", probs}, {"v", v}}, {.fill = constant(kNan)}, form);
  EXPECT_THAT(hop(walk_from(g, out, 1, 3), 0).text, HasSubstr("head 1: probability 1 times value NaN"));
  const WhyPath path = walk_from(g, out, 1, 0);
  EXPECT_EQ(path.origin, std::nullopt);
  EXPECT_THAT(hop(path, 0).text, HasSubstr("finite where this head should read them, and p1.v_proj.v[2,3] is NaN"));
}

TEST(WhyInDumps, ASumOverWhatWasNotDumpedLeavesTheRange) {
  DumpGraph g;
  g.pass();
  const auto x = g.source({.fill = constant(40000)});
  const auto small = g.source({.fill = constant(2000)});
  const auto middle = g.unknown("attn_residual", OpKind::residual_add, {{"a", x}, {"b", small}});
  const auto branch = g.op("down_proj", OpKind::gemm, {}, {.fill = constant(30000)});
  const auto out = g.op("mlp_residual", OpKind::residual_add, {{"a", middle}, {"b", branch}},
                        {.fill = constant(72000), .format = Format::f16});
  const WhyPath path = walk_from(g, out, 0, 0);
  EXPECT_EQ(path.origin, 0U);
  EXPECT_THAT(hop(path, 0).text, HasSubstr("42000 (a sum that was not dumped) + 30000 = 72000 is beyond the largest "
                                           "finite f16 65504"));
}

TEST(WhyInDumps, AFusedGateIsTwiceAsWide) {
  DumpGraph g;
  g.pass();
  const auto fused = g.op("gate_up_proj", OpKind::gemm, {}, {.channels = 8, .fill = one_at(1, 6, kNan)});
  const auto out = g.op("act", OpKind::activation, {{"gate_up", fused}}, {.fill = one_at(1, 2, kNan)});
  EXPECT_EQ(place_text(hop(walk_from(g, out, 1, 2), 1).where), "0/0/0/gate_up_proj.out[1,6]");
  const auto gate = g.source({.fill = constant(300)});
  const auto over =
      g.op("act", OpKind::activation, {{"gate", gate}, {"up", gate}}, {.fill = constant(90000), .format = Format::f16});
  EXPECT_THAT(hop(walk_from(g, over, 0, 0), 0).text,
              HasSubstr("300 times 300 = 90000 is beyond the largest finite f16"));
}

TEST(WhyInDumps, RotationsOfNeighboursAreFoundByTheirNumbers) {
  DumpGraph g;
  g.pass();
  const auto x = g.source({.channels = 8, .fill = one_at(0, 1, kNan)});
  const auto out = g.op("q_rope", OpKind::rope, {{"x", x}}, {.channels = 8, .fill = one_at(0, 0, kNan)});
  EXPECT_EQ(place_text(hop(walk_from(g, out, 0, 0), 1).where), "0/0/0/source.out[0,1]");
}

TEST(WhyInDumps, HiddenScoresAreNotBadAndARowOfThemIsAnOrigin) {
  DumpGraph g;
  g.pass();
  const auto mask = g.op("mask", OpKind::parameter, {},
                         {.role = "mask", .fill = row_of(1, 0), .format = Format::i32, .axis = Axis::none});
  const auto scores =
      g.op("scores", OpKind::attention_scores, {},
           {.role = "scores", .fill = [](auto row, auto key) { return key > 0 || row == 1 ? -kInf : 1; }});
  const auto probs = g.op("softmax", OpKind::softmax, {{"scores", scores}, {"mask", mask}},
                          {.role = "probs", .fill = row_of(1, kNan)});
  const WhyPath path = walk_from(g, probs, 1, 0);
  EXPECT_EQ(path.origin, 0U);
  EXPECT_THAT(hop(path, 0).text, HasSubstr("all 4 scores of the row are -Inf, it has no key to attend to"));
  EXPECT_THAT(hop(path, 0).text, HasSubstr("p1.mask.mask is 0 for all 4 keys of the row"));
  EXPECT_THAT(names(path), ElementsAre("p1.softmax.probs", "weight p1.mask.mask"));
  const WhyPath healthy = walk_from(g, probs, 2, 0);
  EXPECT_THAT(hop(healthy, 0).text, HasSubstr("3 are -Inf and none is NaN or +Inf"));
  EXPECT_FALSE(hop(walk_from(g, scores, 0, 2), 0).bad);
}

TEST(WhyInDumps, HiddenLogitsAreNotCalledFinite) {
  DumpGraph g;
  g.pass();
  const auto logits = g.source({.role = "logits", .fill = one_at(1, 2, -kInf)});
  const auto out = g.op("lm_head", OpKind::gemm, {{"x", logits}});
  EXPECT_THAT(hop(walk_from(g, out, 1, 0), 0).text,
              HasSubstr("none of 4 inputs of the row is NaN or +Inf, the largest is p1.source.logits[1,0] = 1"));
  EXPECT_THAT(hop(walk_from(g, out, 2, 0), 0).text, HasSubstr("all 4 inputs of the row are finite"));
}

TEST(WhyInDumps, ModulesSayThatTheirInsideWasNotDumped) {
  DumpGraph g;
  g.pass();
  const auto x = g.source({.fill = row_of(0, kNan)});
  const auto block = g.op("self_attn", OpKind::block, {{"x", x}}, {.fill = constant(kNan)});
  const WhyPath same_row = walk_from(g, block, 0, 0);
  EXPECT_THAT(hop(same_row, 0).text, HasSubstr("what went in is bad: p1.source[0,0] is NaN"));
  EXPECT_THAT(hop(same_row, 0).text, HasSubstr("the inside of this module was not dumped"));
  EXPECT_THAT(hop(walk_from(g, block, 2, 0), 0).text, HasSubstr("another row of what went in is bad"));
  const auto stray = g.op("stray", OpKind::dumped, {{"before", block}}, {.fill = constant(kNan)});
  EXPECT_THAT(hop(walk_from(g, stray, 1, 0), 0).text, HasSubstr("nothing says what it was made of; before it came"));
}

TEST(WhyInDumps, ASumOverRanksIsTheWorkOfAllOfThem) {
  DumpGraph g;
  const auto rank = [&](std::int64_t number, const Fill& part) {
    g.pass({Span{0, 0, 0, 4, 0, 4}}, 4, 1, number);
    const auto x = g.op("o_proj", OpKind::gemm, {}, {.fill = part});
    return g.op("self_attn", OpKind::all_reduce, {{"x", x}}, {.fill = constant(kNan)});
  };
  const auto out = rank(0, constant(1));
  rank(1, one_at(2, 3, kNan));
  EXPECT_THAT(hop(walk_from(g, out, 2, 3), 0).text, HasSubstr("of which rank 1: p2.o_proj[2,3] is NaN"));
  EXPECT_EQ(walk_from(g, out, 2, 2).origin, 0U);
}

TEST(WhyInDumps, ASumOverRanksLeavesTheRange) {
  DumpGraph g;
  TensorId out = 0;
  for (const std::int64_t rank : {0, 1}) {
    g.pass({Span{0, 0, 0, 4, 0, 4}}, 4, 1, rank);
    const auto x = g.op("o_proj", OpKind::gemm, {}, {.fill = constant(40000)});
    out = g.op("self_attn", OpKind::all_reduce, {{"x", x}}, {.fill = constant(80000), .format = Format::f16});
  }
  EXPECT_THAT(hop(walk_from(g, out, 0, 0), 0).text,
              HasSubstr("what 2 ranks put in adds up to 80000, beyond the largest finite f16 65504"));
}

TEST(WhyInDumps, SeveralSequencesAreToldApart) {
  DumpGraph g;
  g.pass({Span{4, 0, 0, 2, 0, 2}, Span{7, 0, 2, 2, 0, 2}});
  const auto x = g.source({.fill = row_of(3, kNan)});
  const auto out = g.op("o_proj", OpKind::gemm, {{"x", x}}, {.fill = row_of(3, kNan)});
  EXPECT_THAT(hop(walk_from(g, out, 3, 0), 0).text, HasSubstr("p1.source[1,0] of request 7 is NaN"));
}

TEST(FirstBad, IsTheFirstThatIsSomebodys) {
  DumpGraph g;
  g.parameter("w", 1, 1, constant(kNan));
  g.pass({Span{0, 0, 0, 3, 0, 3}});
  g.op("k_cache", OpKind::kv_store, {}, Pool::cache(constant(kNan)));
  g.op("scores", OpKind::attention_scores, {}, {.role = "scores", .fill = constant(-kInf)});
  g.source({.fill = row_of(3, kNan)});
  const auto bad =
      g.source({.fill = [](auto row, auto channel) { return row == 3 || (row == 2 && channel > 1) ? kNan : 1.0F; }});
  g.source({.fill = constant(kNan)});
  Facts facts(g);
  EXPECT_EQ(first_bad(facts), (Element{bad, 2, 2}));
}

TEST(FirstBad, IsNothingInAHealthyRun) {
  DumpGraph g;
  g.pass();
  g.source();
  Facts facts(g);
  EXPECT_EQ(first_bad(facts), std::nullopt);
}

TEST(WhyInDumps, DamagedNumbersLeadNowhereElse) {
  const std::int64_t far = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t number : {far, -far, std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    Pool pool(constant(1), constant(kNan), constant(kNan));
    const auto q = pool.g.op("q_rope", OpKind::rope, {}, {.tokens = 2, .heads = 3});
    MixAttributes form;
    form.heads = form.kv_heads = form.first_key = form.first_position = number;
    form.visible_only = true;
    ScoresAttributes scores;
    scores.heads = scores.kv_heads = number;
    const Made bad{.tokens = 2, .channels = 6, .fill = constant(kNan)};
    const auto s = pool.g.op("scores", OpKind::attention_scores, {{"q", q}, {"k", pool.second}}, bad, scores);
    const auto m = pool.g.op("attn_mix", OpKind::attention_mix, {{"probs", s}, {"v", pool.second}}, bad, form);
    const auto a =
        pool.g.op("attention", OpKind::attention, {{"q", q}, {"k", pool.second}, {"v", pool.second}}, bad, form);
    NormAttributes norm;
    norm.groups = number;
    const auto n = pool.g.op("inner_norm", OpKind::layer_norm, {{"x", m}}, bad, norm);
    RopeAttributes rope;
    rope.rotated = number;
    const auto r = pool.g.op("k_rope", OpKind::rope, {{"x", n}}, bad, rope);
    BlockAttributes block;
    block.block = block.blocks = number;
    const auto b = pool.g.op("quantise", OpKind::block_quantise, {{"x", r}},
                             {.role = "scales", .tokens = 2, .channels = 6, .fill = constant(kNan)}, block);
    SoftmaxAttributes softmax;
    softmax.heads = softmax.first_key = softmax.first_position = number;
    softmax.mask = "select";
    const auto p = pool.g.op("softmax", OpKind::softmax, {{"scores", s}}, bad, softmax);
    for (const TensorId tensor : {s, m, a, n, r, b, p}) {
      EXPECT_FALSE(walk_from(pool.g, tensor, 1, 5).hops.empty());
      EXPECT_FALSE(walk_from(pool.g, tensor, 0, 0).hops.empty());
    }
  }
}

TEST(WhyInDumps, ARingOfOpsEnds) {
  DumpGraph g;
  g.pass();
  const TensorId next = 2;
  const auto one = g.unknown("one", OpKind::gemm, {{"x", next}});
  g.unknown("two", OpKind::gemm, {{"x", one}});
  const auto out = g.op("three", OpKind::gemm, {{"x", next}}, {.fill = constant(kNan)});
  EXPECT_EQ(walk_from(g, out, 0, 0).origin, 0U);
  EXPECT_THAT(walk_from(g, one, 0, 0).stopped, HasSubstr("came back to an element"));
}

}  // namespace
}  // namespace nanscope::testing
