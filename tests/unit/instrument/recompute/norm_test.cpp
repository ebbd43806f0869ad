#include "tests/unit/instrument/recompute/again.h"

/// RMS and layer norms, over rows and over heads.
namespace nanscope::testing::norm_test {
namespace {

constexpr std::int64_t kWidth = 32;

struct How {
  std::string norm = "rms";
  double eps = 1e-6;
  double plus = 0;  ///< of the weight: 1 in Gemma
  std::int64_t heads = 1;
  Format format = Format::f32;
  double size = 1;  ///< of x: small ones show the eps
};

/// (x - mean) / sqrt(variance + eps) * (plus + weight) + bias, by its definition.
Numbers normed(const Numbers& x, const Numbers& weight, const Numbers* bias, const How& how) {
  Numbers out(x.rows, x.columns);
  const std::int64_t width = x.columns / how.heads;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t begin = 0; begin < x.columns; begin += width) {
      double mean = 0;
      for (std::int64_t c = begin; c < begin + width; ++c) mean += x.at(r, c) / static_cast<double>(width);
      if (how.norm == "rms") mean = 0;
      double variance = 0;
      for (std::int64_t c = begin; c < begin + width; ++c)
        variance += (x.at(r, c) - mean) * (x.at(r, c) - mean) / static_cast<double>(width);
      for (std::int64_t c = begin; c < begin + width; ++c) {
        out.at(r, c) =
            (x.at(r, c) - mean) / std::sqrt(variance + how.eps) * (how.plus + weight.at(0, c % weight.columns));
        if (bias != nullptr) out.at(r, c) += bias->at(0, c);
      }
    }
  }
  return out;
}

/// Three layers; the last one's output is changed.
Case made(const How& how, const Change& change) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const std::int64_t own = kWidth / how.heads;
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    g.layer = layer;
    const auto seed = static_cast<std::uint32_t>(10 * layer);
    const TensorId x =
        g.op("x", OpKind::dumped, {},
             {.channels = kWidth, .fill = noise(seed, how.size), .format = how.format, .heads = how.heads});
    const TensorId weight =
        g.parameter("attn_norm.weight", 1, own, [=](auto, auto c) { return 0.7F + noise(seed + 1, 0.4)(0, c); });
    std::vector<std::pair<std::string, TensorId>> inputs{{"x", x}, {"weight", weight}};
    const Numbers w = stored_numbers(g, weight, 1, own);
    if (how.norm == "layer") {
      const TensorId bias = g.parameter("attn_norm.bias", 1, kWidth, noise(seed + 2));
      inputs.emplace_back("bias", bias);
      const Numbers b = stored_numbers(g, bias, 1, kWidth);
      out.right = normed(stored_numbers(g, x, 4, kWidth), w, &b, how);
    } else {
      out.right = normed(stored_numbers(g, x, 4, kWidth), w, nullptr, how);
    }
    Numbers stored = out.right;
    if (layer == 2) change(stored);
    out.out = g.op("attn_norm", OpKind::layer_norm, inputs,
                   {.channels = kWidth, .fill = fill_of(stored), .format = how.format, .heads = how.heads});
  }
  return out;
}

TEST(RecomputeNorm, RmsAndLayerNorms) {
  for (const Format format : {Format::f32, Format::bf16}) {
    expect_right(made({.eps = 1e-5, .format = format}, unchanged), "rms norm");
    expect_right(made({.norm = "layer", .eps = 1e-5, .format = format}, unchanged), "layer norm");
  }
}

TEST(RecomputeNorm, WithAWeightThatIsOneMore) {
  expect_right(made({.plus = 1}, unchanged), "rms norm times 1 + weight");
}

TEST(RecomputeNorm, OfHeadsWithOneWeightForAll) { expect_right(made({.heads = 2}, unchanged), "rms norm"); }

TEST(RecomputeNorm, TheEpsIsTheOneThatTheNumbersShow) {
  const Case small = made({.eps = 1e-5, .size = 1e-3}, unchanged);
  expect_right(small, "rms norm");
  Again again(*small.graph);
  EXPECT_EQ(again.result(small.out)->form.number, 1e-5);
}

/// At this size the rows fit 1e-5 within the bound of rounding too.
TEST(RecomputeNorm, OfTwoEpsThatFitTheNearerIsTaken) {
  const Case large = made({.eps = 1e-6, .size = 6}, unchanged);
  Again again(*large.graph);
  EXPECT_EQ(again.result(large.out)->form.number, 1e-6);
}

TEST(RecomputeNorm, OfLayerNormWithAWeightThatIsOneMore) {
  expect_right(made({.norm = "layer", .plus = 1}, unchanged), "layer norm times 1 + weight");
}

/// `change` is of the output of a layer that has no weight where others have one.
Case without_a_weight(const Change& change) {
  Case out = made({}, unchanged);
  DumpGraph& g = *out.graph;
  g.layer = 3;
  const TensorId x = g.op("x", OpKind::dumped, {}, {.channels = kWidth, .fill = noise(70)});
  // Weights of the layer were dumped, and the norm has none.
  const TensorId weight = g.parameter("q_proj.weight", 8, kWidth, noise(71));
  g.op("q_proj", OpKind::gemm, {{"x", x}, {"weight", weight}}, {.channels = 8, .fill = noise(72)});
  out.right = stored_numbers(g, x, 4, kWidth);
  Numbers stored = out.right;
  change(stored);
  out.out = g.op("attn_norm", OpKind::layer_norm, {{"x", x}}, {.channels = kWidth, .fill = fill_of(stored)});
  return out;
}

TEST(RecomputeNorm, ALayerWithoutAWeightMayHaveNoNorm) {
  expect_right(without_a_weight(unchanged), "no norm", 4);
  const Case other = without_a_weight([](Numbers& numbers) {
    for (double& one : numbers.v) one = one * one;
  });
  Again again(*other.graph);
  EXPECT_FALSE(again.understood(other.out));
}

TEST(RecomputeNorm, SeesAnElementThatIsOff) {
  expect_seen([](const Change& change) { return made({}, change); }, 1, 5);
  expect_seen([](const Change& change) { return made({.heads = 2}, change); }, 3, 17);
  expect_seen([](const Change& change) { return made({.norm = "layer", .format = Format::bf16}, change); }, 0, 31);
}

TEST(RecomputeNorm, KnowsAWeightWithoutItsOne) {
  How how{.plus = 1};
  Numbers bare(0, 0);
  const Case wrong = made(how, [&](Numbers& numbers) {
    for (std::int64_t r = 0; r < numbers.rows; ++r) {
      for (std::int64_t c = 0; c < numbers.columns; ++c) {
        const double w = double{0.7F + noise(21, 0.4)(0, c)};
        numbers.at(r, c) *= w / (1 + w);
      }
    }
  });
  EXPECT_EQ(explained_by(wrong), "the 1 of 1 + weight left out");
}

/// The stream before it was not dumped: its values are rounded to f16, and so is what their mean is taken of.
TEST(RecomputeNorm, OfASumThatWasNotDumped) {
  constexpr std::int64_t kTokens = 32;
  DumpGraph g;
  g.pass({Span{0, 0, 0, kTokens, 0, kTokens}}, kTokens);
  const auto stored = [&](std::uint32_t seed) {
    return g.source({.tokens = kTokens, .channels = kWidth, .fill = noise(seed, 4), .format = Format::f16});
  };
  const TensorId a = stored(1);
  const TensorId b = stored(2);
  const TensorId x = g.unknown("attn_residual", OpKind::residual_add, {{"a", a}, {"b", b}});
  const TensorId weight = g.parameter("mlp_norm.weight", 1, kWidth, [](auto, auto) { return 1.0F; });
  const TensorId bias = g.parameter("mlp_norm.bias", 1, kWidth, [](auto, auto) { return 0.0F; });
  Numbers sum = stored_numbers(g, a, kTokens, kWidth);
  const Numbers other = stored_numbers(g, b, kTokens, kWidth);
  for (std::size_t i = 0; i < sum.v.size(); ++i)
    sum.v[i] =
        double{decode(Format::f16, encode(Format::f16, static_cast<float>(sum.v[i] + other.v[i]), Overflow::overflow))};
  const Numbers none = stored_numbers(g, bias, 1, kWidth);
  const Numbers right =
      normed(sum, stored_numbers(g, weight, 1, kWidth), &none, {.norm = "layer", .eps = 1e-5, .format = Format::f16});
  const TensorId out = g.op("mlp_norm", OpKind::layer_norm, {{"x", x}, {"weight", weight}, {"bias", bias}},
                            {.tokens = kTokens, .channels = kWidth, .fill = fill_of(right), .format = Format::f16});
  Again again(g);
  ASSERT_NE(again.result(out), nullptr);
  EXPECT_EQ(again.result(out)->share(), 1.0);
}

float in_f16(double value) {
  return decode(Format::f16, encode(Format::f16, static_cast<float>(value), Overflow::saturate));
}

constexpr std::int64_t kSumWidth = 512;  // so that some elements show which sum it was

/// Two layers of a norm over the sum of two streams, which is stored in f16, and normed as it was stored or before
/// that.
Case of_sum(bool rounded, const Change& change) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    g.layer = layer;
    const auto seed = static_cast<std::uint32_t>(20 * layer);
    const Made half{.channels = kSumWidth, .format = Format::f16};
    Made made = half;
    made.fill = noise(seed + 1);
    const TensorId a = g.op("a", OpKind::dumped, {}, made);
    made.fill = noise(seed + 2, 0.01);
    const TensorId b = g.op("b", OpKind::dumped, {}, made);
    Numbers sum = stored_numbers(g, a, 4, kSumWidth);
    const Numbers second = stored_numbers(g, b, 4, kSumWidth);
    for (std::size_t i = 0; i < sum.v.size(); ++i) sum.v[i] += second.v[i];
    made.fill = fill_of(sum);
    const TensorId x = g.op("attn_residual", OpKind::residual_add, {{"a", a}, {"b", b}}, made);
    const TensorId weight = g.parameter("attn_norm.weight", 1, kSumWidth,
                                        [=](auto r, auto c) { return in_f16(noise(seed + 3, 0.4)(r, c)); });
    const Numbers w = stored_numbers(g, weight, 1, kSumWidth);
    out.right = normed(rounded ? stored_numbers(g, x, 4, kSumWidth) : sum, w, nullptr, {});
    // RMSNorm in f32 hands f16 to the product with the weight, which rounds once more.
    Numbers stored = normed(rounded ? stored_numbers(g, x, 4, kSumWidth) : sum, Numbers(1, 1), nullptr, {.plus = 1});
    for (std::int64_t r = 0; r < 4; ++r) {
      for (std::int64_t c = 0; c < kSumWidth; ++c) stored.at(r, c) = double{in_f16(stored.at(r, c))} * w.at(0, c);
    }
    if (layer == 1) change(stored);
    made.fill = fill_of(stored);
    out.out = g.op("attn_norm", OpKind::layer_norm, {{"x", x}, {"weight", weight}}, made);
  }
  return out;
}

TEST(RecomputeNorm, GoesOverTheSumAsItIsStoredOrBeforeThat) {
  for (const bool rounded : {true, false}) {
    const Case one = of_sum(rounded, unchanged);
    Again again(*one.graph);
    ASSERT_NE(again.result(one.out), nullptr) << again.why_not(one.out);
    EXPECT_EQ(again.result(one.out)->share(), 1.0) << rounded;
  }
}

TEST(RecomputeNorm, OverASumSeesAnElementThatIsOff) {
  for (const bool rounded : {true, false})
    expect_seen([&](const Change& change) { return of_sum(rounded, change); }, 3, 11);
}

/// Of a row of zeros, or of one that is off by about its bound, one form or the other explains a little more by chance.
TEST(RecomputeNorm, ARowThatIsOffDoesNotChooseTheSumBeforeItWasRounded) {
  for (std::int64_t row = 0; row < 4; ++row) {
    for (const double factor :
         {0.0, 1 - 0x1.2p-9, 1 - 0x1p-9, 1 - 0x1.8p-10, 1 + 0x1.8p-10, 1 + 0x1p-9, 1 + 0x1.2p-9}) {
      const Case one = of_sum(true, [&](Numbers& numbers) {
        for (std::int64_t c = 0; c < kSumWidth; ++c) numbers.at(row, c) *= factor;
      });
      Again again(*one.graph);
      ASSERT_NE(again.result(one.out), nullptr) << again.why_not(one.out);
      EXPECT_EQ(again.result(one.out)->form.text, "rms norm") << row << ' ' << factor;
    }
  }
}

}  // namespace
}  // namespace nanscope::testing::norm_test
