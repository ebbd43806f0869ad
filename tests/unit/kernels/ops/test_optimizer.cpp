// AdamW against torch.optim.AdamW (adamw_oracle.py), and what a state in few bits and stochastic rounding do; sums of
// squares and the cross entropy against double precision.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/numbers/codec.h"
#include "kernels/ops/adamw.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/sum_of_squares.h"
#include "tests/unit/kernels/ops/adamw_oracle.h"
#include "tests/unit/kernels/ops/gradient_test.h"

namespace nanscope::kernels {
namespace {

using test::bits;
using test::Doubles;
using test::Floats;
using test::Indices;
using test::kCanonical;
using test::kInf;
using test::kNan;
using test::random_floats;

using HalfCodes = test::Matrix<std::uint16_t>;

/// Of one row; m and v begin at 0.
struct AdamState {
  Floats gradient, weight, m, v;

  explicit AdamState(std::int64_t count) : gradient(1, count), weight(1, count), m(1, count), v(1, count) {}

  AdamWArgs args() { return {.gradient = gradient.view(), .weight = weight.view(), .m = m.view(), .v = v.view()}; }
};

Doubles listed(const double (&values)[adamw_oracle::kCount]) { return {std::begin(values), std::end(values)}; }

TEST(AdamW, TakesTheStepsOfTorch) {
  for (const adamw_oracle::Expected& expected : adamw_oracle::kExpected) {
    cases::Sequence draws(expected.seed);
    AdamState state(adamw_oracle::kCount);
    for (float& weight : state.weight.data) weight = draws.next();
    const Floats before = state.weight;
    for (int step = 1; step <= adamw_oracle::kSteps; ++step) {
      for (float& gradient : state.gradient.data) gradient = draws.next();
      AdamWArgs args = state.args();
      args.learning_rate = expected.learning_rate;
      args.beta1 = expected.beta1;
      args.beta2 = expected.beta2;
      args.eps = expected.eps;
      args.weight_decay = expected.weight_decay;
      args.gradient_scale = expected.gradient_scale;
      args.correction1 = static_cast<float>(1 - std::pow(double{expected.beta1}, step));
      args.correction2 = static_cast<float>(1 - std::pow(double{expected.beta2}, step));
      test::launch(args);
    }
    EXPECT_LE(test::relative_error(test::wide(state.weight), listed(expected.weight)), 2e-7) << expected.seed;
    EXPECT_LE(test::relative_error(test::wide(state.m), listed(expected.m)), 2e-7) << expected.seed;
    EXPECT_LE(test::relative_error(test::wide(state.v), listed(expected.v)), 2e-7) << expected.seed;
    Doubles moved;
    Doubles expected_moves;
    for (std::size_t i = 0; i < before.data.size(); ++i) {
      moved.push_back(double{state.weight.data[i]} - before.data[i]);
      expected_moves.push_back(expected.weight[i] - before.data[i]);
    }
    // Weights are kept to half an ulp a step: 1e-7 of 1 by the smallest of the moves, 1e-3.
    EXPECT_LE(test::relative_error(moved, expected_moves), 1e-4) << expected.seed;
  }
}

/// One step of one element whose state is kept in a format.
struct Narrow {
  HalfCodes m{1, 1}, v{1, 1}, out{1, 1};
  Floats gradient{1, 1}, weight{1, 1};

  void step(Format format, float of_gradient) {
    m.format = v.format = out.format = format;
    gradient.data[0] = of_gradient;
    test::launch(AdamWArgs{.gradient = gradient.view(),
                           .weight = weight.view(),
                           .m = m.view(),
                           .v = v.view(),
                           .out = out.view(),
                           .weight_decay = 0,
                           .correction1 = 0.1F,
                           .correction2 = 0.001F});
  }
};

TEST(AdamW, AnEpsBelowTheStatesFormatIsZero) {
  Narrow none;
  none.step(Format::f16, 0.0F);
  EXPECT_EQ(bits(none.weight.data[0]), kCanonical) << "0 / 0";
  EXPECT_EQ(none.out.data[0], 0x7fffU) << "f16's NaN";
  Narrow small;
  small.step(Format::f16, 1e-3F);  // v would be 1e-9
  EXPECT_EQ(small.v.data[0], 0U);
  EXPECT_EQ(small.weight.data[0], -kInf);
  Narrow kept;
  kept.step(Format::bf16, 0.0F);
  EXPECT_EQ(bits(kept.weight.data[0]), 0U) << "bf16 holds 1e-8";
  Narrow stepped;
  stepped.step(Format::bf16, 1e-3F);
  EXPECT_NEAR(stepped.weight.data[0], -1e-3F, 1e-5F);
}

TEST(AdamW, InBf16VNeverShrinks) {
  for (std::uint16_t significand = 0x3f80; significand < 0x4000; ++significand) {
    Narrow state;
    state.v.data[0] = significand;
    state.step(Format::bf16, 0.0F);
    EXPECT_EQ(state.v.data[0], significand);
  }
}

TEST(AdamW, StochasticRoundingIsBetweenNeighboursAndRightOnAverage) {
  const std::int64_t count = 4096;
  for (const Format format : {Format::bf16, Format::f16}) {
    AdamState state(count);
    const float lower = 1.0F;
    const float ulp = format == Format::bf16 ? 0x1p-7F : 0x1p-10F;
    for (float& weight : state.weight.data) weight = lower + 0.3F * ulp;
    HalfCodes out(1, count);
    out.format = format;
    AdamWArgs args = state.args();
    args.out = out.view();
    args.learning_rate = 0;
    args.stochastic = true;
    std::set<std::vector<std::uint16_t>> seen;
    for (std::uint32_t seed = 1; seed <= 3; ++seed) {
      args.seed = seed;
      test::launch(args);
      int up = 0;
      for (const std::uint16_t code : out.data) {
        const float value = decode(format, code);
        ASSERT_TRUE(value == lower || value == lower + ulp) << value;
        up += value > lower ? 1 : 0;
      }
      EXPECT_NEAR(static_cast<double>(up) / static_cast<double>(count), 0.3, 4 * std::sqrt(0.3 * 0.7 / 4096));
      EXPECT_TRUE(seen.insert(out.data).second) << "seeds draw apart";
      const auto first = out.data;
      test::launch(args);
      EXPECT_EQ(out.data, first);
    }
  }
}

TEST(AdamW, StochasticRoundingHidesNoOverflow) {
  AdamState state(6);
  state.weight.data = {kInf, -kInf, kNan, 1e6F, 65504.0F, -65519.0F};
  HalfCodes out(1, 6);
  out.format = Format::f16;
  AdamWArgs args = state.args();
  args.out = out.view();
  args.learning_rate = 0;
  args.stochastic = true;
  test::launch(args);
  EXPECT_EQ(out.data, (std::vector<std::uint16_t>{0x7c00, 0xfc00, 0x7fff, 0x7c00, 0x7bff, 0xfbff}));
}

TEST(AdamW, ANanStaysInItsElement) {
  AdamState state(40);
  state.weight = random_floats(1, 40, 161);
  state.gradient = random_floats(1, 40, 162);
  state.gradient.data[33] = kNan;
  test::launch(state.args());
  state.gradient.data[33] = 1.0F;
  test::launch(state.args());
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(std::isnan(state.weight.data[i]), i == 33);
    EXPECT_EQ(std::isnan(state.m.data[i]), i == 33) << "it stays in the state";
    EXPECT_EQ(std::isnan(state.v.data[i]), i == 33);
  }
}

TEST(SumOfSquares, IsExactUntilItLeavesF32) {
  Floats x = random_floats(3, 1000, 171, 1e10F);
  x.at(1, 500) = 3e19F;
  x.at(2, 7) = kNan;
  Floats out(3, 1);
  test::launch(SumOfSquaresArgs{x.view(), out.view()});
  double expected = 0;
  for (std::int64_t i = 0; i < x.columns; ++i) expected += double{x.at(0, i)} * x.at(0, i);
  EXPECT_EQ(out.data[0], static_cast<float>(expected));
  EXPECT_EQ(out.data[1], kInf) << "9e38 is no f32";
  EXPECT_EQ(bits(out.data[2]), kCanonical);
}

TEST(CrossEntropy, IsTheLogarithmInDoublePrecision) {
  for (const float amplitude : {0.5F, 4.0F, 60.0F}) {
    Floats logits = random_floats(5, 777, 172, amplitude);
    Indices targets(5, 1, {0, 776, 31, -1, 777});
    Floats loss(5, 1, 7.0F);
    test::launch(CrossEntropyArgs{logits.view(), targets.view(), loss.view()});
    for (std::int64_t row = 0; row < 3; ++row) {
      double total = 0;
      const double wanted = logits.at(row, targets.at(row, 0));
      for (std::int64_t v = 0; v < logits.columns; ++v) total += std::exp(logits.at(row, v) - wanted);
      EXPECT_EQ(loss.at(row, 0), static_cast<float>(std::log(total)));
    }
    EXPECT_EQ(bits(loss.at(3, 0)), 0U);
    EXPECT_EQ(bits(loss.at(4, 0)), 0U) << "beyond the logits";
  }
}

TEST(CrossEntropy, InfiniteLogits) {
  Floats logits = random_floats(5, 40, 173);
  logits.at(0, 3) = kNan;
  logits.at(1, 3) = kInf;
  logits.at(2, 3) = -kInf;
  logits.at(3, 3) = -kInf;
  for (std::int64_t v = 0; v < 40; ++v) logits.at(4, v) = -kInf;
  Indices targets(5, 1, {5, 5, 5, 3, 3});
  Floats loss(5, 1);
  test::launch(CrossEntropyArgs{logits.view(), targets.view(), loss.view()});
  EXPECT_EQ(bits(loss.at(0, 0)), kCanonical);
  EXPECT_EQ(bits(loss.at(1, 0)), kCanonical);
  EXPECT_TRUE(std::isfinite(loss.at(2, 0)));
  EXPECT_EQ(loss.at(3, 0), kInf);
  EXPECT_EQ(bits(loss.at(4, 0)), kCanonical);
}

}  // namespace
}  // namespace nanscope::kernels
