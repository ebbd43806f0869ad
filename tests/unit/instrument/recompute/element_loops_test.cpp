#include "instrument/recompute/element_loops.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

/// The loops of every instruction set against plain ones: the same bits.
namespace nanscope::testing::loops {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> noise(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& one : numbers) one = normal(random);
  return numbers;
}

std::vector<std::uint64_t> bits_of(const std::vector<double>& numbers) {
  std::vector<std::uint64_t> bits;
  for (const double one : numbers) bits.push_back(std::bit_cast<std::uint64_t>(one));
  return bits;
}

template <class Check>
void on_each(const Check& check) {
  const AllElementLoops all = all_element_loops();
  for (int i = 0; i < all.count; ++i) {
    SCOPED_TRACE(i);
    check(*all.loops[i]);
  }
}

TEST(ElementLoops, JudgeWhatIsFiniteAndNotHidden) {
  // Within, at and beyond the bound; a bound of 0, none, NaN and Inf; NaN and Inf on both sides; hidden; clamped.
  const std::vector<float> actual = {1, 2, 3, 4, 4, 5, 6, 7, kNaN, kInf, 8, -9000, 448, 0.5F};
  const std::vector<float> expected = {1, 2.5F, 5, 4, 5, 5, 6, 7, 1, 1, kNaN, -9000, 1000, 0.5F};
  const std::vector<float> bound = {1, 0.5F, 1, 0, 0, -1, kNaN, kInf, 1, 1, 1, 1, 1, 2};
  const std::vector<double> bounds = {1, 0.5, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2};
  const std::vector<double> distances = {0, 0.5, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 552, 0};
  const std::vector<double> squares = {0, 1, 4, 0, 1e6, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  RowPair row{.actual = actual.data(),
              .expected = expected.data(),
              .bound = bound.data(),
              .columns = 14,
              .lowest = -448,
              .largest = 448,
              .hidden = -5e3,
              .farthest = 1e3};
  on_each([&](const ElementLoops& loops) {
    std::vector<double> made[3] = {std::vector<double>(16), std::vector<double>(16), std::vector<double>(16)};
    RowJudged judged;
    row.hidden = -5e3;
    loops.compare(row, {made[0].data(), made[1].data(), made[2].data()}, judged);
    for (std::vector<double>& one : made) one.resize(14);
    EXPECT_EQ(judged.elements, 7);
    EXPECT_EQ(judged.explained, 5);
    EXPECT_TRUE(judged.terms);
    EXPECT_EQ(judged.largest, std::numeric_limits<double>::infinity());
    EXPECT_EQ(bits_of(made[0]), bits_of(bounds));
    EXPECT_EQ(bits_of(made[1]), bits_of(distances));
    EXPECT_EQ(bits_of(made[2]), bits_of(squares));
    row.hidden = std::numeric_limits<double>::quiet_NaN();
    for (std::vector<double>& one : made) one.resize(16);
    loops.compare(row, {made[0].data(), made[1].data(), made[2].data()}, judged);
    EXPECT_EQ(judged.elements, 8);
  });
}

TEST(ElementLoops, MeasureThoseWhoseDeviationIsKnown) {
  const std::vector<float> actual = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, kNaN};
  const std::vector<float> expected(11, 1);
  const std::vector<float> bound = {5, 5, 5, 5, 5, 5, 5, 5, 5, -1, 5};
  const std::vector<float> deviation = {1, 2, 0, 4, 1, 2, 1, 1, 16, 1, 1};
  const RowPair row{.actual = actual.data(),
                    .expected = expected.data(),
                    .bound = bound.data(),
                    .deviation = deviation.data(),
                    .columns = 11,
                    .lowest = -448,
                    .largest = 448,
                    .hidden = std::numeric_limits<double>::quiet_NaN(),
                    .farthest = 1e3};
  on_each([&](const ElementLoops& loops) {
    std::vector<double> terms(3 * 16);
    RowJudged judged;
    loops.compare(row, {&terms[0], &terms[16], &terms[32]}, judged);
    EXPECT_EQ(judged.elements, 9);
    EXPECT_EQ(judged.measured, 8);
    EXPECT_EQ(judged.measured_explained, 5);  // 6, 7 and 8 are further off
    EXPECT_EQ(judged.measured_squares, 0 + 0.25 + 0.5625 + 16 + 6.25 + 36 + 49 + 0.25);
  });
}

TEST(ElementLoops, TellsARowThatAddsNothing) {
  const std::vector<float> same = noise(19, 1);
  const std::vector<float> exact(19);
  on_each([&](const ElementLoops& loops) {
    std::vector<double> terms(3 * 24);
    RowJudged judged;
    const RowPair row{.actual = same.data(),
                      .expected = same.data(),
                      .bound = exact.data(),
                      .columns = 19,
                      .lowest = -9,
                      .largest = 9,
                      .hidden = std::numeric_limits<double>::quiet_NaN(),
                      .farthest = 1e3};
    loops.compare(row, {&terms[0], &terms[24], &terms[48]}, judged);
    EXPECT_EQ(judged.explained, 19);
    EXPECT_FALSE(judged.terms);
  });
}

TEST(ElementLoops, DotsAreFourSums) {
  constexpr std::int64_t kStride = 48;
  constexpr std::int64_t kRows = 5;
  for (const std::int64_t width : {1, 4, 7, 64}) {
    const std::vector<float> x = noise(static_cast<std::size_t>(kRows * width), 4);
    const std::vector<float> keys = noise(static_cast<std::size_t>(width * kStride), 5);
    std::vector<double> right;
    for (std::int64_t at = 0; at < kRows * kStride; ++at) {
      double sums[4] = {};
      for (std::int64_t i = 0; i < width; ++i)
        sums[i < width / 4 * 4 ? i % 4 : 0] += double{x[static_cast<std::size_t>(at / kStride * width + i)]} *
                                               double{keys[static_cast<std::size_t>(i * kStride + at % kStride)]};
      right.push_back((sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
    on_each([&](const ElementLoops& loops) {
      std::vector<double> sums(kRows * kStride);
      loops.dots(x.data(), kRows, {keys.data(), width, kStride}, sums.data());
      EXPECT_EQ(bits_of(sums), bits_of(right)) << width;
    });
  }
}

/// Rows of which one is NaN and has no weight, and what mix() and spread() should make of them.
struct Mixed {
  static constexpr std::int64_t kKeys = 9;
  std::int64_t width;
  std::int64_t stride = width + 3;
  std::vector<float> rows = noise(static_cast<std::size_t>(kKeys * stride), 6);
  std::vector<float> errors = noise(static_cast<std::size_t>(kKeys * stride), 7);
  std::vector<double> weights = {0.5, 0, 0.25, 1e-3, 0, -2, 7, 0.1, 0.3};
  std::vector<double> slacks = {0, 0, 0.1, 0.2, 0.3, 0, 0, 1, 2};
  std::vector<double> value = std::vector<double>(static_cast<std::size_t>(width));
  std::vector<double> deviations = {0, 0, 0.01, 0, 0.02, 0.5, 0, 3, 0.1};
  std::vector<double> squares = value;
  std::vector<double> error = value;
  std::vector<double> spread = value;
  std::vector<double> spread_by_size = value;
  std::vector<double> variance = value;

  explicit Mixed(std::int64_t channels) : width(channels) {
    for (std::int64_t c = 0; c < stride; ++c) rows[static_cast<std::size_t>(stride + c)] = kNaN;
    const auto each = [&](const auto& visit) {
      for (std::size_t key = 0; key < kKeys; ++key) {
        for (std::size_t c = 0; c < value.size() && (weights[key] != 0 || slacks[key] != 0); ++c)
          visit(key, c, key * static_cast<std::size_t>(stride) + c);
      }
    };
    each([&](std::size_t key, std::size_t c, std::size_t at) {
      value[c] += weights[key] * double{rows[at]};
      const double product = weights[key] * double{rows[at]};
      squares[c] += product * product;
      error[c] += std::abs(weights[key]) * double{errors[at]};
    });
    each([&](std::size_t key, std::size_t c, std::size_t at) {
      spread[c] += slacks[key] * std::abs(double{rows[at]} - value[c]);
      spread_by_size[c] += slacks[key] * std::abs(double{rows[at]});
      const double off = deviations[key] * (double{rows[at]} - value[c]);
      variance[c] += off * off;
    });
  }
  WeightedRows weighted(bool with_errors) const {
    return {.weights = weights.data(),
            .slacks = slacks.data(),
            .deviations = deviations.data(),
            .rows = rows.data(),
            .errors = with_errors ? errors.data() : nullptr,
            .keys = kKeys,
            .stride = stride,
            .width = width};
  }
};

TEST(ElementLoops, MixKeyByKey) {
  for (const std::int64_t width : {3, 16, 64, 70}) {
    const Mixed right(width);
    on_each([&](const ElementLoops& loops) {
      for (const bool with_errors : {false, true}) {
        std::vector<double> value(static_cast<std::size_t>(width));
        std::vector<double> squares = value;
        std::vector<double> error = value;
        const std::vector<double> none = value;
        loops.mix(right.weighted(with_errors), {value.data(), squares.data(), error.data(), nullptr});
        EXPECT_EQ(bits_of(value), bits_of(right.value)) << width;
        EXPECT_EQ(bits_of(squares), bits_of(right.squares)) << width;
        EXPECT_EQ(bits_of(error), bits_of(with_errors ? right.error : none)) << width;
        std::vector<double> spread = none;
        std::vector<double> variance = none;
        loops.spread(right.weighted(with_errors), {value.data(), nullptr, spread.data(), variance.data()});
        EXPECT_EQ(bits_of(variance), bits_of(right.variance)) << width;
        EXPECT_EQ(bits_of(spread), bits_of(right.spread)) << width;
        spread = none;
        loops.spread(right.weighted(with_errors), {nullptr, nullptr, spread.data(), variance.data()});
        EXPECT_EQ(bits_of(spread), bits_of(right.spread_by_size)) << width;
      }
    });
  }
}

}  // namespace
}  // namespace nanscope::testing::loops
