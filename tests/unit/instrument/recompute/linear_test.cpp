#include "tests/unit/instrument/recompute/again.h"

/// Products with weights.
namespace nanscope::testing::linear_test {
namespace {

constexpr std::int64_t kIn = 24;
constexpr std::int64_t kOut = 40;

struct How {
  Format format = Format::bf16;
  bool bias = false;
  bool conv = false;  ///< the weight is (in, out)
};

/// Two layers of x W' + b; the second one's output is changed.
Case made(const How& how, const Change& change) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId x = g.source({.channels = kIn, .fill = noise(1, 3), .format = how.format});
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    g.layer = layer;
    const auto seed = static_cast<std::uint32_t>(10 + layer);
    const TensorId weight = g.parameter("up_proj.weight", how.conv ? kIn : kOut, how.conv ? kOut : kIn, noise(seed));
    const Numbers w = stored_numbers(g, weight, how.conv ? kIn : kOut, how.conv ? kOut : kIn);
    std::vector<std::pair<std::string, TensorId>> inputs{{"x", x}, {"weight", weight}};
    out.right = product(stored_numbers(g, x, 4, kIn), how.conv ? transposed(w) : w);
    if (how.bias) {
      const TensorId bias = g.parameter("up_proj.bias", 1, kOut, noise(seed + 5));
      inputs.emplace_back("bias", bias);
      for (std::int64_t r = 0; r < 4; ++r) {
        for (std::int64_t c = 0; c < kOut; ++c) out.right.at(r, c) += double{g.at(bias, 0, c)};
      }
    }
    Numbers stored = out.right;
    if (layer == 1) change(stored);
    out.out = g.op("up_proj", OpKind::gemm, inputs, {.channels = kOut, .fill = fill_of(stored), .format = how.format});
  }
  return out;
}

TEST(RecomputeLinear, IsTheProductInEveryFormat) {
  for (const Format format : {Format::f32, Format::bf16, Format::f16})
    expect_right(made({.format = format}, unchanged), "x W' + b", 512);
}

TEST(RecomputeLinear, WithABiasAndWithWeightsTheOtherWayRound) {
  expect_right(made({.bias = true}, unchanged), "x W' + b");
  expect_right(made({.conv = true}, unchanged), "x W' + b");
}

TEST(RecomputeLinear, ABiasThatOutweighsTheSumsIsRoundedTwice) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId x = g.source({.channels = kIn, .fill = noise(1)});
  const TensorId weight = g.parameter("up_proj.weight", kOut, kIn, noise(2));
  const TensorId bias = g.parameter("up_proj.bias", 1, kOut, constant(2739.3F));
  const Numbers sums = product(stored_numbers(g, x, 4, kIn), stored_numbers(g, weight, kOut, kIn));
  // The float next to the right one, on the side of the right number: sums in another order give it.
  const auto fill = [&](std::int64_t row, std::int64_t channel) {
    const double right = sums.at(row, channel) + double{2739.3F};
    const auto nearest = static_cast<float>(right);
    return std::nextafter(nearest, double{nearest} < right ? 3000.0F : 2000.0F);
  };
  out.out =
      g.op("up_proj", OpKind::gemm, {{"x", x}, {"weight", weight}, {"bias", bias}}, {.channels = kOut, .fill = fill});
  Again again(g);
  ASSERT_NE(again.result(out.out), nullptr);
  EXPECT_EQ(again.result(out.out)->share(), 1.0);
}

TEST(RecomputeLinear, SeesAnElementThatIsOff) {
  expect_seen([](const Change& change) { return made({}, change); }, 2, 31);
  expect_seen([](const Change& change) { return made({.bias = true, .conv = true}, change); }, 0, 0);
}

/// One layer in f32 whose sums are made in f32 one after the other, with `roundings` more in one row of 8.
Case summed_in_order(std::int64_t inputs, std::int64_t outputs, double roundings) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass({Span{0, 0, 0, 8, 0, 8}}, 8);
  const TensorId x = g.source({.tokens = 8, .channels = inputs, .fill = noise(1)});
  const TensorId weight = g.parameter("up_proj.weight", outputs, inputs, noise(2, 0.1F));
  const Numbers left = stored_numbers(g, x, 8, inputs);
  const Numbers right = stored_numbers(g, weight, outputs, inputs);
  const auto fill = [&](std::int64_t row, std::int64_t channel) {
    float sum = 0;
    for (std::int64_t k = 0; k < inputs; ++k)
      sum += static_cast<float>(left.at(row, k)) * static_cast<float>(right.at(channel, k));
    return row == 5 ? static_cast<float>(double{sum} * (1 + roundings * 0x1p-24)) : sum;
  };
  out.out =
      g.op("up_proj", OpKind::gemm, {{"x", x}, {"weight", weight}}, {.tokens = 8, .channels = outputs, .fill = fill});
  return out;
}

TEST(RecomputeLinear, SumsInF32OneAfterTheOtherAreWithinTheBound) {
  for (const std::int64_t inputs : {std::int64_t{64}, std::int64_t{512}, std::int64_t{2048}}) {
    const Case made = summed_in_order(inputs, 256, 0);
    Again again(*made.graph);
    ASSERT_NE(again.result(made.out), nullptr);
    EXPECT_EQ(again.result(made.out)->share(), 1.0) << inputs;
    EXPECT_TRUE(again.result(made.out)->scattered.empty()) << inputs;
    // Neither is the bound so wide that nothing can be seen: six standard deviations at most.
    const Recomputed& result = *again.result(made.out);
    EXPECT_GT(std::sqrt(result.squares / static_cast<double>(result.elements)), 1.0 / 20) << inputs;
  }
}

TEST(RecomputeLinear, SeesARowThatIsOffBy32Roundings) {
  const Case made = summed_in_order(512, 256, 32);
  Again again(*made.graph);
  const Recomputed* found = again.result(made.out);
  ASSERT_NE(found, nullptr);
  EXPECT_THAT(found->bad_rows, ::testing::ElementsAre(5));
  ASSERT_EQ(found->scattered.size(), 1U);
  EXPECT_EQ(found->scattered.front().row, 5);
  EXPECT_EQ(found->scattered.front().elements, 256);
  EXPECT_EQ(found->explained, found->elements - 256);
  EXPECT_TRUE(deviates(*found));
}

TEST(RecomputeLinear, ARowWithElementsBeyondTheBoundIsScatteredAsWell) {
  const Case made = summed_in_order(64, 256, 256);
  Again again(*made.graph);
  const Recomputed* found = again.result(made.out);
  ASSERT_NE(found, nullptr);
  EXPECT_GT(found->worst.ratio, 1);
  EXPECT_THAT(found->bad_rows, ::testing::ElementsAre(5));
  ASSERT_EQ(found->scattered.size(), 1U);
  EXPECT_EQ(found->explained, found->elements - 256);
}

TEST(RecomputeLinear, KnowsABiasThatWasLeftOut) {
  const Case other = made({.bias = true}, unchanged);
  const Case wrong = made({.bias = true}, [&](Numbers& numbers) {
    for (std::int64_t r = 0; r < numbers.rows; ++r) {
      for (std::int64_t c = 0; c < numbers.columns; ++c) numbers.at(r, c) -= double{noise(16)(0, c)};
    }
  });
  EXPECT_EQ(explained_by(wrong), "the bias left out");
}

TEST(RecomputeLinear, OfCodesWithScalesOfBlocks) {
  // 48 rows in blocks of 32: the last one is not full.
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId x = g.source({.channels = 64, .fill = noise(1)});
  const TensorId weight = g.op("up_proj.weight", OpKind::parameter, {},
                               {.role = "weight",
                                .tokens = 48,
                                .channels = 64,
                                .fill = noise(2, 400),
                                .format = Format::e4m3,
                                .axis = Axis::none});
  const TensorId scale = g.parameter("up_proj.weight_scale", 2, 2,
                                     [](auto r, auto c) { return 0.001F * static_cast<float>(1 + 2 * r + 5 * c); });
  Numbers w = stored_numbers(g, weight, 48, 64);
  for (std::int64_t r = 0; r < 48; ++r) {
    for (std::int64_t c = 0; c < 64; ++c) w.at(r, c) *= double{g.at(scale, r / 32, c / 32)};
  }
  out.right = product(stored_numbers(g, x, 4, 64), w);
  out.out = g.op("up_proj", OpKind::gemm, {{"x", x}, {"weight", weight}, {"weight_scale", scale}},
                 {.channels = 48, .fill = fill_of(out.right)});
  expect_right(out, "x W' + b", 1024);
}

/// Two ranks with half of k each; both have the sum, the second one's is changed.
Case over_ranks(const Change& change) {
  const auto operands = [](DumpGraph& g, std::uint32_t rank) {
    g.pass({Span{0, 0, 0, 4, 0, 4}}, 4, 1, rank);
    const TensorId x = g.source({.channels = kIn, .fill = noise(1 + rank), .format = Format::bf16});
    return std::pair(x, g.parameter("o_proj.weight", kOut, kIn, noise(7 + rank)));
  };
  Case out;
  out.right = Numbers(4, kOut);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    DumpGraph apart;
    const auto [x, w] = operands(apart, rank);
    const Numbers part = product(stored_numbers(apart, x, 4, kIn), stored_numbers(apart, w, kOut, kIn));
    for (std::size_t i = 0; i < part.v.size(); ++i) out.right.v[i] += part.v[i];
  }
  Numbers stored = out.right;
  change(stored);
  DumpGraph& g = *out.graph;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const auto [x, w] = operands(g, rank);
    out.out = g.op("o_proj", OpKind::gemm, {{"x", x}, {"weight", w}},
                   {.channels = kOut, .fill = fill_of(rank == 0 ? out.right : stored), .format = Format::bf16});
  }
  return out;
}

TEST(RecomputeLinear, SumsWhatRanksHaveOfIt) {
  const Case made = over_ranks(unchanged);
  expect_right(made, "x W' summed over the ranks", 512);
}

TEST(RecomputeLinear, JudgesNoRowThatRanksDoNotShare) {
  const Case made = over_ranks([](Numbers& numbers) { numbers.at(2, 5) += 100; });
  Again again(*made.graph);
  const Recomputed* found = again.result(made.out);
  ASSERT_NE(found, nullptr) << again.why_not(made.out);
  EXPECT_EQ(found->elements, 3 * kOut);
  EXPECT_EQ(found->share(), 1.0);
}

TEST(RecomputeLinear, WithoutItsWeightSaysSo) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId x = g.source();
  out.out = g.op("up_proj", OpKind::gemm, {{"x", x}});
  Again again(g);
  EXPECT_EQ(again.result(out.out), nullptr);
  EXPECT_EQ(again.why_not(out.out), "its weight was not dumped");
}

/// Codes of what a product reads, with a scale a tensor, rounded to the activations' format before they are used.
Case dequantised(bool rounded) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId codes = g.op("x_codes", OpKind::dumped, {},
                              {.role = "codes", .channels = kIn, .fill = noise(1, 200), .format = Format::e4m3});
  const TensorId scale = g.parameter("x_scale", 1, 1, constant(0.0123F));
  const TensorId x = g.source({.channels = kIn, .fill = noise(2, 3), .format = Format::bf16});
  const TensorId weight = g.parameter("up_proj.weight", kOut, kIn, noise(3));
  Numbers read = stored_numbers(g, codes, 4, kIn);
  for (double& one : read.v) {
    one *= double{0.0123F};
    if (rounded) one = double{decode(Format::bf16, encode(Format::bf16, static_cast<float>(one), Overflow::saturate))};
  }
  out.right = product(read, stored_numbers(g, weight, kOut, kIn));
  out.out = g.op("up_proj", OpKind::gemm, {{"x", x}, {"codes", codes}, {"x_scale", scale}, {"weight", weight}},
                 {.channels = kOut, .fill = fill_of(out.right), .format = Format::bf16});
  return out;
}

TEST(RecomputeLinear, CodesOfItsInputMayBeRoundedWhenTheyAreDequantised) {
  expect_right(dequantised(false), "of the quantised input", 512);
  expect_right(dequantised(true), "of the quantised input, rounded when it was dequantised", 512);
}

}  // namespace
}  // namespace nanscope::testing::linear_test
