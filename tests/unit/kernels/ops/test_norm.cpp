// LayerNorm and RMSNorm against three oracles: the published figures of E[x^2]-E[x]^2 for equal
// values, sums written here from the definition of each order, and double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "kernels/ops/layer_norm.h"
#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels {
namespace {

using test::bits;
using test::Floats;

struct Settings {
  NormKind kind = NormKind::layer_norm;
  VarianceForm variance = VarianceForm::one_pass;
  SumOrder order = SumOrder::sequential;
  bool contract = false;
  bool clamp = false;
  bool reciprocal = false;
  float eps = 1e-5F;
};

struct Normed {
  Floats out;
  Floats stats;
};

Normed norm(Floats x, const Settings& settings, std::int64_t groups = 1) {
  Normed result{Floats(x.rows, x.columns), Floats(x.rows, groups * 3)};
  LayerNormArgs args;
  args.x = x.view();
  args.out = result.out.view();
  args.stats = result.stats.view();
  args.groups = groups;
  args.kind = settings.kind;
  args.variance = settings.variance;
  args.order = settings.order;
  args.contract = settings.contract;
  args.clamp = settings.clamp;
  args.mean_by_reciprocal = settings.reciprocal;
  args.eps = settings.eps;
  test::launch(args);
  return result;
}

// ---- Published: n copies of 11.2f. The figures are multiples of 2^-17, given to four digits. ----

struct Published {
  std::int64_t n;
  SumOrder order;
  bool reciprocal;
  int steps;  ///< variance in units of 2^-17
};

class EqualValues : public testing::TestWithParam<Published> {};

TEST_P(EqualValues, OnePassVarianceIsThePublishedOne) {
  const Published& row = GetParam();
  const Floats x(1, row.n, 11.2F);
  const Normed found = norm(x, {.order = row.order, .reciprocal = row.reciprocal});
  EXPECT_EQ(found.stats.at(0, 1), static_cast<float>(row.steps) * 0x1p-17F);
}

INSTANTIATE_TEST_SUITE_P(
    D2, EqualValues,
    testing::Values(Published{8, SumOrder::sequential, false, 3},        // +2.289e-5
                    Published{64, SumOrder::sequential, false, -26},     // -1.984e-4
                    Published{128, SumOrder::sequential, false, 47},     // +3.586e-4
                    Published{256, SumOrder::sequential, false, 59},     // +4.501e-4
                    Published{768, SumOrder::sequential, false, -302},   // -2.304e-3
                    Published{768, SumOrder::sequential, true, -304},    // -2.319e-3
                    Published{1024, SumOrder::sequential, false, -452},  // -3.448e-3
                    Published{4096, SumOrder::sequential, false, 1055},  // +8.049e-3
                    Published{8, SumOrder::warp, false, 0}, Published{64, SumOrder::warp, false, 0},
                    Published{128, SumOrder::warp, false, 0}, Published{256, SumOrder::warp, false, 3},
                    Published{768, SumOrder::warp, false, 1},     // +7.629e-6
                    Published{768, SumOrder::warp, true, -1},     // -7.629e-6
                    Published{1024, SumOrder::warp, false, -11},  // -8.392e-5
                    Published{4096, SumOrder::warp, false, 47},   // +3.586e-4
                    Published{8, SumOrder::pairwise, false, 0}, Published{64, SumOrder::pairwise, false, 0},
                    Published{128, SumOrder::pairwise, false, 0}, Published{256, SumOrder::pairwise, false, 0},
                    Published{768, SumOrder::pairwise, false, 0}, Published{768, SumOrder::pairwise, true, 0},
                    Published{1024, SumOrder::pairwise, false, 0}, Published{4096, SumOrder::pairwise, false, 0}));

TEST(LayerNormVariance, ContractionShowsTheRoundingOfTheSquare) {
  for (const std::int64_t n : {8, 64, 128, 256, 768, 1024, 4096}) {
    const Normed found = norm(Floats(1, n, 11.2F), {.order = SumOrder::pairwise, .contract = true});
    const float square = 11.2F * 11.2F;
    const double exact = static_cast<double>(square) - static_cast<double>(11.2F) * static_cast<double>(11.2F);
    EXPECT_EQ(found.stats.at(0, 1), static_cast<float>(exact));
    EXPECT_NEAR(found.stats.at(0, 1), -9.155e-7, 1e-10);
  }
  const Normed warp = norm(Floats(1, 768, 11.2F), {.order = SumOrder::warp, .contract = true, .reciprocal = true});
  EXPECT_NEAR(warp.stats.at(0, 1), -1.007e-5, 1e-8);
}

TEST(LayerNormVariance, NanExactlyWhereTheVariancePlusEpsIsNegative) {
  const auto is_nan_at = [](std::int64_t n, SumOrder order, bool contract, float eps) {
    const Normed found = norm(Floats(1, n, 11.2F), {.order = order, .contract = contract, .eps = eps});
    return std::all_of(found.out.data.begin(), found.out.data.end(),
                       [](float v) { return bits(v) == test::kCanonical; });
  };
  for (const float eps : {1e-12F, 1e-6F, 1e-5F}) {
    for (const std::int64_t n : {64, 768, 1024}) EXPECT_TRUE(is_nan_at(n, SumOrder::sequential, false, eps)) << n;
    EXPECT_TRUE(is_nan_at(1024, SumOrder::warp, false, eps));
    EXPECT_FALSE(is_nan_at(8, SumOrder::sequential, false, eps));
    EXPECT_FALSE(is_nan_at(1024, SumOrder::pairwise, false, eps));
  }
  EXPECT_TRUE(is_nan_at(8, SumOrder::pairwise, true, 1e-12F));
  EXPECT_FALSE(is_nan_at(8, SumOrder::pairwise, true, 1e-6F));
}

TEST(LayerNormVariance, ClampMakesTheNegativeVarianceZero) {
  const Normed found = norm(Floats(1, 1024, 11.2F), {.clamp = true});
  EXPECT_EQ(found.stats.at(0, 1), -452 * 0x1p-17F) << "stats show what was computed, before the clamp";
  EXPECT_EQ(found.stats.at(0, 2), 1.0F / std::sqrt(1e-5F));
  EXPECT_TRUE(std::isfinite(found.out.at(0, 17)));
}

TEST(LayerNormVariance, ClampLetsANanThrough) {
  Floats x(1, 8, 1.0F);
  x.at(0, 3) = test::kNan;
  EXPECT_TRUE(std::isnan(norm(x, {.clamp = true}).out.at(0, 0)));
}

TEST(LayerNormVariance, TwoPassAndWelfordAreNeverNegative) {
  cases::Sequence sequence(5);
  for (int i = 0; i < 300; ++i) {
    const float value = std::exp(sequence.next() * 6.0F);
    for (const VarianceForm form : {VarianceForm::two_pass, VarianceForm::welford}) {
      for (const SumOrder order : {SumOrder::sequential, SumOrder::warp, SumOrder::pairwise}) {
        EXPECT_GE(norm(Floats(1, 768, value), {.variance = form, .order = order}).stats.at(0, 1), 0.0F);
      }
    }
  }
}

// ---- The orders, from their definitions. ----

float sequential_sum(const std::vector<float>& x) {
  float total = 0;
  for (const float v : x) total += v;
  return total;
}
float warp_sum(const std::vector<float>& x) {
  std::vector<float> lanes(32, 0.0F);
  for (std::size_t i = 0; i < x.size(); ++i) lanes[i % 32] += x[i];
  for (std::size_t half = 16; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}
float pairwise_sum(const float* x, std::size_t n) {
  if (n == 1) return x[0];
  std::size_t left = 1;
  while (left * 2 < n) left *= 2;
  return pairwise_sum(x, left) + pairwise_sum(x + left, n - left);
}
float ordered_sum(const std::vector<float>& x, SumOrder order) {
  if (order == SumOrder::sequential) return sequential_sum(x);
  return order == SumOrder::warp ? warp_sum(x) : pairwise_sum(x.data(), x.size());
}
std::vector<float> map(const std::vector<float>& x, const std::function<float(float)>& f) {
  std::vector<float> y(x.size());
  std::transform(x.begin(), x.end(), y.begin(), f);
  return y;
}

struct State {
  float n, mean, m2;
};
State joined(const State& a, const State& b) {
  const float n = a.n + b.n;
  const float share = b.n / n;
  const float d = b.mean - a.mean;
  return {n, a.mean + d * share, (a.m2 + b.m2) + (d * d) * (a.n * share)};
}
State pairwise_state(const float* x, std::size_t n) {
  if (n == 1) return {1.0F, x[0], 0.0F};
  std::size_t left = 1;
  while (left * 2 < n) left *= 2;
  return joined(pairwise_state(x, left), pairwise_state(x + left, n - left));
}
State sequential_state(const std::vector<float>& x) {
  State s{0, 0, 0};
  for (const float v : x) {
    s.n += 1.0F;
    const float d = v - s.mean;
    s.mean += d / s.n;
    s.m2 += d * (v - s.mean);
  }
  return s;
}

constexpr SumOrder kOrders[] = {SumOrder::sequential, SumOrder::warp, SumOrder::pairwise};
constexpr std::int64_t kWidths[] = {1, 2, 3, 5, 31, 32, 33, 63, 64, 65, 95, 100, 127, 129, 768, 1000, 1025};

TEST(LayerNormOrder, StatsAreTheSumsOfTheDefinition) {
  for (const std::int64_t n : kWidths) {
    const Floats x = test::random_floats(1, n, static_cast<std::uint64_t>(n), 7.0F);
    const float count = static_cast<float>(n);
    for (const SumOrder order : kOrders) {
      SCOPED_TRACE(testing::Message() << "n " << n << " order " << static_cast<int>(order));
      const float mean = ordered_sum(x.data, order) / count;
      const float squares = ordered_sum(map(x.data, [](float v) { return v * v; }), order) / count;
      const float centred = ordered_sum(map(x.data, [&](float v) { return (v - mean) * (v - mean); }), order) / count;
      const Normed one = norm(x, {.order = order});
      EXPECT_EQ(one.stats.at(0, 0), mean);
      EXPECT_EQ(one.stats.at(0, 1), squares - mean * mean);
      EXPECT_EQ(norm(x, {.order = order, .contract = true}).stats.at(0, 1), std::fma(-mean, mean, squares));
      EXPECT_EQ(norm(x, {.variance = VarianceForm::two_pass, .order = order}).stats.at(0, 1), centred);
      const Normed rms = norm(x, {.kind = NormKind::rms_norm, .order = order});
      EXPECT_EQ(rms.stats.at(0, 0), 0.0F);
      EXPECT_EQ(rms.stats.at(0, 1), squares);
    }
  }
}

TEST(LayerNormOrder, WelfordIsTheRecurrenceAndTheTreeOfJoins) {
  for (const std::int64_t n : kWidths) {
    const Floats x = test::random_floats(1, n, static_cast<std::uint64_t>(n) + 100, 7.0F);
    const State forward = sequential_state(x.data);
    const State tree = pairwise_state(x.data.data(), x.data.size());
    const Normed a = norm(x, {.variance = VarianceForm::welford, .order = SumOrder::sequential});
    const Normed b = norm(x, {.variance = VarianceForm::welford, .order = SumOrder::pairwise});
    EXPECT_EQ(a.stats.at(0, 0), forward.mean) << n;
    EXPECT_EQ(a.stats.at(0, 1), forward.m2 / static_cast<float>(n)) << n;
    EXPECT_EQ(b.stats.at(0, 0), tree.mean) << n;
    EXPECT_EQ(b.stats.at(0, 1), tree.m2 / static_cast<float>(n)) << n;
  }
}

TEST(LayerNormOrder, WarpWelfordIsTheLanesJoinedByTheButterfly) {
  for (const std::int64_t n : kWidths) {
    const Floats x = test::random_floats(1, n, static_cast<std::uint64_t>(n) + 200, 7.0F);
    std::vector<State> lanes;
    for (std::size_t lane = 0; lane < 32; ++lane) {
      std::vector<float> own;
      for (std::size_t i = lane; i < x.data.size(); i += 32) own.push_back(x.data[i]);
      lanes.push_back(sequential_state(own));
    }
    for (std::size_t half = 16; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) {
        if (lanes[i + half].n == 0) continue;
        lanes[i] = lanes[i].n == 0 ? lanes[i + half] : joined(lanes[i], lanes[i + half]);
      }
    }
    const Normed found = norm(x, {.variance = VarianceForm::welford, .order = SumOrder::warp});
    EXPECT_EQ(found.stats.at(0, 0), lanes[0].mean) << n;
    EXPECT_EQ(found.stats.at(0, 1), lanes[0].m2 / static_cast<float>(n)) << n;
  }
}

// ---- Double precision, scale, NaN. ----

TEST(LayerNorm, AgreesWithDoublePrecisionInEveryForm) {
  Floats x = test::random_floats(5, 200, 9, 3.0F);
  Floats weight = test::random_floats(1, 200, 10);
  Floats bias = test::random_floats(1, 200, 11);
  for (const VarianceForm form : {VarianceForm::one_pass, VarianceForm::two_pass, VarianceForm::welford}) {
    for (const SumOrder order : kOrders) {
      Floats out(5, 200);
      LayerNormArgs args;
      args.x = x.view();
      args.weight = weight.view();
      args.bias = bias.view();
      args.out = out.view();
      args.variance = form;
      args.order = order;
      test::launch(args);
      for (std::int64_t row = 0; row < 5; ++row) {
        double mean = 0;
        double variance = 0;
        for (std::int64_t i = 0; i < 200; ++i) mean += static_cast<double>(x.at(row, i)) / 200;
        for (std::int64_t i = 0; i < 200; ++i) variance += std::pow(static_cast<double>(x.at(row, i)) - mean, 2) / 200;
        for (std::int64_t i = 0; i < 200; ++i) {
          const double y = (static_cast<double>(x.at(row, i)) - mean) / std::sqrt(variance + 1e-5);
          const double expected = y * static_cast<double>(weight.at(0, i)) + static_cast<double>(bias.at(0, i));
          EXPECT_NEAR(out.at(row, i), expected, 5e-6);
        }
      }
    }
  }
}

TEST(LayerNorm, RmsNormDividesByTheRootMeanSquare) {
  const Floats x = test::random_floats(1, 77, 12, 3.0F);
  double squares = 0;
  for (const float v : x.data) squares += static_cast<double>(v) * static_cast<double>(v);
  const Normed found = norm(x, {.kind = NormKind::rms_norm});
  for (std::int64_t i = 0; i < 77; ++i) {
    EXPECT_NEAR(found.out.at(0, i), static_cast<double>(x.at(0, i)) / std::sqrt(squares / 77 + 1e-5), 1e-6);
  }
  // Equal values, LayerNorm's trap, stay finite.
  EXPECT_NEAR(norm(Floats(1, 1024, 11.2F), {.kind = NormKind::rms_norm}).out.at(0, 5), 1.0, 1e-4);
}

TEST(LayerNorm, ANanFillsItsGroupAndNothingElse) {
  for (const std::uint32_t payload : {0x7fc00000U, 0xffc00000U, 0x7f800001U, 0x7fc00123U}) {
    Floats x = test::random_floats(3, 64, 13);
    x.at(1, 40) = test::from_bits(payload);
    for (const VarianceForm form : {VarianceForm::one_pass, VarianceForm::two_pass, VarianceForm::welford}) {
      const Normed found = norm(x, {.variance = form}, 2);
      for (std::int64_t row = 0; row < 3; ++row) {
        for (std::int64_t i = 0; i < 64; ++i) {
          if (row == 1 && i >= 32) {
            EXPECT_EQ(bits(found.out.at(row, i)), test::kCanonical);
          } else {
            EXPECT_TRUE(std::isfinite(found.out.at(row, i)));
          }
        }
      }
    }
  }
}

TEST(LayerNorm, AnInfinityMakesTheWholeRowNan) {
  Floats x = test::random_floats(1, 33, 14);
  x.at(0, 7) = test::kInf;
  const Normed found = norm(x, {.variance = VarianceForm::two_pass});
  for (const float v : found.out.data) EXPECT_EQ(bits(v), test::kCanonical);
}

TEST(LayerNorm, GroupsAreIndependentRows) {
  const Floats x = test::random_floats(2, 3 * 45, 15);
  const Floats same(6, 45, x.data);
  const Normed grouped = norm(x, {.order = SumOrder::warp}, 3);
  const Normed single = norm(same, {.order = SumOrder::warp});
  EXPECT_EQ(grouped.out.data, single.out.data);
  EXPECT_EQ(grouped.stats.data, single.stats.data);
}

}  // namespace
}  // namespace nanscope::kernels
