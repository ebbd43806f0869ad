#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"
#include "tests/unit/instrument/diagnosis/reference.h"

namespace nanscope {
namespace {

using testing::classes;
using testing::diagnosis_of;
using testing::DumpGraph;
using ::testing::ElementsAre;
using testing::Fill;
using testing::kNan;
using testing::noise;
using testing::number;
using testing::root_of;
using testing::RunBuilder;

/// A recording's softmax over three tokens with two heads and four keys more than cached ones, the last nobody's.
Diagnosis recorded(const Fill& probability, std::int64_t first_token = 0) {
  RunBuilder b;
  b.request(0, {5, 6, 7});
  b.step(0, 0, first_token, 3);
  b.op(0, "softmax", "softmax", {}, R"({"heads":2})");
  b.output("probs", {3, 2 * (first_token + 4), first_token, 2}, probability);
  b.op(-1, "argmax", "argmax", {});
  b.output("token", {1, 1, first_token + 2, 1}, testing::constant(3), Format::i32);
  return diagnosis_of(b);
}

TEST(FutureLeakage, ANonzeroProbabilityOfALaterKey) {
  const Diagnosis found =
      recorded([](auto row, auto channel) { return channel % 4 <= row + (channel >= 4 ? 1 : 0) ? 0.25F : 0.0F; });
  ASSERT_THAT(classes(found), ElementsAre("future-leakage"));
  const Fault& fault = found.faults[0];
  EXPECT_EQ(fault.where.tokens, (Range{0, 1}));
  EXPECT_FALSE(fault.breaks);
  EXPECT_EQ(number(fault, "token"), "0");
  EXPECT_EQ(number(fault, "key"), "1");
  EXPECT_EQ(number(fault, "head"), "1");
  EXPECT_EQ(number(fault, "value"), "0.25");
  EXPECT_FALSE(fault.because.has_value());
}

TEST(FutureLeakage, ACausalRowIsCleanAlsoBehindCachedTokens) {
  for (const std::int64_t first : {0, 5}) {
    const Diagnosis found =
        recorded([=](auto row, auto channel) { return channel % (first + 4) <= first + row ? 0.25F : 0.0F; }, first);
    EXPECT_EQ(root_of(found), "clean") << first;
  }
}

TEST(FutureLeakage, RowsOfNaNAndKeysBeyondTheLastTokenAreNone) {
  const Diagnosis found = recorded([](auto row, auto channel) {
    if (row == 0) return kNan;
    return channel % 4 <= row || (row == 2 && channel % 4 == 3) ? 0.25F : 0.0F;
  });
  EXPECT_EQ(testing::fault(found, "future-leakage").fault_class, "");
}

TEST(FutureLeakage, ProbabilitiesThatUnderflowedAreNoProofOfAMask) {
  EXPECT_EQ(root_of(recorded([](auto, auto channel) { return channel % 4 == 0 ? 1.0F : 0.0F; })), "clean");
}

/// Two layers in which every token sees all four, over what `first` makes of the input, and a choice at the end.
DumpGraph all_see_all(const std::string& first) {
  DumpGraph g;
  g.pass();
  g.op(first, OpKind::embedding, {}, {.fill = noise(1, 2)});
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    g.layer = layer;
    const TensorId scores = g.op("scores", OpKind::attention_scores, {},
                                 {.role = "scores", .channels = 8, .fill = testing::constant(1), .heads = 2});
    g.op("softmax", OpKind::softmax, {{"scores", scores}},
         {.role = "probs", .channels = 8, .fill = testing::constant(0.25F), .heads = 2});
  }
  g.layer = std::nullopt;
  g.op("argmax", OpKind::argmax, {}, {.role = "token", .tokens = 1, .channels = 1, .format = Format::i32});
  return g;
}

TEST(FutureLeakage, AClassOfAnImageIsNoNextToken) {
  DumpGraph image = all_see_all("patch_embed");
  EXPECT_EQ(root_of(diagnosis_of(image)), "clean");
  DumpGraph text = all_see_all("embed");
  EXPECT_EQ(root_of(diagnosis_of(text)), "future-leakage");
}

/// Two layers of probabilities over 12 tokens: each sees `behind` earlier and `ahead` later ones.
DumpGraph window(std::int64_t behind, std::int64_t ahead) {
  constexpr std::int64_t kTokens = 12;
  DumpGraph g;
  g.pass({Span{0, 0, 0, kTokens, 0, kTokens}}, kTokens);
  g.op("embed", OpKind::embedding, {}, {.tokens = kTokens, .fill = noise(1, 2)});
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    g.layer = layer;
    g.op("softmax", OpKind::softmax, {},
         {.role = "probs",
          .tokens = kTokens,
          .channels = kTokens,
          .fill = [=](auto row, auto key) { return key >= row - behind && key <= row + ahead ? 0.25F : 0.0F; },
          .heads = 1});
  }
  return g;
}

/// An encoder's probabilities that are so sharp that `sharp` of 12 rows see no later key.
TEST(FutureLeakage, AnEncodersSharpRowsAreAMinority) {
  const auto root = [](std::int64_t sharp) {
    constexpr std::int64_t kTokens = 12;
    DumpGraph g;
    g.pass({Span{0, 0, 0, kTokens, 0, kTokens}}, kTokens);
    g.op("embed", OpKind::embedding, {}, {.tokens = kTokens, .fill = noise(1, 2)});
    g.op("softmax", OpKind::softmax, {},
         {.role = "probs",
          .tokens = kTokens,
          .channels = kTokens,
          .fill = [=](auto row, auto key) { return row >= sharp || key <= row ? 0.25F : 0.0F; },
          .heads = 1});
    return root_of(diagnosis_of(g));
  };
  EXPECT_NE(root(3), "future-leakage");
  EXPECT_EQ(root(9), "future-leakage");
}

TEST(FutureLeakage, AnEncoderSeesAsFarAheadAsBehind) {
  const auto root = [](std::int64_t behind, std::int64_t ahead) {
    DumpGraph g = window(behind, ahead);
    return root_of(diagnosis_of(g));
  };
  for (const std::int64_t width : {2, 3, 12}) EXPECT_NE(root(width, width), "future-leakage") << width;
  EXPECT_EQ(root(12, 2), "future-leakage");
  EXPECT_EQ(root(3, 2), "future-leakage");
}

/// Attention of six tokens over two layers, done in one; in layer 0, tokens see `ahead` more keys than they may.
DumpGraph attention(std::int64_t ahead) {
  DumpGraph g;
  g.pass({Span{0, 0, 0, 6, 0, 6}}, 6);
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    g.layer = layer;
    const auto seed = static_cast<std::uint32_t>(10 * layer);
    const testing::Made shape{.tokens = 6, .channels = 8, .fill = noise(seed, 2)};
    const TensorId q = g.op("q_proj", OpKind::dumped, {}, shape);
    testing::Made keys = shape;
    keys.fill = noise(seed + 1, 2);
    const TensorId k = g.op("k_proj", OpKind::dumped, {}, keys);
    testing::Made values = shape;
    values.fill = noise(seed + 2, 2);
    const TensorId v = g.op("v_proj", OpKind::dumped, {}, values);
    testing::Numbers scores =
        testing::product(testing::stored_numbers(g, q, 6, 8), testing::stored_numbers(g, k, 6, 8));
    for (double& one : scores.v) one /= std::sqrt(8.0);
    const testing::Numbers probs = testing::softmax_of(scores, layer == 0 ? ahead : 0);
    const testing::Numbers mix = testing::product(probs, testing::transposed(testing::stored_numbers(g, v, 6, 8)));
    g.op("attn_mix", OpKind::attention, {{"q", q}, {"k", k}, {"v", v}},
         {.tokens = 6, .channels = 8, .fill = testing::fill_of(mix)});
  }
  return g;
}

TEST(FutureLeakage, AnOutputThatOnlyALeakingMaskGives) {
  DumpGraph g = attention(1);
  const Diagnosis found = diagnosis_of(g);
  ASSERT_EQ(root_of(found), "future-leakage");
  EXPECT_EQ(found.faults[0].tensor, "p1.attn_mix");
  EXPECT_EQ(number(found.faults[0], "rows"), "5");  // the last one has no later key
}

TEST(FutureLeakage, AnOutputOfACausalMaskIsClean) {
  DumpGraph g = attention(0);
  EXPECT_EQ(root_of(diagnosis_of(g)), "clean");
}

/// One prompt twice, the last token another one, and keys cast by one scale for all of them: `scale` in the second run.
Diagnosis twins(float scale) {
  DumpGraph g;
  KvStoreAttributes blocks;
  blocks.block_size = 4;
  for (const char* run : {"a", "b"}) {
    const bool second = run == std::string("b");
    g.pass({Span{second ? 1 : 0, 0, 0, 4, 0, 4}});
    g.last_pass().run = run;
    const Fill numbers = [=](std::int64_t row, std::int64_t channel) {
      return noise(9, 8)(row, channel) + (second && row == 3 ? 8.0F : 0.0F);
    };
    const TensorId k = g.op("embed", OpKind::embedding, {}, {.channels = 16, .fill = numbers});
    const float used = second ? scale : 0.05F;
    const TensorId k_scale = g.parameter("k_scale", 1, 1, testing::constant(used));
    g.op("kv_store", OpKind::kv_store, {{"k", k}, {"k_scale", k_scale}},
         {.role = "k_cache",
          .channels = 16,
          .fill = [=](auto row, auto channel) { return numbers(row, channel) / used; },
          .format = Format::e4m3,
          .axis = Axis::slots},
         blocks);
    for (const KvAction action : {KvAction::allocated, KvAction::written}) g.kv(second ? 1 : 0, 0, 0, 4, 0, action);
  }
  return diagnosis_of(g);
}

TEST(FutureLeakage, AScaleThatAPromptSharesMovesTheCodesOfItsFirstTokens) {
  EXPECT_EQ(root_of(twins(0.05F)), "clean");
  const Diagnosis found = twins(0.06F);
  ASSERT_EQ(root_of(found), "future-leakage");
  const Fault& fault = found.faults[0];
  EXPECT_EQ(fault.tensor, "p2.k_scale.weight");
  EXPECT_EQ(number(fault, "shows_in"), "p2.kv_store.k_cache");
  EXPECT_EQ(number(fault, "first_changed"), "3");
  EXPECT_EQ(number(fault, "rows"), "3");
  EXPECT_EQ(found.spread.first_bad_tensor, "p2.kv_store.k_cache");
}

TEST(FutureLeakage, AttentionThatWasNotDoneAgainExcludesNothing) {
  DumpGraph g = attention(0);
  EXPECT_EQ(testing::check(diagnosis_of(g), "future-leakage").state, Checked::excluded);
  EXPECT_EQ(testing::check(diagnosis_of(g, false), "future-leakage").state, Checked::not_in_dump);
}

}  // namespace
}  // namespace nanscope
