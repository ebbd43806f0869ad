#include "core/numbers/anatomy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <regex>
#include <vector>

#include "tests/unit/core/numbers/definition.h"

namespace nanscope {
namespace {

std::vector<Format> small_formats() {
  std::vector<Format> small;
  for (const FormatInfo& f : formats()) {
    if (f.bits <= 16) small.push_back(f.format);
  }
  return small;
}

double defined(Format format, std::uint32_t code) { return testing::define_decode(info(format), code); }

/// Codes that are not NaN, sorted by value with -0 before +0.
std::vector<std::uint32_t> sorted_codes(Format format) {
  std::vector<std::uint32_t> codes;
  for (std::uint32_t code = 0; code < (1u << info(format).bits); ++code) {
    if (!std::isnan(defined(format, code))) codes.push_back(code);
  }
  std::sort(codes.begin(), codes.end(), [&](std::uint32_t a, std::uint32_t b) {
    const double x = defined(format, a), y = defined(format, b);
    return x != y ? x < y : std::signbit(x) && !std::signbit(y);
  });
  return codes;
}

TEST(Anatomy, IndexIsThePlaceInTheSortedListOfAllCodes) {
  for (const Format format : small_formats()) {
    const auto sorted = sorted_codes(format);
    ASSERT_EQ(ordered_count(format), sorted.size()) << name(format);
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      ASSERT_EQ(order_index(format, sorted[i]), i) << name(format) << " code " << sorted[i];
      ASSERT_EQ(code_at(format, i), sorted[i]) << name(format) << " index " << i;
    }
  }
}

TEST(Anatomy, NanHasNeitherPlaceNorNeighbours) {
  for (const Format format : small_formats()) {
    for (std::uint32_t code = 0; code < (1u << info(format).bits); ++code) {
      if (!std::isnan(defined(format, code))) continue;
      const Anatomy a = dissect(format, code);
      EXPECT_EQ(a.kind, NumberClass::nan);
      EXPECT_FALSE(a.index || a.up || a.down || a.gap_up || a.gap_down) << name(format) << " code " << code;
      EXPECT_EQ(a.decimal, "nan");
    }
  }
}

TEST(Anatomy, NextUpIsTheSmallestGreaterValue) {
  for (const Format format : small_formats()) {
    const auto sorted = sorted_codes(format);
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      const double value = defined(format, sorted[i]);
      std::size_t above = i + 1;
      while (above < sorted.size() && defined(format, sorted[above]) == value) ++above;
      const auto up = next_up(format, sorted[i]);
      if (above == sorted.size()) {
        ASSERT_FALSE(up) << name(format) << " code " << sorted[i];
      } else {
        ASSERT_EQ(up, sorted[above]) << name(format) << " code " << sorted[i];
      }
      std::size_t below = i;
      while (below > 0 && defined(format, sorted[below - 1]) == value) --below;
      const auto down = next_down(format, sorted[i]);
      if (below == 0) {
        ASSERT_FALSE(down) << name(format) << " code " << sorted[i];
      } else {
        ASSERT_EQ(down, sorted[below - 1]) << name(format) << " code " << sorted[i];
      }
    }
  }
}

TEST(Anatomy, NeighboursOfF32AreThoseOfNextafter) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::uint32_t bits : testing::boundary_inputs()) {
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    const auto up = next_up(Format::f32, bits);
    const auto down = next_down(Format::f32, bits);
    ASSERT_EQ(up.has_value(), value != inf);
    ASSERT_EQ(down.has_value(), value != -inf);
    if (up) {
      ASSERT_EQ(std::bit_cast<float>(*up), std::nextafter(value, inf)) << bits;
    }
    if (down) {
      ASSERT_EQ(std::bit_cast<float>(*down), std::nextafter(value, -inf)) << bits;
    }
  }
}

TEST(Anatomy, FieldsRebuildTheValue) {
  for (const Format format : small_formats()) {
    const FormatInfo& f = info(format);
    if (f.exponent_bits == 0) continue;
    for (std::uint32_t code = 0; code < (1u << f.bits); ++code) {
      const Anatomy a = dissect(format, code);
      ASSERT_EQ(a.code,
                (a.negative ? 1u << (f.bits - 1) : 0u) | (a.exponent_field << f.mantissa_bits) | a.mantissa_field);
      if (!std::isfinite(a.value)) continue;
      const bool implicit = a.kind == NumberClass::normal;
      const double significand = (implicit ? 1.0 : 0.0) + std::ldexp(a.mantissa_field, -f.mantissa_bits);
      const double value = std::ldexp(a.negative ? -significand : significand, a.exponent);
      ASSERT_EQ(value, defined(format, code)) << f.name << " code " << code;
      ASSERT_EQ(a.value, value);
    }
  }
}

TEST(Anatomy, ClassFollowsTheLimits) {
  for (const Format format : small_formats()) {
    const FormatInfo& f = info(format);
    for (std::uint32_t code = 0; code < (1u << f.bits); ++code) {
      const double value = defined(format, code);
      const double magnitude = std::fabs(value);
      const NumberClass want = std::isnan(value)                               ? NumberClass::nan
                               : std::isinf(value)                             ? NumberClass::inf
                               : magnitude == 0                                ? NumberClass::zero
                               : magnitude < static_cast<double>(f.min_normal) ? NumberClass::subnormal
                                                                               : NumberClass::normal;
      ASSERT_EQ(classify(format, code), want) << f.name << " code " << code;
    }
  }
}

TEST(Anatomy, GapsAreDistancesToFiniteNeighbours) {
  const Anatomy a = dissect(Format::e4m3, 0x7d);
  EXPECT_EQ(a.gap_up, 32.0);
  EXPECT_EQ(a.gap_down, 32.0);
  EXPECT_EQ(dissect(Format::e4m3, 0x7e).gap_up, std::nullopt);
  EXPECT_EQ(dissect(Format::f16, 0x7bff).gap_up, std::nullopt);  // to Inf
  EXPECT_EQ(dissect(Format::f16, 0x7bff).up, 0x7c00u);
  EXPECT_EQ(dissect(Format::f16, 0x3c00).gap_up, std::ldexp(1.0, -10));
  EXPECT_EQ(dissect(Format::f16, 0x3c00).gap_down, std::ldexp(1.0, -11));
  EXPECT_EQ(dissect(Format::e4m3, 0x00).gap_up, std::ldexp(1.0, -9));
  EXPECT_EQ(dissect(Format::int8, 0x80).gap_down, std::nullopt);
  EXPECT_EQ(dissect(Format::i32, 0x7ffffffe).gap_up, 1.0);
}

TEST(Anatomy, FormulasReadAsInTheSpecifications) {
  EXPECT_EQ(dissect(Format::e4m3, 0x7e).formula, "(-1)^0 x 2^(15-7) x (1 + 6/8) = 448");
  EXPECT_EQ(dissect(Format::e4m3, 0x83).formula, "(-1)^1 x 2^(1-7) x (0 + 3/8) = -0.005859375");
  EXPECT_EQ(dissect(Format::e5m2, 0x7c).formula, "exponent all ones, mantissa 0 = +Inf");
  EXPECT_EQ(dissect(Format::e4m3, 0xff).formula, "exponent and mantissa all ones = NaN");
  EXPECT_EQ(dissect(Format::e4m3fnuz, 0x80).formula, "the code of -0 = NaN");
  EXPECT_EQ(dissect(Format::e8m0, 130).formula, "2^(130-127) = 8");
  EXPECT_EQ(dissect(Format::int8, 0x85).formula, "1 x -2^7 + 5 = -123");
}

TEST(Anatomy, DecimalsAreExactAndShortOnesReadBack) {
  EXPECT_EQ(exact_decimal(0.1f), "0.100000001490116119384765625");
  EXPECT_EQ(exact_decimal(0x1p-10), "0.0009765625");
  EXPECT_EQ(exact_decimal(448.0), "448");
  EXPECT_EQ(exact_decimal(100.0), "100");
  EXPECT_EQ(exact_decimal(-0.0), "-0");
  EXPECT_EQ(exact_decimal(0x1p100), "1267650600228229401496703205376");
  EXPECT_EQ(
      dissect(Format::f32, 1).decimal,
      "0.00000000000000000000000000000000000000000000140129846432481707092372958328991613128026194187651577175706828388"
      "97910826858606014866381883621215820312"
      "5");
  for (const std::uint32_t bits : testing::boundary_inputs()) {
    const double value = static_cast<double>(std::bit_cast<float>(bits));
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(std::strtod(short_decimal(value).c_str(), nullptr), value);
  }
}

TEST(Anatomy, BitsAboveTheWidthAreIgnored) {
  EXPECT_EQ(dissect(Format::e2m1, 0xf7).value, 6.0);
  EXPECT_EQ(dissect(Format::e2m1, 0xf7).code, 7u);
  EXPECT_EQ(dissect(Format::e4m3, 0xabcd7e).up, std::nullopt);
}

}  // namespace
}  // namespace nanscope
