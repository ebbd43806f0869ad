// The recurrent ops of gated delta nets against double precision by other formulas.
#include "kernels/ops/causal_conv.h"
#include "kernels/ops/delta_rule.h"
#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels {
namespace {

using test::Floats;
using test::kNan;

/// Rows [first, first + count) of a matrix.
TensorView rows_of(Floats& matrix, std::int64_t first, std::int64_t count) {
  return {&matrix.at(first, 0), Format::f32, count, matrix.columns, matrix.columns};
}

constexpr std::int64_t kTaps = 4;

struct Conv {
  Floats x = test::random_floats(9, 40, 61, 3.0F);
  Floats weight = test::random_floats(kTaps, 40, 62);
  Floats state{kTaps - 1, 40, 77.0F};
  Floats out{9, 40};

  void run(std::int64_t first, std::int64_t count, bool resume) {
    test::launch(CausalConvArgs{.x = rows_of(x, first, count),
                                .weight = weight.view(),
                                .state = state.view(),
                                .out = rows_of(out, first, count),
                                .resume = resume});
  }
};

TEST(CausalConv, IsAConvolutionOverTheRowsBefore) {
  Conv conv;
  conv.run(0, 9, false);
  for (std::int64_t t = 0; t < 9; ++t) {
    for (std::int64_t c = 0; c < 40; ++c) {
      double y = 0;
      for (std::int64_t back = 0; back < kTaps && back <= t; ++back)
        y += double{conv.weight.at(kTaps - 1 - back, c)} * double{conv.x.at(t - back, c)};
      EXPECT_NEAR(conv.out.at(t, c), y / (1 + std::exp(-y)), 1e-5) << t << ' ' << c;
    }
  }
  for (std::int64_t i = 0; i < kTaps - 1; ++i) {
    for (std::int64_t c = 0; c < 40; ++c) EXPECT_EQ(conv.state.at(i, c), conv.x.at(9 - (kTaps - 1) + i, c));
  }
}

TEST(CausalConv, PartsAreTheWhole) {
  Conv whole;
  whole.run(0, 9, false);
  // The second and the third part are shorter than what the state keeps.
  Conv parts;
  for (const auto& [first, count] : {std::pair{0, 5}, std::pair{5, 1}, std::pair{6, 2}, std::pair{8, 1}})
    parts.run(first, count, first > 0);
  EXPECT_EQ(parts.out.data, whole.out.data);
  EXPECT_EQ(parts.state.data, whole.state.data);
}

TEST(CausalConv, ANanReachesAsManyRowsAsThereAreTaps) {
  Conv conv;
  conv.x.at(2, 9) = kNan;
  conv.run(0, 9, false);
  for (std::int64_t t = 0; t < 9; ++t) {
    for (std::int64_t c = 0; c < 40; ++c)
      EXPECT_EQ(std::isnan(conv.out.at(t, c)), c == 9 && t >= 2 && t < 2 + kTaps) << t << ' ' << c;
  }
}

/// Three key heads of 6 channels, six value heads of 40.
struct Delta {
  static constexpr std::int64_t kRows = 7;
  static constexpr std::int64_t kKeys = 6;
  static constexpr std::int64_t kValues = 40;
  static constexpr std::int64_t kKeyHeads = 3;
  static constexpr std::int64_t kHeads = 6;
  Floats q = test::random_floats(kRows, kKeyHeads* kKeys, 71, 2.0F);
  Floats k = test::random_floats(kRows, kKeyHeads* kKeys, 72, 2.0F);
  Floats v = test::random_floats(kRows, kHeads* kValues, 73, 2.0F);
  Floats a = test::random_floats(kRows, kHeads, 74, 3.0F);
  Floats b = test::random_floats(kRows, kHeads, 75, 3.0F);
  Floats a_log = test::random_floats(1, kHeads, 76, 2.0F);
  Floats dt_bias = test::random_floats(1, kHeads, 77);
  Floats state{kHeads * kKeys, kValues, 77.0F};
  Floats out{kRows, kHeads* kValues};

  void run(std::int64_t first, std::int64_t count, bool resume) {
    test::launch(DeltaRuleArgs{.q = rows_of(q, first, count),
                               .k = rows_of(k, first, count),
                               .v = rows_of(v, first, count),
                               .a = rows_of(a, first, count),
                               .b = rows_of(b, first, count),
                               .a_log = a_log.view(),
                               .dt_bias = dt_bias.view(),
                               .state = state.view(),
                               .out = rows_of(out, first, count),
                               .key_heads = kKeyHeads,
                               .value_heads = kHeads,
                               .resume = resume});
  }

  /// The attention that the recurrence is: out[t] is a sum over s <= t of what token s wrote, which the rank-1 products
  /// of the tokens between have turned: S[t] = sum of decays k'[s] delta[s], delta[s] = beta (v[s] - S[s-1]' k'[s]).
  double expected(std::int64_t row, std::int64_t head, std::int64_t channel) const {
    const std::int64_t first = head / (kHeads / kKeyHeads) * kKeys;
    const auto unit = [&](const Floats& from, std::int64_t t, std::int64_t i) {
      double square = 1e-6;
      for (std::int64_t j = 0; j < kKeys; ++j) square += double{from.at(t, first + j)} * double{from.at(t, first + j)};
      return double{from.at(t, first + i)} / std::sqrt(square);
    };
    const auto dot = [&](const Floats& left, std::int64_t t, const Floats& right, std::int64_t s) {
      double sum = 0;
      for (std::int64_t i = 0; i < kKeys; ++i) sum += unit(left, t, i) * unit(right, s, i);
      return sum;
    };
    const auto log_decay = [&](std::int64_t t) {
      return -std::exp(double{a_log.at(0, head)}) *
             std::log1p(std::exp(double{a.at(t, head)} + double{dt_bias.at(0, head)}));
    };
    const auto faded = [&](std::int64_t from, std::int64_t to) {
      double sum = 0;
      for (std::int64_t t = from + 1; t <= to; ++t) sum += log_decay(t);
      return std::exp(sum);
    };
    std::vector<double> delta;
    for (std::int64_t t = 0; t <= row; ++t) {
      double held = 0;
      for (std::int64_t s = 0; s < t; ++s) held += faded(s, t) * dot(k, t, k, s) * delta[static_cast<std::size_t>(s)];
      delta.push_back((double{v.at(t, head * kValues + channel)} - held) / (1 + std::exp(-double{b.at(t, head)})));
    }
    double sum = 0;
    for (std::int64_t s = 0; s <= row; ++s)
      sum += faded(s, row) * dot(q, row, k, s) * delta[static_cast<std::size_t>(s)] / std::sqrt(double{kKeys});
    return sum;
  }
};

TEST(DeltaRule, IsTheAttentionThatItsRecurrenceMeans) {
  Delta delta;
  delta.run(0, Delta::kRows, false);
  for (std::int64_t t = 0; t < Delta::kRows; ++t) {
    for (std::int64_t head = 0; head < Delta::kHeads; ++head) {
      for (std::int64_t c = 0; c < Delta::kValues; ++c)
        EXPECT_NEAR(delta.out.at(t, head * Delta::kValues + c), delta.expected(t, head, c), 2e-6)
            << t << ' ' << head << ' ' << c;
    }
  }
}

TEST(DeltaRule, PartsAreTheWhole) {
  Delta whole;
  whole.run(0, Delta::kRows, false);
  Delta parts;
  for (const auto& [first, count] : {std::pair{0, 4}, std::pair{4, 1}, std::pair{5, 2}})
    parts.run(first, count, first > 0);
  EXPECT_EQ(parts.out.data, whole.out.data);
  EXPECT_EQ(parts.state.data, whole.state.data);
}

TEST(DeltaRule, ANanStaysWhereItsInputLeadsIt) {
  Delta of_value;
  of_value.v.at(2, 50) = kNan;  // channel 10 of head 1
  of_value.run(0, Delta::kRows, false);
  Delta of_query;
  of_query.q.at(3, 7) = kNan;  // key head 1: value heads 2 and 3
  of_query.run(0, Delta::kRows, false);
  for (std::int64_t t = 0; t < Delta::kRows; ++t) {
    for (std::int64_t c = 0; c < Delta::kHeads * Delta::kValues; ++c) {
      EXPECT_EQ(std::isnan(of_value.out.at(t, c)), c == 50 && t >= 2) << t << ' ' << c;
      const std::int64_t head = c / Delta::kValues;
      EXPECT_EQ(std::isnan(of_query.out.at(t, c)), t == 3 && (head == 2 || head == 3)) << t << ' ' << c;
    }
  }
}

/// softplus above 20 is its argument, and far below 0 a power that is no zero.
TEST(DeltaRule, DecayHoldsAtTheEndsOfItsRange) {
  for (const auto& [a, decay] : {std::pair{40.0F, std::exp(-40.0)}, std::pair{-40.0F, 1.0}, std::pair{1e4F, 0.0}}) {
    Delta delta;
    for (float& one : delta.a.data) one = a;
    for (float& one : delta.dt_bias.data) one = 0;
    for (float& one : delta.a_log.data) one = 0;
    for (float& one : delta.b.data) one = -1e4F;  // nothing is written
    for (float& one : delta.state.data) one = 1;
    delta.run(0, 1, true);
    EXPECT_NEAR(delta.state.at(3, 5), decay, 1e-7 * decay) << a;
  }
}

}  // namespace
}  // namespace nanscope::kernels
