#include "core/numbers/rounding.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "core/numbers/anatomy.h"
#include "tests/unit/core/numbers/definition.h"

namespace nanscope {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// Greatest value <= x and smallest value >= x among all finite codes, by looking at every code.
struct Enclosing {
  double low = -kInf, high = kInf;
};
Enclosing search(const FormatInfo& f, double x) {
  Enclosing e;
  for (std::uint32_t code = 0; code < (1u << f.bits); ++code) {
    const double value = testing::define_decode(f, code);
    if (!std::isfinite(value) || value < -static_cast<double>(f.max_finite)) continue;  // int8: no cast makes -128
    if (value <= x) e.low = std::max(e.low, value);
    if (value >= x) e.high = std::min(e.high, value);
  }
  return e;
}

TEST(Rounding, BucketIsTheOneFoundBySearchingEveryCode) {
  for (const FormatInfo& f : formats()) {
    if (f.bits > 8) continue;
    for (float step = f.has_sign ? -600.0f : 0.001f; step < 600.0f; step += 0.37f) {
      const double x = static_cast<double>(step);
      const Rounding r = round_value(f.format, x, Overflow::saturate);
      const Enclosing want = search(f, x);
      const bool finite_lower = r.lower && std::isfinite(exact_value(f.format, *r.lower));
      ASSERT_EQ(finite_lower, std::isfinite(want.low)) << f.name << " " << x;
      if (finite_lower) {
        ASSERT_EQ(exact_value(f.format, *r.lower), want.low) << f.name << " " << x;
      }
      const bool finite_upper = r.upper && std::isfinite(exact_value(f.format, *r.upper));
      ASSERT_EQ(finite_upper, std::isfinite(want.high)) << f.name << " " << x;
      if (finite_upper) {
        ASSERT_EQ(exact_value(f.format, *r.upper), want.high) << f.name << " " << x;
      }
      if (!finite_lower || !finite_upper) continue;
      // the stored value is the nearer of the two
      const double down = x - want.low, up = want.high - x;
      if (down != up) {
        ASSERT_EQ(r.stored, down < up ? want.low : want.high) << f.name << " " << x;
      }
      ASSERT_EQ(*r.absolute_loss, std::fabs(r.stored - x));
      ASSERT_LE(*r.absolute_loss, (want.high - want.low) / 2);
    }
  }
}

TEST(Rounding, EveryMidpointIsATieThatTakesTheEvenCode) {
  for (const FormatInfo& f : formats()) {
    if (f.bits > 16 || f.mantissa_bits == 0) continue;
    for (std::uint64_t i = 0; i + 1 < ordered_count(f.format); ++i) {
      const std::uint32_t below = code_at(f.format, i), above = code_at(f.format, i + 1);
      const double low = exact_value(f.format, below), high = exact_value(f.format, above);
      if (low == high || !std::isfinite(low) || !std::isfinite(high)) continue;
      if (f.format == Format::int8 && low == -128) continue;  // never made by a cast
      const Rounding r = round_value(f.format, low + (high - low) / 2, Overflow::saturate);
      ASSERT_TRUE(r.tie) << f.name << " between " << low << " and " << high;
      ASSERT_FALSE(r.exact);
      // for fnuz zero has one code, and -0 elsewhere keeps the sign: parity is that of the magnitude
      ASSERT_EQ(r.code & 1u, 0u) << f.name << " between " << low << " and " << high;
    }
  }
}

TEST(Rounding, EveryCodeIsExactUnderItself) {
  for (const FormatInfo& f : formats()) {
    if (f.bits > 16) continue;
    for (std::uint64_t i = 0; i < ordered_count(f.format); ++i) {
      const std::uint32_t code = code_at(f.format, i);
      if (f.format == Format::int8 && code == 0x80) continue;
      const double value = exact_value(f.format, code);
      const Rounding r = round_value(f.format, value, Overflow::overflow);
      ASSERT_TRUE(r.exact && !r.clipped && !r.flushed && !r.tie) << f.name << " " << code;
      ASSERT_EQ(r.code, code) << f.name;
    }
  }
}

TEST(Rounding, ReferenceCasesOfE4m3) {
  const Rounding r430 = round_value(Format::e4m3, 430, Overflow::saturate);
  EXPECT_EQ(r430.stored, 416);
  EXPECT_EQ(r430.midpoint, 432);
  EXPECT_EQ(r430.absolute_loss, 14);
  EXPECT_NEAR(*r430.relative_loss, 14.0 / 430, 1e-15);
  EXPECT_FALSE(r430.clipped);

  const Rounding r200 = round_value(Format::e4m3, 200, Overflow::saturate);  // a tie between 192 and 208
  EXPECT_TRUE(r200.tie);
  EXPECT_EQ(r200.stored, 192);

  const Rounding r450 = round_value(Format::e4m3, 450, Overflow::saturate);
  EXPECT_TRUE(r450.clipped);
  EXPECT_EQ(r450.stored, 448);
  EXPECT_FALSE(r450.midpoint);
  EXPECT_FALSE(r450.upper);

  const Rounding r500 = round_value(Format::e4m3, 500, Overflow::overflow);
  EXPECT_TRUE(r500.overflowed);
  EXPECT_FALSE(r500.clipped);
  EXPECT_TRUE(std::isnan(r500.stored));
  EXPECT_EQ(r500.lower, 0x7eu);

  const Rounding tiny = round_value(Format::e4m3, -1e-4, Overflow::saturate);
  EXPECT_TRUE(tiny.flushed);
  EXPECT_EQ(tiny.code, 0x80u);
  EXPECT_EQ(tiny.relative_loss, 1.0);
}

TEST(Rounding, ValueIsTakenToF32First) {
  const Rounding r = round_value(Format::e4m3, 303.99999999999636, Overflow::saturate);  // f32: 304, a tie
  EXPECT_EQ(r.source, 304.0);
  EXPECT_TRUE(r.tie);
  EXPECT_EQ(r.stored, 320.0);
  EXPECT_EQ(r.absolute_loss, 320.0 - 303.99999999999636);
}

TEST(Rounding, InfinitiesAndNans) {
  EXPECT_TRUE(round_value(Format::e4m3, kInf, Overflow::saturate).clipped);
  EXPECT_FALSE(round_value(Format::e4m3, kInf, Overflow::saturate).absolute_loss);
  EXPECT_TRUE(round_value(Format::e5m2, -kInf, Overflow::overflow).exact);
  EXPECT_FALSE(round_value(Format::e4m3, kInf, Overflow::overflow).overflowed);  // it was not finite before
  for (const std::uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7fffffffu, 0x7f800001u, 0xff800001u, 0x7fc00123u}) {
    const Rounding kept = round_bits(Format::e4m3, nan, Overflow::saturate);
    EXPECT_EQ(kept.source_bits, nan);
    EXPECT_EQ(kept.code, 0x7fu);
    EXPECT_FALSE(kept.laundered);
    const Rounding laundered = round_bits(Format::e2m1, nan, Overflow::saturate);
    EXPECT_TRUE(laundered.laundered);
    EXPECT_EQ(laundered.stored, 6.0);
    EXPECT_TRUE(round_bits(Format::int8, nan, Overflow::saturate).laundered);
  }
}

TEST(Rounding, DoublesBeyondF32AndIntegersBeyondItsPrecision) {
  EXPECT_EQ(f32_of(1e39), std::numeric_limits<float>::infinity());
  EXPECT_EQ(f32_of(-1e39), -std::numeric_limits<float>::infinity());
  const double largest = std::numeric_limits<float>::max();
  EXPECT_EQ(f32_of(std::nextafter(largest + 0x1p103, 0.0)), std::numeric_limits<float>::max());
  EXPECT_EQ(f32_of(largest + 0x1p103), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(round_value(Format::f32, 1e39, Overflow::saturate).clipped);
  EXPECT_TRUE(round_value(Format::f32, 1e39, Overflow::overflow).overflowed);
  EXPECT_TRUE(round_value(Format::i32, 16777217, Overflow::saturate).exact);
  EXPECT_EQ(round_value(Format::i32, -2147483648.0, Overflow::saturate).code, 0x80000000u);
  EXPECT_EQ(round_value(Format::i32, 3e9, Overflow::saturate).code, 0x7fffffffu);
  EXPECT_TRUE(round_value(Format::i32, 3e9, Overflow::saturate).clipped);
}

TEST(Rounding, E8m0DropsTheSign) {
  const Rounding r = round_value(Format::e8m0, -8.0, Overflow::saturate);
  EXPECT_TRUE(r.sign_dropped);
  EXPECT_EQ(r.stored, 8.0);
  EXPECT_FALSE(r.lower || r.upper);
}

}  // namespace
}  // namespace nanscope
