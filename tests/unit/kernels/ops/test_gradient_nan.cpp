// Where NaN goes in gradients: nowhere from what is masked, and from what is not to what depends on it alone.
#include <gtest/gtest.h>

#include <functional>

#include "kernels/ops/activation_gradient.h"
#include "kernels/ops/attention_mix_gradient.h"
#include "kernels/ops/column_sum.h"
#include "kernels/ops/cross_entropy_gradient.h"
#include "kernels/ops/embedding_gradient.h"
#include "kernels/ops/expert_mix_gradient.h"
#include "kernels/ops/gated_add_gradient.h"
#include "kernels/ops/layer_norm_gradient.h"
#include "kernels/ops/layer_norm_weight_gradient.h"
#include "kernels/ops/route_gradient.h"
#include "kernels/ops/softcap_gradient.h"
#include "kernels/ops/softmax_gradient.h"
#include "kernels/ops/transpose.h"
#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels {
namespace {

using test::bits;
using test::Floats;
using test::Indices;
using test::kCanonical;
using test::kInf;
using test::kNan;
using test::random_floats;

/// NaN, and the canonical one, exactly where it is said.
void expect_nan_at(const Floats& found, const std::function<bool(std::int64_t, std::int64_t)>& expected) {
  for (std::int64_t row = 0; row < found.rows; ++row) {
    for (std::int64_t column = 0; column < found.columns; ++column) {
      const float value = found.at(row, column);
      EXPECT_EQ(std::isnan(value), expected(row, column)) << row << ", " << column;
      if (std::isnan(value)) {
        EXPECT_EQ(bits(value), kCanonical);
      }
    }
  }
}

constexpr std::int64_t kPoisonKeys = 45;
constexpr std::int64_t kPoisonQueries = 40;
constexpr std::int64_t kPoisonWindow = 20;
bool sees(std::int64_t t, std::int64_t key) { return key >= 2 && key <= t + 3 && key > t + 3 - kPoisonWindow; }

/// Two heads; what is masked is poison.
Floats masked_poison(std::uint64_t seed) {
  Floats matrix = random_floats(kPoisonQueries, 2 * kPoisonKeys, seed);
  for (std::int64_t t = 0; t < kPoisonQueries; ++t) {
    for (std::int64_t at = 0; at < 2 * kPoisonKeys; ++at) {
      if (!sees(t, at % kPoisonKeys)) matrix.at(t, at) = at % 2 == 0 ? kNan : kInf;
    }
  }
  return matrix;
}

Floats softmax_gradient(Floats p, Floats dp) {
  Floats out(kPoisonQueries, 2 * kPoisonKeys, 7.0F);
  test::launch(SoftmaxGradientArgs{.probs = p.view(),
                                   .dprobs = dp.view(),
                                   .out = out.view(),
                                   .heads = 2,
                                   .first_position = 3,
                                   .first_key = 2,
                                   .window = kPoisonWindow});
  return out;
}

TEST(GradientNan, MaskedPoisonDoesNotReachTheScores) {
  const Floats ds = softmax_gradient(masked_poison(231), masked_poison(232));
  expect_nan_at(ds, [](std::int64_t, std::int64_t) { return false; });
  for (std::int64_t t = 0; t < kPoisonQueries; ++t) {
    for (std::int64_t at = 0; at < 2 * kPoisonKeys; ++at) {
      if (!sees(t, at % kPoisonKeys)) {
        EXPECT_EQ(bits(ds.at(t, at)), 0U) << t << ", " << at;
      }
    }
  }
}

/// A sink's part of a row is that of what the row sees.
TEST(GradientNan, OfASinkIsThatOfWhatItsRowSees) {
  Floats sinks(1, 2, 0.5F);
  for (const bool poisoned : {false, true}) {
    Floats p = masked_poison(231);
    Floats dp = masked_poison(232);
    Floats scores = masked_poison(240);
    if (poisoned) dp.at(17, kPoisonKeys + 19) = kNan;
    Floats out(kPoisonQueries, 2 * kPoisonKeys, 7.0F);
    Floats dsink(kPoisonQueries, 2, 7.0F);
    test::launch(SoftmaxGradientArgs{.probs = p.view(),
                                     .dprobs = dp.view(),
                                     .out = out.view(),
                                     .heads = 2,
                                     .first_position = 3,
                                     .first_key = 2,
                                     .window = kPoisonWindow,
                                     .sinks = sinks.view(),
                                     .scores = scores.view(),
                                     .sink_out = dsink.view()});
    expect_nan_at(out, [&](std::int64_t t, std::int64_t at) {
      return poisoned && t == 17 && at >= kPoisonKeys && sees(t, at - kPoisonKeys);
    });
    expect_nan_at(dsink, [&](std::int64_t t, std::int64_t head) { return poisoned && t == 17 && head == 1; });
  }
}

TEST(GradientNan, OfAnExpertIsNobodysWhoDidNotChooseIt) {
  Floats experts = random_floats(3 * 4, 40, 241);
  Indices ids(4, 2, {0, 1, 1, 2, 2, 0, 0, 2});
  Floats weights = random_floats(4, 2, 242);
  Floats dout = random_floats(4, 40, 243);
  for (std::int64_t i = 0; i < 40; ++i) experts.at(2 * 4 + 0, i) = i % 2 == 0 ? kNan : kInf;  // of token 0
  dout.at(3, 5) = kNan;
  Floats dweights(4, 2, 7.0F);
  Floats dexperts(12, 40, 7.0F);
  test::launch(ExpertMixGradientArgs{.experts = experts.view(),
                                     .weights = weights.view(),
                                     .ids = ids.view(),
                                     .dout = dout.view(),
                                     .weights_out = dweights.view(),
                                     .experts_out = dexperts.view()});
  expect_nan_at(dweights, [](std::int64_t token, std::int64_t) { return token == 3; });
  expect_nan_at(dexperts, [](std::int64_t row, std::int64_t column) {
    return (row == 0 * 4 + 3 || row == 2 * 4 + 3) && column == 5;
  });
  for (const std::int64_t row : {0 * 4 + 1, 1 * 4 + 2, 1 * 4 + 3, 2 * 4 + 0}) {
    for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(bits(dexperts.at(row, i)), 0U) << row << ", " << i;
  }
}

TEST(GradientNan, OfARouterIsInItsRow) {
  Floats logits = random_floats(5, 40, 244);
  Indices ids(5, 2, {3, 7, 3, 7, 3, 7, 3, 40, 3, -1});
  Floats dweights = random_floats(5, 2, 245);
  logits.at(1, 7) = kNan;
  dweights.at(2, 0) = kNan;
  dweights.at(3, 1) = kNan;  // of an id that names nobody
  for (const RouterScore score : {RouterScore::sigmoid, RouterScore::softmax, RouterScore::softmax_of_chosen}) {
    Floats out(5, 40, 7.0F);
    test::launch(RouteGradientArgs{.logits = logits.view(),
                                   .bias = {},
                                   .ids = ids.view(),
                                   .dweights = dweights.view(),
                                   .out = out.view(),
                                   .score = score});
    const bool all = score == RouterScore::softmax;
    expect_nan_at(out, [&](std::int64_t row, std::int64_t expert) {
      return (row == 1 || row == 2) && (all || expert == 3 || expert == 7);
    });
  }
}

TEST(GradientNan, OfAGatedSumIsInItsRow) {
  Floats b = random_floats(4, 40, 246);
  Floats gate = random_floats(4, 1, 247);
  Floats dout = random_floats(4, 40, 248);
  b.at(0, 3) = kNan;
  dout.at(1, 4) = kNan;
  gate.at(2, 0) = kNan;
  Floats db(4, 40);
  Floats dgate(4, 1);
  test::launch(GatedAddGradientArgs{
      .b = b.view(), .gate = gate.view(), .dout = dout.view(), .b_out = db.view(), .gate_out = dgate.view()});
  expect_nan_at(db, [](std::int64_t row, std::int64_t column) { return row == 2 || (row == 1 && column == 4); });
  expect_nan_at(dgate, [](std::int64_t row, std::int64_t) { return row < 3; });
}

TEST(GradientNan, AVisibleOneIsInItsRowAlone) {
  Floats dp = masked_poison(232);
  dp.at(17, kPoisonKeys + 19) = kNan;
  Floats p = masked_poison(231);
  p.at(17, kPoisonKeys + 19) = 0.0F;
  expect_nan_at(softmax_gradient(p, dp), [](std::int64_t t, std::int64_t at) {
    return t == 17 && at >= kPoisonKeys && sees(t, at - kPoisonKeys);
  });
}

/// Two heads that share keys of 33 channels.
Floats mix_gradient(Floats weights, Floats x) {
  Floats out(kPoisonKeys, 33, 7.0F);
  test::launch(AttentionMixGradientArgs{.weights = weights.view(),
                                        .x = x.view(),
                                        .out = out.view(),
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .first_position = 3,
                                        .first_key = 2,
                                        .window = kPoisonWindow});
  return out;
}

TEST(GradientNan, MaskedPoisonDoesNotReachKeysAndValues) {
  const Floats out = mix_gradient(masked_poison(233), random_floats(kPoisonQueries, 66, 234));
  expect_nan_at(out, [](std::int64_t, std::int64_t) { return false; });
  for (const std::int64_t unseen : {0, 1, 43, 44}) {
    for (std::int64_t i = 0; i < 33; ++i) EXPECT_EQ(bits(out.at(unseen, i)), 0U);
  }
}

TEST(GradientNan, OfAQueryIsInWhatItSees) {
  Floats x = random_floats(kPoisonQueries, 66, 234);
  x.at(20, 33 + 32) = kNan;
  expect_nan_at(mix_gradient(masked_poison(233), x),
                [](std::int64_t key, std::int64_t i) { return i == 32 && sees(20, key); });
  Floats weights = masked_poison(233);
  weights.at(20, 10) = kNan;
  expect_nan_at(mix_gradient(weights, random_floats(kPoisonQueries, 66, 234)),
                [](std::int64_t key, std::int64_t) { return key == 10; });
}

TEST(GradientNan, OfANormIsInItsGroupOrItsChannel) {
  Floats x = random_floats(4, 80, 235);
  Floats dout = random_floats(4, 80, 236);
  Floats stats(4, 6, 0.5F);
  dout.at(1, 41) = kNan;
  Floats dx(4, 80);
  test::launch(LayerNormGradientArgs{
      .x = x.view(), .weight = {}, .stats = stats.view(), .dout = dout.view(), .out = dx.view(), .groups = 2});
  expect_nan_at(dx, [](std::int64_t row, std::int64_t column) { return row == 1 && column >= 40; });
  Floats dweight(1, 40);
  Floats dbias(1, 40);
  LayerNormWeightGradientArgs args{.x = x.view(),
                                   .stats = stats.view(),
                                   .dout = dout.view(),
                                   .weight_out = dweight.view(),
                                   .bias_out = dbias.view(),
                                   .groups = 2};
  test::launch(args);
  expect_nan_at(dweight, [](std::int64_t, std::int64_t channel) { return channel == 1; });
  expect_nan_at(dbias, [](std::int64_t, std::int64_t channel) { return channel == 1; });
  stats.at(3, 2) = kNan;  // 1 / sqrt of a negative variance
  test::launch(args);
  expect_nan_at(dweight, [](std::int64_t, std::int64_t) { return true; });
  expect_nan_at(dbias, [](std::int64_t, std::int64_t channel) { return channel == 1; });
}

TEST(GradientNan, OfLogitsIsInTheirRow) {
  Floats logits = random_floats(5, 40, 237);
  logits.at(1, 3) = kNan;
  logits.at(2, 3) = kNan;
  logits.at(3, 3) = kInf;
  logits.at(4, 3) = -kInf;
  Indices targets(5, 1, {5, 5, -1, 5, 5});
  Floats out(5, 40, 7.0F);
  test::launch(CrossEntropyGradientArgs{logits.view(), targets.view(), out.view(), 1.0F});
  expect_nan_at(out, [](std::int64_t row, std::int64_t) { return row == 1 || row == 3; });
  for (std::int64_t v = 0; v < 40; ++v) EXPECT_EQ(bits(out.at(2, v)), 0U);
  EXPECT_EQ(bits(out.at(4, 3)), 0U) << "-Inf is a probability of 0";
}

TEST(GradientNan, AClampLetsNoneThrough) {
  Floats x(1, 4, {5.0F, 1.0F, kNan, 1.0F});
  Floats up(1, 4, {1.0F, -5.0F, 1.0F, 1.0F});
  Floats dout(1, 4, {kNan, kNan, 1.0F, kNan});
  Floats dx(1, 4);
  Floats dup(1, 4);
  test::launch(ActivationGradientArgs{.x = x.view(),
                                      .up = up.view(),
                                      .dout = dout.view(),
                                      .out = dx.view(),
                                      .up_out = dup.view(),
                                      .kind = ActivationKind::swiglu_clamped,
                                      .limit = 3.0F});
  EXPECT_EQ(bits(dx.data[0]), 0U);
  expect_nan_at(dx, [](std::int64_t, std::int64_t column) { return column > 0; });
  EXPECT_EQ(bits(dup.data[1]), 0U);
  expect_nan_at(dup, [](std::int64_t, std::int64_t column) { return column != 1; });
}

TEST(GradientNan, ElsewhereItStaysWhereItIs) {
  Floats dout = random_floats(70, 40, 238);
  dout.at(33, 7) = kNan;
  Floats sum(1, 40);
  test::launch(ColumnSumArgs{dout.view(), sum.view()});
  expect_nan_at(sum, [](std::int64_t, std::int64_t column) { return column == 7; });
  Floats across(40, 70);
  test::launch(TransposeArgs{dout.view(), across.view()});
  expect_nan_at(across, [](std::int64_t row, std::int64_t column) { return row == 7 && column == 33; });
  Indices tokens(70, 1);
  for (std::int32_t t = 0; t < 70; ++t) tokens.at(t, 0) = t % 6 - 1;
  Floats table(5, 40);
  test::launch(EmbeddingGradientArgs{tokens.view(), dout.view(), table.view(), 1.0F});
  expect_nan_at(table, [](std::int64_t row, std::int64_t column) { return row == 2 && column == 7; });
  tokens.at(33, 0) = -1;
  test::launch(EmbeddingGradientArgs{tokens.view(), dout.view(), table.view(), 1.0F});
  expect_nan_at(table, [](std::int64_t, std::int64_t) { return false; });
  Floats y = random_floats(70, 40, 239);
  Floats dx(70, 40);
  test::launch(SoftcapGradientArgs{.y = y.view(), .dout = dout.view(), .out = dx.view(), .cap = 1.0F});
  expect_nan_at(dx, [](std::int64_t row, std::int64_t column) { return row == 33 && column == 7; });
}

}  // namespace
}  // namespace nanscope::kernels
