#include "core/numbers/codec.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>

#include "tests/unit/core/numbers/definition.h"

namespace nanscope {
namespace {

constexpr std::array kBothModes = {Overflow::saturate, Overflow::overflow};
constexpr std::array<std::uint32_t, 7> kNans = {0x7fc00000, 0xffc00000, 0x7fffffff, 0x7f800001,
                                                0xff800001, 0x7fc00123, 0xffffffff};

std::uint32_t encode_of_bits(Format format, std::uint32_t bits, Overflow overflow) {
  return encode_bits(codec_params(format), bits, overflow);
}

/// A lane type as the CPU warp has it, to see that the codec needs no more than it promises.
struct Lanes {
  std::array<std::uint32_t, 32> v;
  Lanes() = default;
  explicit Lanes(std::uint32_t x) { v.fill(x); }
};
struct LaneMask {
  std::array<bool, 32> v;
};

template <class F>
Lanes map2(const Lanes& a, const Lanes& b, F f) {
  Lanes r;
  for (std::size_t i = 0; i < 32; ++i) r.v[i] = f(a.v[i], b.v[i]);
  return r;
}
template <class F>
LaneMask compare(const Lanes& a, const Lanes& b, F f) {
  LaneMask r;
  for (std::size_t i = 0; i < 32; ++i) r.v[i] = f(a.v[i], b.v[i]);
  return r;
}
Lanes operator+(const Lanes& a, const Lanes& b) {
  return map2(a, b, [](auto x, auto y) { return x + y; });
}
Lanes operator-(const Lanes& a, const Lanes& b) {
  return map2(a, b, [](auto x, auto y) { return x - y; });
}
Lanes operator&(const Lanes& a, const Lanes& b) {
  return map2(a, b, [](auto x, auto y) { return x & y; });
}
Lanes operator|(const Lanes& a, const Lanes& b) {
  return map2(a, b, [](auto x, auto y) { return x | y; });
}
Lanes operator<<(const Lanes& a, const Lanes& b) {
  return map2(a, b, [](auto x, auto y) { return x << y; });
}
Lanes operator>>(const Lanes& a, const Lanes& b) {
  return map2(a, b, [](auto x, auto y) { return x >> y; });
}
Lanes operator<<(const Lanes& a, int n) { return a << Lanes(static_cast<std::uint32_t>(n)); }
Lanes operator>>(const Lanes& a, int n) { return a >> Lanes(static_cast<std::uint32_t>(n)); }
LaneMask operator==(const Lanes& a, const Lanes& b) {
  return compare(a, b, [](auto x, auto y) { return x == y; });
}
LaneMask operator<(const Lanes& a, const Lanes& b) {
  return compare(a, b, [](auto x, auto y) { return x < y; });
}
LaneMask operator>(const Lanes& a, const Lanes& b) {
  return compare(a, b, [](auto x, auto y) { return x > y; });
}
LaneMask operator|(const LaneMask& a, const LaneMask& b) {
  LaneMask r;
  for (std::size_t i = 0; i < 32; ++i) r.v[i] = a.v[i] || b.v[i];
  return r;
}
Lanes select(const LaneMask& m, const Lanes& a, const Lanes& b) {
  Lanes r;
  for (std::size_t i = 0; i < 32; ++i) r.v[i] = m.v[i] ? a.v[i] : b.v[i];
  return r;
}

TEST(Codec, EveryCodeDecodesToItsDefinition) {
  for (const FormatInfo& f : formats()) {
    if (f.bits > 16) continue;
    for (std::uint32_t code = 0; code < (1u << f.bits); ++code) {
      const double want = testing::define_decode(f, code);
      const std::uint32_t got = decode_bits(codec_params(f), code);
      if (std::isnan(want)) {
        ASSERT_EQ(got, kCanonicalNan) << f.name << " code " << code;
      } else {
        ASSERT_EQ(got, std::bit_cast<std::uint32_t>(static_cast<float>(want))) << f.name << " code " << code;
      }
    }
  }
}

TEST(Codec, EveryCodeSurvivesARoundTrip) {
  for (const FormatInfo& f : formats()) {
    if (f.bits > 16) continue;
    for (std::uint32_t code = 0; code < (1u << f.bits); ++code) {
      const float value = decode(f.format, code);
      for (const Overflow overflow : kBothModes) {
        std::uint32_t want = code;
        if (std::isnan(value)) want = f.canonical_nan_code;
        if (std::isinf(value) && overflow == Overflow::saturate) {
          want = f.max_finite_code | (std::signbit(value) ? 1u << (f.bits - 1) : 0);
        }
        if (f.format == Format::int8 && code == 0x80) want = 0x81;  // symmetric: -128 is never made
        ASSERT_EQ(encode(f.format, value, overflow), want) << f.name << " code " << code;
      }
    }
  }
}

TEST(Codec, HigherBitsOfTheLaneAreIgnoredByDecode) {
  for (const FormatInfo& f : formats()) {
    if (f.bits > 8) continue;
    for (std::uint32_t code = 0; code < (1u << f.bits); ++code) {
      const std::uint32_t dirty = code | (0xa5a5a5a5u << f.bits);
      ASSERT_EQ(decode_bits(codec_params(f), dirty), decode_bits(codec_params(f), code)) << f.name << " " << code;
    }
  }
}

TEST(Codec, CastsOfBoundaryInputsFollowTheDefinition) {
  const auto inputs = testing::boundary_inputs();
  for (const FormatInfo& f : formats()) {
    if (f.format == Format::f32) continue;
    for (const std::uint32_t bits : inputs) {
      for (const Overflow overflow : kBothModes) {
        const std::uint32_t want = testing::define_encode(f, std::bit_cast<float>(bits), overflow);
        ASSERT_EQ(encode_of_bits(f.format, bits, overflow), want)
            << f.name << std::hex << " input 0x" << bits << " mode " << static_cast<int>(overflow);
      }
    }
  }
}

TEST(Codec, EveryNanPayloadGivesTheOneNanOfTheFormat) {
  struct Expectation {
    Format format;
    std::uint32_t code;
  };
  const std::array<Expectation, kFormatCount> expected = {{{Format::f32, 0x7fffffff},
                                                           {Format::f16, 0x7fff},
                                                           {Format::bf16, 0x7fff},
                                                           {Format::e4m3, 0x7f},
                                                           {Format::e5m2, 0x7f},
                                                           {Format::e4m3fnuz, 0x80},
                                                           {Format::e5m2fnuz, 0x80},
                                                           {Format::e3m2, 0x1f},  // +28: laundered
                                                           {Format::e2m3, 0x1f},  // +7.5
                                                           {Format::e2m1, 0x07},  // +6
                                                           {Format::e8m0, 0xff},
                                                           {Format::int8, 0x00},
                                                           {Format::i32, 0x00}}};
  for (const auto& [format, code] : expected) {
    for (const std::uint32_t nan : kNans) {
      for (const Overflow overflow : kBothModes) {
        EXPECT_EQ(encode_of_bits(format, nan, overflow), code) << name(format) << std::hex << " from 0x" << nan;
      }
    }
  }
}

TEST(Codec, ValuesBeyondTheRangeFollowTheMode) {
  struct Row {
    Format format;
    float value;
    std::uint32_t saturated;
    std::uint32_t overflowed;
  };
  const float inf = std::bit_cast<float>(0x7f800000u);
  const std::array rows = {
      Row{Format::e4m3, 464.0f, 0x7e, 0x7e},  // the tie goes to the even 448
      Row{Format::e4m3, 464.001f, 0x7e, 0x7f},
      Row{Format::e4m3, -1e6f, 0xfe, 0x7f},
      Row{Format::e4m3, -inf, 0xfe, 0x7f},
      Row{Format::e5m2, 61439.0f, 0x7b, 0x7b},
      Row{Format::e5m2, 61440.0f, 0x7b, 0x7c},
      Row{Format::e5m2, -inf, 0xfb, 0xfc},
      Row{Format::f16, 65519.0f, 0x7bff, 0x7bff},
      Row{Format::f16, 65520.0f, 0x7bff, 0x7c00},
      Row{Format::bf16, 0x1.fffffep127f, 0x7f7f, 0x7f80},
      Row{Format::f32, inf, 0x7f7fffff, 0x7f800000},
      Row{Format::e4m3fnuz, 248.0f, 0x7f, 0x80},
      Row{Format::e4m3fnuz, 247.9f, 0x7f, 0x7f},
      Row{Format::e4m3fnuz, -1e-30f, 0x00, 0x00},  // no -0
      Row{Format::e5m2fnuz, -inf, 0xff, 0x80},
      Row{Format::e2m1, 1e9f, 0x07, 0x07},
      Row{Format::e3m2, -inf, 0x3f, 0x3f},
      Row{Format::e8m0, inf, 0xfe, 0xff},
      Row{Format::e8m0, 0.0f, 0x00, 0x00},
      Row{Format::e8m0, -2.0f, 0x80, 0x80},
      Row{Format::int8, 127.5f, 0x7f, 0x7f},
      Row{Format::int8, -1e9f, 0x81, 0x81},
      Row{Format::int8, -2.5f, 0xfe, 0xfe},
      Row{Format::i32, 3e9f, 0x7fffffff, 0x7fffffff},
      Row{Format::i32, -16777216.0f, 0xff000000, 0xff000000},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(encode(row.format, row.value, Overflow::saturate), row.saturated) << name(row.format) << " " << row.value;
    EXPECT_EQ(encode(row.format, row.value, Overflow::overflow), row.overflowed)
        << name(row.format) << " " << row.value;
  }
}

TEST(Codec, E8m0RoundsDownUpAndToNearest) {
  struct Row {
    float value;
    std::uint32_t down, nearest, up;
  };
  const std::array rows = {Row{1.0f, 127, 127, 127},       Row{1.25f, 127, 127, 128},    Row{1.5f, 127, 128, 128},
                           Row{2.999f, 128, 128, 129},     Row{3.0f, 128, 129, 129},     Row{0.0f, 0, 0, 0},
                           Row{0x1p-127f, 0, 0, 0},        Row{0x1.1p-127f, 0, 0, 1},    Row{0x1.8p-127f, 0, 1, 1},
                           Row{0x1p-149f, 0, 0, 0},        Row{0x1p127f, 254, 254, 254}, Row{0x1.4p127f, 254, 254, 254},
                           Row{0x1.ffp127f, 254, 254, 254}};
  for (const Row& row : rows) {
    const auto bits = std::bit_cast<std::uint32_t>(row.value);
    EXPECT_EQ(encode_e8m0_bits(bits, E8m0Rounding::down, Overflow::saturate), row.down) << row.value;
    EXPECT_EQ(encode_e8m0_bits(bits, E8m0Rounding::nearest, Overflow::saturate), row.nearest) << row.value;
    EXPECT_EQ(encode_e8m0_bits(bits, E8m0Rounding::up, Overflow::saturate), row.up) << row.value;
  }
}

TEST(Codec, IntegersDecodeToTheNearestFloat) {
  for (std::uint64_t code = 0; code <= 0xffffffff; code += 7919) {
    const auto bits = static_cast<std::uint32_t>(code);
    ASSERT_EQ(decode(Format::i32, bits), static_cast<float>(static_cast<std::int32_t>(bits))) << bits;
  }
  EXPECT_EQ(decode(Format::i32, 0x80000000u), -2147483648.0f);
  EXPECT_EQ(decode(Format::i32, 0x7fffffffu), 2147483648.0f);
  EXPECT_EQ(decode(Format::i32, 0x01000001u), 16777216.0f);
}

TEST(Codec, ThirtyTwoLanesAgreeWithOne) {
  const auto inputs = testing::boundary_inputs();
  for (const FormatInfo& f : formats()) {
    const CodecParams p = codec_params(f);
    for (std::size_t start = 0; start + 32 <= inputs.size(); start += 32 * 5) {
      Lanes bits;
      std::copy_n(inputs.begin() + static_cast<std::ptrdiff_t>(start), 32, bits.v.begin());
      const Lanes codes = encode_bits(p, bits, Overflow::overflow);
      const Lanes values = decode_bits(p, codes);
      for (std::size_t lane = 0; lane < 32; ++lane) {
        ASSERT_EQ(codes.v[lane], encode_bits(p, bits.v[lane], Overflow::overflow)) << f.name << " " << bits.v[lane];
        ASSERT_EQ(values.v[lane], decode_bits(p, codes.v[lane])) << f.name << " " << codes.v[lane];
      }
    }
  }
}

TEST(Codec, ConstantFormatEqualsFormatAtRunTime) {
  EXPECT_EQ((encode_bits<Format::e4m3>(0x43d70000u, Overflow::saturate)),
            encode(Format::e4m3, 430.0f, Overflow::saturate));
  EXPECT_EQ((decode_bits<Format::f16>(0x3c00u)), 0x3f800000u);
}

}  // namespace
}  // namespace nanscope
