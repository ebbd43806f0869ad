#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numbers>
#include <string_view>
#include <vector>

#include "instrument/weights/random.h"

namespace nanscope {
namespace {

/// FNV-1a over the bits, low byte first.
std::uint64_t digest(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes += static_cast<char>((std::bit_cast<std::uint32_t>(value) >> shift) & 0xFF);
    }
  }
  return stream_of(bytes);
}

/// The three known answers for philox4x32-10 of Random123 1.14 (tests/kat_vectors).
TEST(Philox, GivesThePublishedKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, AddressesEveryWordOfTheBlock) {
  const std::uint64_t seed = 0x299f31d0'a4093822;
  const std::uint64_t stream = 0x03707344'13198a2e;
  const std::uint64_t index = 4 * std::uint64_t{0x05a308d3'243f6a88};  // 4x a counter has to fit 64 bits
  const PhiloxCounter block = philox4x32({0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
  for (unsigned word = 0; word < 4; ++word) EXPECT_EQ(random_bits(seed, stream, index + word), block[word]);
}

/// Published FNV-1a 64 test values (Noll, fnv64 reference code).
TEST(Stream, IsFnv1a) {
  EXPECT_EQ(stream_of(""), 0xcbf29ce484222325U);
  EXPECT_EQ(stream_of("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(stream_of("foobar"), 0x85944171f73967e8U);
}

TEST(PlainLog, IsCloseToTheLibrarys) {
  double worst = 0;
  for (int i = 1; i <= 200'000; ++i) {
    for (const double x : {i * 0x1p-33, i * 0x1p-18, 1.0 - i * 0x1p-19}) {
      const double expected = std::log(x);
      worst = std::max(worst, std::abs(plain_log(x) - expected) / std::max(std::abs(expected), 0x1p-20));
    }
  }
  EXPECT_LT(worst, 4e-16);
  EXPECT_EQ(plain_log(1.0), 0.0);
}

/// z with Phi(z) = p, computed with mpmath 1.4 at 40 digits: sqrt(2) erfinv(2p - 1) of the double p.
TEST(NormalQuantile, AgreesWithHighPrecision) {
  struct Row {
    double p;
    double z;
  };
  const std::vector<Row> rows = {
      {1.1641532182693481e-10, -6.3379577545537892525},
      {1e-09, -5.9978070150076868614},
      {3e-07, -4.9912171399076973355},
      {0.0001, -3.7190164854556805523},
      {0.01, -2.3263478740408410931},
      {0.0749, -1.4402382675279636631},
      {0.075, -1.4395314709384559349},
      {0.0751, -1.4388253927525399824},
      {0.2, -0.84162123357291416552},
      {0.4999, -0.00025066283008800749239},
      {0.5, 0.0},
      {0.6, 0.25334710313579974132},
      {0.925, 1.4395314709384562291},
      {0.9251, 1.4402382675279638594},
      {0.97725, 2.0000024438996030105},
      {0.999, 3.0902323061678132778},
      {0.9999990463256836, 4.763001034267813957},
      {0.9999999998835847, 6.3379577545537892525},
  };
  for (const Row& row : rows) {
    EXPECT_LE(std::abs(normal_quantile(row.p) - row.z), 1e-15 * std::abs(row.z)) << row.p;
  }
}

/// Phi by the library's erfc, which knows nothing of the approximation under test.
TEST(NormalQuantile, InvertsTheDistributionFunction) {
  for (int i = 0; i < 200'000; ++i) {
    const double p = i < 100'000 ? (i + 0.5) * 1e-5 : std::exp2(-33.0 + (i - 100'000) * 32e-5);
    const double z = normal_quantile(p);
    const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
    const double error = (std::erfc(-z / std::numbers::sqrt2) / 2 - p) / density;
    ASSERT_LE(std::abs(error), 3e-15 * std::max(1.0, std::abs(z))) << p;
  }
}

TEST(Gaussian, IsAddressable) {
  std::vector<float> whole(1003);
  fill_gaussian(whole, 7, "layers.0.q_proj", 0.25F);
  std::vector<float> part(500);
  fill_gaussian(part, 7, "layers.0.q_proj", 0.25F, 301);
  for (std::size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], whole[301 + i]);
  EXPECT_EQ(whole[999], gaussian(7, stream_of("layers.0.q_proj"), 999) * 0.25F);
  std::vector<float> other(1003);
  fill_gaussian(other, 7, "layers.1.q_proj", 0.25F);
  EXPECT_NE(whole, other);
  fill_gaussian(other, 8, "layers.0.q_proj", 0.25F);
  EXPECT_NE(whole, other);
}

TEST(Gaussian, IsTheSameByHoweverManyThreads) {
  std::vector<float> many(200'003);
  fill_gaussian(many, 5, "many", 2.0F, 3);
  const std::uint64_t stream = stream_of("many");
  for (std::size_t i = 0; i < many.size(); ++i) ASSERT_EQ(many[i], gaussian(5, stream, 3 + i) * 2.0F) << i;
}

/// Pins the bits: another compiler, processor or build must draw the same weights. The digest was
/// computed in Python (Philox in integers, statistics.NormalDist().inv_cdf, numpy.float32).
TEST(Gaussian, HasTheSameBitsEverywhere) {
  std::vector<float> values(100'000);
  fill_gaussian(values, 1, "pinned", 1.0F);
  EXPECT_EQ(digest(values), 0xcf4dbfb0d3af07aaU);
}

TEST(Gaussian, HasTheMomentsOfTheNormalDistribution) {
  std::vector<float> values(1'000'000);
  fill_gaussian(values, 3, "moments", 1.0F);
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  double lag = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = values[i];
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    if (i > 0) lag += x * static_cast<double>(values[i - 1]);
  }
  const double n = 1e6;
  // Five standard errors: 1, sqrt(2), sqrt(96) and 1 over sqrt(n).
  EXPECT_NEAR(sum / n, 0.0, 5e-3);
  EXPECT_NEAR(squares / n, 1.0, 5 * 1.42e-3);
  EXPECT_NEAR(fourth / n, 3.0, 5 * 9.8e-3);
  EXPECT_NEAR(lag / n, 0.0, 5e-3);
}

}  // namespace
}  // namespace nanscope
