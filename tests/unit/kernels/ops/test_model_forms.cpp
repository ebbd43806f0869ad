// What single families of models ask of ops, against loops in double precision: capped scores, sliding windows, tables
// of frequencies, scaled embeddings, gated sums, and routers by softmax.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/ops/activation.h"
#include "kernels/ops/attention_mix.h"
#include "kernels/ops/attention_scores.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/gated_add.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/route.h"
#include "kernels/ops/softcap.h"
#include "kernels/ops/softmax.h"
#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels {
namespace {

using test::Floats;
using test::Indices;
using test::kInf;
using test::kNan;

double wide(float value) { return static_cast<double>(value); }

TEST(AttentionScores, ACapBendsThemWithoutTurningTheirOrder) {
  Floats q = test::random_floats(3, 2 * 16, 61, 6.0F);
  Floats k = test::random_floats(40, 16, 62, 6.0F);
  Floats out(3, 2 * 40);
  AttentionScoresArgs args{.q = q.view(), .k = k.view(), .out = out.view(), .heads = 2, .kv_heads = 1};
  args.factor = 0.25F;
  args.softcap = 20.0F;
  test::launch(args);
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t column = 0; column < 80; ++column) {
      double score = 0;
      for (std::int64_t i = 0; i < 16; ++i) {
        score += wide(q.at(t, column / 40 * 16 + i)) * wide(k.at(column % 40, i));
      }
      EXPECT_NEAR(out.at(t, column), 20.0 * std::tanh(score * 0.25 / 20.0), 2e-5);
    }
  }
}

TEST(Softcap, IsCapTimesTanh) {
  Floats x = test::random_floats(5, 77, 63, 100.0F);
  Floats out(5, 77);
  test::launch(SoftcapArgs{.x = x.view(), .out = out.view(), .cap = 30.0F});
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    const double expected = 30.0 * std::tanh(wide(x.data[i]) / 30.0);
    EXPECT_NEAR(out.data[i], expected, 3e-7 * std::abs(expected));
  }
  Floats edges(1, 3, {kInf, kNan, -0.0F});
  test::launch(SoftcapArgs{.x = edges.view(), .out = edges.view(), .cap = 30.0F});
  EXPECT_EQ(edges.at(0, 0), 30.0F);
  EXPECT_EQ(test::bits(edges.at(0, 1)), test::kCanonical);
  EXPECT_TRUE(std::signbit(edges.at(0, 2)));
}

/// A key is visible iff key <= query and key > query - window, as transformers' masks of sliding layers have it.
TEST(Softmax, AWindowHidesKeysThatAreTooOld) {
  constexpr std::int64_t kKeys = 70;
  constexpr std::int64_t kBefore = 40;
  const Floats scores = test::random_floats(5, kKeys, 64, 8.0F);
  for (const MaskMode mask : {MaskMode::additive, MaskMode::select, MaskMode::multiply}) {
    for (const std::int64_t window : {1, 4, 33, 100}) {
      Floats in = scores;
      Floats out(5, kKeys);
      test::launch(SoftmaxArgs{.scores = in.view(),
                               .out = out.view(),
                               .first_position = kBefore,
                               .first_key = 2,
                               .window = window,
                               .mask = mask});
      for (std::int64_t t = 0; t < 5; ++t) {
        const std::int64_t query = kBefore + t;
        const auto visible = [&](std::int64_t key) { return key >= 2 && key <= query && key > query - window; };
        double total = 0;
        for (std::int64_t s = 0; s < kKeys; ++s) total += visible(s) ? std::exp(wide(scores.at(t, s))) : 0.0;
        for (std::int64_t s = 0; s < kKeys; ++s) {
          const double expected = visible(s) ? std::exp(wide(scores.at(t, s))) / total : 0.0;
          EXPECT_NEAR(out.at(t, s), expected, 4e-7) << window << " " << t << " " << s;
        }
      }
    }
  }
}

/// softmax over the keys and one more, of which the last is dropped, as transformers' gpt-oss does it.
TEST(Softmax, ASinkTakesItsShareOfEachRow) {
  constexpr std::int64_t kKeys = 70;
  constexpr std::int64_t kHeads = 40;
  const Floats scores = test::random_floats(2, kHeads * kKeys, 76, 8.0F);
  Floats sinks = test::random_floats(1, kHeads, 77, 8.0F);
  for (const MaskMode mask : {MaskMode::additive, MaskMode::select, MaskMode::multiply}) {
    Floats in = scores;
    Floats out(2, kHeads * kKeys);
    test::launch(SoftmaxArgs{.scores = in.view(),
                             .sinks = sinks.view(),
                             .out = out.view(),
                             .heads = kHeads,
                             .first_position = 30,
                             .mask = mask});
    for (std::int64_t t = 0; t < 2; ++t) {
      for (std::int64_t column = 0; column < kHeads * kKeys; ++column) {
        const std::int64_t head = column / kKeys;
        double total = std::exp(wide(sinks.at(0, head)));
        for (std::int64_t s = 0; s <= 30 + t; ++s) total += std::exp(wide(scores.at(t, head * kKeys + s)));
        const double expected = column % kKeys <= 30 + t ? std::exp(wide(scores.at(t, column))) / total : 0.0;
        EXPECT_NEAR(out.at(t, column), expected, 4e-7) << column;
      }
    }
  }
}

TEST(Softmax, WithASinkARowWithoutKeysIsZero) {
  Floats sinks(1, 2, {3.0F, kNan});
  for (const MaskMode mask : {MaskMode::additive, MaskMode::select}) {
    Floats in = test::random_floats(1, 2 * 40, 78);
    Floats out(1, 2 * 40);
    test::launch(SoftmaxArgs{.scores = in.view(),
                             .sinks = sinks.view(),
                             .out = out.view(),
                             .heads = 2,
                             .first_position = 3,
                             .first_key = 9,
                             .mask = mask});
    for (std::int64_t s = 0; s < 40; ++s) {
      EXPECT_EQ(out.at(0, s), 0.0F);
      EXPECT_TRUE(std::isnan(out.at(0, 40 + s)));
    }
  }
}

TEST(AttentionMix, AWindowShieldsFromOldKeys) {
  constexpr std::int64_t kKeys = 20;
  Floats p(2, kKeys, 0.5F);
  Floats v(kKeys, 8, 1.0F);
  v.at(9, 3) = kNan;  // visible to the first row, too old for the second
  Floats out(2, 8);
  AttentionMixArgs args{.p = p.view(), .v = v.view(), .out = out.view(), .first_position = 12};
  args.window = 4;
  args.visible_only = true;
  test::launch(args);
  EXPECT_EQ(out.at(0, 2), 2.0F);
  EXPECT_TRUE(std::isnan(out.at(0, 3)));
  EXPECT_EQ(out.at(1, 3), 2.0F);
}

TEST(Rope, ATableTurnsTheFirstChannelsAndCopiesTheRest) {
  constexpr std::int64_t kWidth = 100;
  for (const std::int64_t half : {1, 16, 35, 50}) {
    Floats x = test::random_floats(3, 2 * kWidth, 65);
    Floats table = test::random_floats(1, half, 66);
    Floats out(3, 2 * kWidth);
    RopeArgs args{.x = x.view(), .out = out.view(), .frequencies = table.view(), .heads = 2, .first_position = 77};
    args.amplitude = 1.25F;
    test::launch(args);
    for (std::int64_t t = 0; t < 3; ++t) {
      for (std::int64_t column = 0; column < 2 * kWidth; ++column) {
        const std::int64_t i = column % kWidth;
        if (i >= 2 * half) {
          EXPECT_EQ(out.at(t, column), x.at(t, column));
          continue;
        }
        const double angle = static_cast<double>(77 + t) * wide(table.at(0, i % half));
        const double other = wide(x.at(t, i < half ? column + half : column - half));
        const double turned = wide(x.at(t, column)) * std::cos(angle) + (i < half ? -other : other) * std::sin(angle);
        EXPECT_NEAR(out.at(t, column), 1.25 * turned, 6e-7) << half << " " << column;
      }
    }
  }
}

TEST(Rope, RefusesFrequenciesForMoreThanAHead) {
  Floats x(1, 8);
  Floats table(1, 5);
  EXPECT_FALSE(check(RopeArgs{.x = x.view(), .out = x.view(), .frequencies = table.view()}));
}

TEST(Embedding, AScaleIsOfTheTableAlone) {
  Floats table = test::random_floats(4, 40, 67);
  Floats patches = test::random_floats(1, 40, 68);
  Floats positions = test::random_floats(9, 40, 69);
  Indices tokens(2, 1, {3, -1});
  Indices patch_rows(2, 1, {0, 0});
  Floats out(2, 40);
  test::launch(EmbeddingArgs{.tokens = tokens.view(),
                             .patch_rows = patch_rows.view(),
                             .table = table.view(),
                             .patches = patches.view(),
                             .positions = positions.view(),
                             .out = out.view(),
                             .first_position = 5,
                             .scale = 6.25F});
  for (std::int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(out.at(0, i), table.at(3, i) * 6.25F + positions.at(5, i));
    EXPECT_EQ(out.at(1, i), patches.at(0, i) + positions.at(6, i));
  }
}

TEST(Activation, GegluMultipliesTheGate) {
  Floats gate = test::random_floats(2, 50, 70, 5.0F);
  Floats up = test::random_floats(2, 50, 71, 5.0F);
  Floats out(2, 50);
  test::launch(
      ActivationArgs{.x = gate.view(), .up = up.view(), .out = out.view(), .kind = ActivationKind::geglu_tanh});
  for (std::size_t i = 0; i < gate.data.size(); ++i) {
    const double x = wide(gate.data[i]);
    const double gelu = 0.5 * x * (1.0 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    EXPECT_NEAR(out.data[i], gelu * wide(up.data[i]), 4e-7 * std::abs(x * wide(up.data[i])));
  }
}

TEST(Activation, AClampHoldsTheGateFromAboveAndUpFromBoth) {
  Floats gate = test::random_floats(2, 50, 79, 6.0F);
  Floats up = test::random_floats(2, 50, 80, 6.0F);
  gate.data[0] = kInf;
  gate.data[1] = kNan;
  up.data[2] = -kInf;
  up.data[3] = kNan;
  for (const float limit : {7.0F, 2.5F}) {
    Floats out(2, 50);
    ActivationArgs args{.x = gate.view(), .up = up.view(), .out = out.view(), .kind = ActivationKind::swiglu_clamped};
    args.limit = limit;
    test::launch(args);
    for (std::size_t i = 0; i < gate.data.size(); ++i) {
      if (i == 1 || i == 3) {
        EXPECT_TRUE(std::isnan(out.data[i]));
        continue;
      }
      const double g = std::min(wide(gate.data[i]), wide(limit));
      const double u = std::clamp(wide(up.data[i]), -wide(limit), wide(limit));
      EXPECT_NEAR(out.data[i], (u + 1) * g / (1 + std::exp(-1.702 * g)), 5e-7 * std::abs(g * (std::abs(u) + 1)));
    }
  }
  EXPECT_FALSE(check(ActivationArgs{
      .x = gate.view(), .up = up.view(), .out = gate.view(), .kind = ActivationKind::swiglu_clamped, .limit = 0.0F}));
}

TEST(Route, TheSoftmaxMayBeOverTheChosenAlone) {
  for (const std::int64_t experts : {4, 33, 128}) {
    Floats logits = test::random_floats(6, experts, 81, 60.0F);
    logits.at(0, 2) = kNan;
    Floats weights(6, 3);
    Indices ids(6, 3);
    RouteArgs args{.logits = logits.view(), .bias = {}, .weights = weights.view(), .ids = ids.view()};
    args.score = RouterScore::softmax_of_chosen;
    test::launch(args);
    for (std::int64_t t = 0; t < 6; ++t) {
      std::vector<std::int64_t> order(static_cast<std::size_t>(experts));
      std::iota(order.begin(), order.end(), 0);
      const auto key = [&](std::int64_t e) { return std::isnan(logits.at(t, e)) ? -kInf : logits.at(t, e); };
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return key(a) > key(b); });
      double total = 0;
      for (std::size_t j = 0; j < 3; ++j) total += std::exp(wide(key(order[j])) - wide(key(order[0])));
      for (std::int64_t j = 0; j < 3; ++j) {
        const std::int64_t expert = order[static_cast<std::size_t>(j)];
        EXPECT_EQ(ids.at(t, j), expert);
        EXPECT_NEAR(weights.at(t, j), std::exp(wide(key(expert)) - wide(key(order[0]))) / total, 4e-7);
      }
    }
  }
}

TEST(GatedAdd, WeighsTheSecondByTheSigmoidOfTheGate) {
  Floats a = test::random_floats(4, 70, 72);
  Floats b = test::random_floats(4, 70, 73);
  Floats gate = test::random_floats(4, 1, 74, 4.0F);
  gate.at(3, 0) = kNan;
  Floats out(4, 70);
  test::launch(GatedAddArgs{.a = a.view(), .b = b.view(), .gate = gate.view(), .out = out.view()});
  for (std::int64_t t = 0; t < 4; ++t) {
    for (std::int64_t i = 0; i < 70; ++i) {
      const double expected = wide(a.at(t, i)) + wide(b.at(t, i)) / (1.0 + std::exp(-wide(gate.at(t, 0))));
      if (t == 3) {
        EXPECT_TRUE(std::isnan(out.at(t, i)));
      } else {
        EXPECT_NEAR(out.at(t, i), expected, 3e-7);
      }
    }
  }
}

TEST(Route, SoftmaxGatesAreOverAllExperts) {
  for (const bool normalise : {false, true}) {
    for (const std::int64_t experts : {4, 32, 60}) {
      Floats logits = test::random_floats(6, experts, 75, 5.0F);
      Floats weights(6, 3);
      Indices ids(6, 3);
      RouteArgs args;
      args.logits = logits.view();
      args.weights = weights.view();
      args.ids = ids.view();
      args.score = RouterScore::softmax;
      args.normalise = normalise;
      test::launch(args);
      for (std::int64_t t = 0; t < 6; ++t) {
        std::vector<std::int64_t> order(static_cast<std::size_t>(experts));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](std::int64_t a, std::int64_t b) { return logits.at(t, a) > logits.at(t, b); });
        double total = 0;
        for (const std::int64_t e : order) total += std::exp(wide(logits.at(t, e)));
        double chosen = 0;
        for (std::size_t j = 0; j < 3; ++j) chosen += std::exp(wide(logits.at(t, order[j])));
        for (std::int64_t j = 0; j < 3; ++j) {
          const std::int64_t expert = order[static_cast<std::size_t>(j)];
          EXPECT_EQ(ids.at(t, j), expert);
          const double power = std::exp(wide(logits.at(t, expert)));
          EXPECT_NEAR(weights.at(t, j), power / (normalise ? chosen : total), 4e-7);
        }
      }
    }
  }
}

}  // namespace
}  // namespace nanscope::kernels
