// Every lane operation of every build against scalar code of the host compiler, on all pairs of a zoo
// of special values and on pseudo-random bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/device.h"
#include "tests/unit/kernels/warp/warp_lanes.h"

namespace nanscope::kernels {

std::vector<WarpBuild> warp_builds() {
  std::vector<WarpBuild> builds;
#if defined(NANSCOPE_LANES_BASELINE)
  builds.push_back({"baseline", &baseline::warp_table});
#endif
#if defined(NANSCOPE_LANES_AVX2)
  if (make_cpu_device(Isa::avx2, 1)) builds.push_back({"avx2", &avx2::warp_table});
#endif
#if defined(NANSCOPE_LANES_AVX512)
  if (make_cpu_device(Isa::avx512, 1)) builds.push_back({"avx512", &avx512::warp_table});
#endif
  return builds;
}

namespace {

constexpr int kWarp = 32;
using Lanes32 = std::array<float, kWarp>;
using Words32 = std::array<std::uint32_t, kWarp>;

constexpr std::uint32_t kZoo[] = {0x00000000U, 0x80000000U, 0x00000001U, 0x80000001U, 0x007fffffU, 0x00800000U,
                                  0x3f800000U, 0x3f7fffffU, 0x3f800001U, 0xbf800000U, 0x40490fdbU, 0x7f7fffffU,
                                  0xff7fffffU, 0x7f800000U, 0xff800000U, 0x7fc00000U, 0xffc00000U, 0x7f800001U,
                                  0x7fffffffU, 0x7fc00123U, 0x4b000001U, 0xcb7fffffU};

std::uint32_t canonical_bits(float x) { return std::isnan(x) ? 0x7fffffffU : std::bit_cast<std::uint32_t>(x); }

std::uint32_t next_random(std::uint64_t& state) {
  state = state * 6364136223846793005U + 1442695040888963407U;
  return static_cast<std::uint32_t>(state >> 32);
}

/// NaN, then order; the first argument wins a tie.
float maximum(float a, float b, bool propagate) {
  if (std::isnan(a) || std::isnan(b)) {
    if (propagate) return std::numeric_limits<float>::quiet_NaN();
    return std::isnan(a) ? b : a;
  }
  return a >= b ? a : b;
}
float minimum(float a, float b, bool propagate) {
  if (std::isnan(a) || std::isnan(b)) return maximum(a, b, propagate);
  return a <= b ? a : b;
}

std::array<std::uint32_t, kF32Results> scalar_f32(float a, float b, float c) {
  std::array<std::uint32_t, kF32Results> r{};
  const auto raw = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  r[kAdd] = canonical_bits(a + b);
  r[kSub] = canonical_bits(a - b);
  r[kMul] = canonical_bits(a * b);
  r[kDiv] = canonical_bits(a / b);
  r[kFma] = canonical_bits(std::fma(a, b, c));
  r[kSqrt] = canonical_bits(std::sqrt(a));
  r[kNeg] = raw(a) ^ 0x80000000U;
  r[kAbs] = raw(a) & 0x7fffffffU;
  r[kCopySign] = (raw(a) & 0x7fffffffU) | (raw(b) & 0x80000000U);
  r[kLess] = a < b ? 1 : 0;
  r[kLessEqual] = a <= b ? 1 : 0;
  r[kGreater] = a > b ? 1 : 0;
  r[kGreaterEqual] = a >= b ? 1 : 0;
  r[kEqual] = a == b ? 1 : 0;
  r[kNotEqual] = a != b ? 1 : 0;
  r[kIsNan] = std::isnan(a) ? 1 : 0;
  r[kIsInf] = std::isinf(a) ? 1 : 0;
  r[kIsFinite] = std::isfinite(a) ? 1 : 0;
  r[kSelect] = a < b ? raw(a) : raw(c);
  r[kMaxPropagate] = canonical_bits(maximum(a, b, true));
  r[kMinPropagate] = canonical_bits(minimum(a, b, true));
  r[kMaxIgnore] = canonical_bits(maximum(a, b, false));
  r[kMinIgnore] = canonical_bits(minimum(a, b, false));
  r[kThroughF64] = canonical_bits(static_cast<float>(static_cast<double>(a) * static_cast<double>(b)));
  r[kBits] = canonical_bits(a);
  return r;
}

void expect_f32(const WarpBuild& build, const Lanes32& a, const Lanes32& b, const Lanes32& c) {
  std::vector<std::uint32_t> out(kF32Results * kWarp);
  build.table->f32(a.data(), b.data(), c.data(), out.data());
  for (std::size_t i = 0; i < kWarp; ++i) {
    const auto expected = scalar_f32(a[i], b[i], c[i]);
    for (std::size_t op = 0; op < kF32Results; ++op) {
      ASSERT_EQ(out[op * kWarp + i], expected[op])
          << build.name << " operation " << op << " lane " << i << " a " << a[i] << " b " << b[i] << " c " << c[i];
    }
  }
}

TEST(Warp, F32OperationsOnTheZoo) {
  for (const WarpBuild& build : warp_builds()) {
    std::size_t at = 0;
    for (std::size_t round = 0; round < std::size(kZoo) * std::size(kZoo) * 2; ++round) {
      Lanes32 a;
      Lanes32 b;
      Lanes32 c;
      for (std::size_t i = 0; i < kWarp; ++i, ++at) {
        a[i] = std::bit_cast<float>(kZoo[at % std::size(kZoo)]);
        b[i] = std::bit_cast<float>(kZoo[at / std::size(kZoo) % std::size(kZoo)]);
        c[i] = std::bit_cast<float>(kZoo[at / (std::size(kZoo) * std::size(kZoo)) % std::size(kZoo)]);
      }
      expect_f32(build, a, b, c);
    }
  }
}

/// a * b + c where two roundings differ from one: c is half a unit of the product's last place in f32, more or less
/// by very little, and where the sum cancels, underflows or overflows.
TEST(Warp, FmaRoundsOnce) {
  for (const WarpBuild& build : warp_builds()) {
    std::uint64_t state = 11;
    for (int round = 0; round < 4000; ++round) {
      Lanes32 a;
      Lanes32 b;
      Lanes32 c;
      for (std::size_t i = 0; i < kWarp; ++i) {
        const auto bits = next_random(state);
        const auto small = next_random(state);
        const int scale = static_cast<int>(small % 5) * 60 - 120;
        a[i] = std::ldexp(1.0F + static_cast<float>(bits & 0xfffU) * 0x1p-12F, scale / 2);
        b[i] = std::ldexp(1.0F + static_cast<float>(bits >> 20) * 0x1p-12F, scale - scale / 2);
        const double product = static_cast<double>(a[i]) * static_cast<double>(b[i]);
        const int kind = static_cast<int>(small >> 8 & 7U);
        const auto rounded = static_cast<float>(product);
        if (kind == 0) c[i] = -rounded;                               // what rounding lost is left
        if (kind == 1) c[i] = static_cast<float>(product * 0x1p-60);  // a tie, and a little
        if (kind == 2) c[i] = static_cast<float>(product * -0x1p-60);
        if (kind == 3) c[i] = static_cast<float>(std::ldexp(product, 24 + static_cast<int>(small >> 16 & 3U)));
        if (kind == 4) c[i] = -static_cast<float>(std::ldexp(product, 24 + static_cast<int>(small >> 16 & 3U)));
        if (kind == 5) c[i] = std::bit_cast<float>(small >> 9);  // subnormal
        if (kind == 6) c[i] = std::nextafter(-rounded, 0.0F);
        if (kind == 7) c[i] = std::bit_cast<float>(0x7f7fffffU) * (small & 0x10000U ? 1.0F : -1.0F);
        if (small & 0x20000U) a[i] = -a[i];
      }
      expect_f32(build, a, b, c);
    }
  }
}

TEST(Warp, F32OperationsOnRandomBits) {
  for (const WarpBuild& build : warp_builds()) {
    std::uint64_t state = 7;
    for (int round = 0; round < 2000; ++round) {
      Lanes32 a;
      Lanes32 b;
      Lanes32 c;
      for (std::size_t i = 0; i < kWarp; ++i) {
        a[i] = std::bit_cast<float>(next_random(state));
        b[i] = round % 2 == 0 ? std::bit_cast<float>(next_random(state)) : a[i] * 1.0000001F;
        c[i] = round % 3 == 0 ? -a[i] * b[i] : std::bit_cast<float>(next_random(state));
      }
      expect_f32(build, a, b, c);
    }
  }
}

std::array<std::uint32_t, kU32Results> scalar_u32(std::uint32_t a, std::uint32_t b, std::uint32_t lane) {
  std::array<std::uint32_t, kU32Results> r{};
  const auto ia = static_cast<std::int32_t>(a);
  const auto ib = static_cast<std::int32_t>(b);
  const std::uint64_t product = std::uint64_t{a} * b;
  r[kUAdd] = a + b;
  r[kUSub] = a - b;
  r[kUMul] = a * b;
  r[kUAnd] = a & b;
  r[kUOr] = a | b;
  r[kUXor] = a ^ b;
  r[kUNot] = ~a;
  r[kUShl3] = a << 3;
  r[kUShr3] = a >> 3;
  r[kUShlLanes] = a << (b & 31);
  r[kUShrLanes] = a >> (b & 31);
  r[kULess] = a < b ? 1 : 0;
  r[kUGreater] = a > b ? 1 : 0;
  r[kIShr3] = static_cast<std::uint32_t>(ia >> 3);
  r[kILess] = ia < ib ? 1 : 0;
  r[kUToF32] = std::bit_cast<std::uint32_t>(static_cast<float>(a));
  r[kIToF32] = std::bit_cast<std::uint32_t>(static_cast<float>(ia));
  r[kMulLow] = static_cast<std::uint32_t>(product);
  r[kMulHigh] = static_cast<std::uint32_t>(product >> 32);
  r[kUSelect] = a == b ? a : static_cast<std::uint32_t>(product >> 32);
  r[kLaneId] = lane;
  return r;
}

TEST(Warp, IntegerOperations) {
  for (const WarpBuild& build : warp_builds()) {
    std::uint64_t state = 11;
    for (int round = 0; round < 500; ++round) {
      Words32 a;
      Words32 b;
      for (std::size_t i = 0; i < kWarp; ++i) {
        a[i] = next_random(state) >> (round % 4 == 1 ? 16 : 0);
        b[i] = round % 3 == 0 ? a[i] : next_random(state);
      }
      std::vector<std::uint32_t> out(kU32Results * kWarp);
      build.table->u32(a.data(), b.data(), out.data());
      for (std::size_t i = 0; i < kWarp; ++i) {
        const auto expected = scalar_u32(a[i], b[i], static_cast<std::uint32_t>(i));
        for (std::size_t op = 0; op < kU32Results; ++op) {
          ASSERT_EQ(out[op * kWarp + i], expected[op]) << build.name << " operation " << op << " lane " << i;
        }
      }
    }
  }
}

/// The butterfly as the contract states it: all lanes at once, 16 8 4 2 1, lane 0's result.
template <class T, class Combine>
T butterfly(std::array<T, kWarp> a, Combine combine) {
  for (std::size_t m = 16; m > 0; m /= 2) {
    std::array<T, kWarp> next;
    for (std::size_t i = 0; i < kWarp; ++i) next[i] = combine(a[i], a[i ^ m]);
    a = next;
  }
  return a[0];
}

TEST(Warp, ReductionsAreTheButterfly) {
  for (const WarpBuild& build : warp_builds()) {
    std::uint64_t state = 3;
    for (int round = 0; round < 1000; ++round) {
      Lanes32 a;
      for (float& x : a) {
        const std::uint32_t word = next_random(state);
        x = round % 2 == 0 ? static_cast<float>(word) * 0x1p-20F - 2048.0F
                           : std::bit_cast<float>(kZoo[word % (round % 4 == 1 ? 15 : std::size(kZoo))]);
      }
      float out[kReductions];
      build.table->reduce(a.data(), out);
      const auto expect = [&](int which, float expected) {
        ASSERT_EQ(canonical_bits(out[which]), canonical_bits(expected)) << build.name << " reduction " << which;
      };
      expect(kSumF32, butterfly(a, [](float x, float y) { return x + y; }));
      expect(kMaxPropagateAcross, butterfly(a, [](float x, float y) { return maximum(x, y, true); }));
      expect(kMinPropagateAcross, butterfly(a, [](float x, float y) { return minimum(x, y, true); }));
      expect(kMaxIgnoreAcross, butterfly(a, [](float x, float y) { return maximum(x, y, false); }));
      expect(kMinIgnoreAcross, butterfly(a, [](float x, float y) { return minimum(x, y, false); }));
      std::array<double, kWarp> wide;
      std::copy(a.begin(), a.end(), wide.begin());
      const double expected = butterfly(wide, [](double x, double y) { return x + y; });
      const double found = build.table->sum_f64(a.data());
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(found) : found == expected) << build.name;
    }
  }
}

TEST(Warp, IntegerReductionsAndMasks) {
  for (const WarpBuild& build : warp_builds()) {
    std::uint64_t state = 5;
    for (int round = 0; round < 200; ++round) {
      Words32 a;
      for (std::uint32_t& x : a) x = next_random(state);
      std::uint64_t out[6];
      build.table->reduce_u32(a.data(), out);
      std::uint32_t sum = 0;
      std::uint64_t squares = 0;
      for (const std::uint32_t x : a) {
        sum += x;
        squares += std::uint64_t{x} * x;
      }
      const auto less_signed = [](std::uint32_t x, std::uint32_t y) {
        return static_cast<std::int32_t>(x) < static_cast<std::int32_t>(y);
      };
      const auto signed_value = [](std::uint32_t x) {
        return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(x)));
      };
      EXPECT_EQ(out[0], sum);
      EXPECT_EQ(out[1], *std::min_element(a.begin(), a.end()));
      EXPECT_EQ(out[2], *std::max_element(a.begin(), a.end()));
      EXPECT_EQ(out[3], squares);
      EXPECT_EQ(out[4], signed_value(*std::min_element(a.begin(), a.end(), less_signed)));
      EXPECT_EQ(out[5], signed_value(*std::max_element(a.begin(), a.end(), less_signed)));

      Lanes32 x;
      Lanes32 y;
      const auto threshold = static_cast<std::uint32_t>(round) * 0x1500000U;
      std::uint32_t ballot = 0;
      for (std::size_t i = 0; i < kWarp; ++i) {
        x[i] = 0.0F;
        y[i] = a[i] < threshold || round == 199 ? 1.0F : 0.0F;
        ballot |= (x[i] < y[i] ? 1U : 0U) << i;
      }
      std::uint64_t masks[4];
      build.table->masks(x.data(), y.data(), masks);
      EXPECT_EQ(masks[0], ballot);
      EXPECT_EQ(masks[1], ballot != 0 ? 1U : 0U);
      EXPECT_EQ(masks[2], ballot == 0xffffffffU ? 1U : 0U);
      EXPECT_EQ(masks[3], static_cast<std::uint64_t>(std::popcount(ballot)));
    }
  }
}

TEST(Warp, LanesMove) {
  Words32 a;
  for (std::uint32_t i = 0; i < kWarp; ++i) a[i] = 100 + i;
  for (const WarpBuild& build : warp_builds()) {
    for (int m = 0; m < kWarp; ++m) {
      Words32 out;
      build.table->xor_lane(a.data(), m, out.data());
      for (std::size_t i = 0; i < kWarp; ++i) EXPECT_EQ(out[i], a[i ^ static_cast<std::size_t>(m)]);
      EXPECT_EQ(build.table->broadcast(a.data(), m), a[static_cast<std::size_t>(m)]);
    }
  }
}

TEST(Warp, DoublesBecomeIntegersToNearestEven) {
  std::array<double, kWarp> a{};
  const double values[] = {0.0,          -0.5,          0.5,       1.5,     2.5,         -2.5,
                           2147483647.0, -2147483648.0, 1e9 + 0.5, -7.9999, 0.4999999999};
  for (std::size_t i = 0; i < kWarp; ++i) a[i] = values[i % std::size(values)];
  for (const WarpBuild& build : warp_builds()) {
    std::array<std::int32_t, kWarp> nearest;
    std::array<double, kWarp> down;
    build.table->to_i32(a.data(), nearest.data(), down.data());
    for (std::size_t i = 0; i < kWarp; ++i) {
      EXPECT_EQ(nearest[i], static_cast<std::int32_t>(std::nearbyint(a[i]))) << build.name << " " << a[i];
      EXPECT_EQ(down[i], std::floor(a[i])) << build.name << " " << a[i];
    }
  }
}

}  // namespace
}  // namespace nanscope::kernels
