// f32 functions against the C library in double, or long double where the double result lies so near
// the middle of two floats that it does not say how to round. NANSCOPE_LONG_TESTS=1 takes all 2^32
// inputs (minutes to an hour) and prints the measured bounds; otherwise every 8209th.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/device.h"
#include "tests/unit/kernels/math/math_lanes.h"

namespace nanscope::kernels {

std::vector<MathBuild> math_builds() {
  std::vector<MathBuild> builds;
#if defined(NANSCOPE_LANES_BASELINE)
  builds.push_back({"baseline", &baseline::math_table});
#endif
#if defined(NANSCOPE_LANES_AVX2)
  if (make_cpu_device(Isa::avx2, 1)) builds.push_back({"avx2", &avx2::math_table});
#endif
#if defined(NANSCOPE_LANES_AVX512)
  if (make_cpu_device(Isa::avx512, 1)) builds.push_back({"avx512", &avx512::math_table});
#endif
  return builds;
}

namespace {

struct Function {
  const char* name;
  MathF32 id;
  double (*in_double)(double);
  long double (*in_long_double)(long double);
};

double sigmoid_double(double x) { return 1.0 / (1.0 + std::exp(-x)); }
long double sigmoid_long(long double x) { return 1.0L / (1.0L + std::exp(-x)); }

/// As the headers of kernels/math state it.
constexpr double kMaxUlp = 0.50000001;

const Function kFunctions[] = {
    {"exp", MathF32::exp, [](double x) { return std::exp(x); }, [](long double x) { return std::exp(x); }},
    {"log", MathF32::log, [](double x) { return std::log(x); }, [](long double x) { return std::log(x); }},
    {"sin", MathF32::sin, [](double x) { return std::sin(x); }, [](long double x) { return std::sin(x); }},
    {"cos", MathF32::cos, [](double x) { return std::cos(x); }, [](long double x) { return std::cos(x); }},
    {"tanh", MathF32::tanh, [](double x) { return std::tanh(x); }, [](long double x) { return std::tanh(x); }},
    {"erf", MathF32::erf, [](double x) { return std::erf(x); }, [](long double x) { return std::erf(x); }},
    {"sigmoid", MathF32::sigmoid, sigmoid_double, sigmoid_long},
};

/// Distance of two neighbouring floats at |y|.
double ulp_at(double y) {
  const int exponent = std::max(std::ilogb(std::fabs(y)), -126);
  return std::ldexp(1.0, exponent - 23);
}

/// A double that rounds to a float the wrong way only if it is this near to the middle: then ask long double.
bool is_near_middle(double y) {
  const auto low = std::bit_cast<std::uint64_t>(y) & 0x1fffffffU;  // the 29 bits that a normal float drops
  const bool subnormal = std::fabs(y) < 0x1p-126;
  return subnormal || (low >= 0x10000000U - 16 && low <= 0x10000000U + 16);
}

struct Tally {
  std::uint64_t inputs = 0;
  std::uint64_t misrounded = 0;
  double worst_ulp = 0.5;
  float worst_input = 0;
  std::uint64_t wrong_special = 0;
  float wrong_input = 0;

  void add(const Tally& other) {
    inputs += other.inputs;
    misrounded += other.misrounded;
    if (other.worst_ulp > worst_ulp) {
      worst_ulp = other.worst_ulp;
      worst_input = other.worst_input;
    }
    if (other.wrong_special != 0) wrong_input = other.wrong_input;
    wrong_special += other.wrong_special;
  }
};

void compare(const Function& function, float x, float found, Tally& tally) {
  ++tally.inputs;
  const double reference = function.in_double(x);
  auto expected = static_cast<float>(reference);
  const auto found_bits = std::bit_cast<std::uint32_t>(found);
  if (std::bit_cast<std::uint32_t>(expected) == found_bits && !is_near_middle(reference)) return;
  if (std::isnan(reference) || std::isnan(found)) {
    const bool good = std::isnan(reference) && found_bits == 0x7fffffffU;
    if (!good) tally.wrong_input = x;
    tally.wrong_special += good ? 0 : 1;
    return;
  }
  const long double exact = function.in_long_double(x);
  expected = static_cast<float>(exact);
  if (std::bit_cast<std::uint32_t>(expected) == found_bits) return;
  ++tally.misrounded;
  if (std::isinf(expected) != std::isinf(found) || expected == 0.0F) {
    // Beyond the last float an ulp has no size: count the neighbour of the edge as an error of rounding only.
    const float edge = std::nextafter(expected, found);
    if (edge == found) return;
    ++tally.wrong_special;
    tally.wrong_input = x;
    return;
  }
  const double error =
      std::fabs(static_cast<double>(static_cast<long double>(found) - exact)) / ulp_at(static_cast<double>(exact));
  if (error > tally.worst_ulp) {
    tally.worst_ulp = error;
    tally.worst_input = x;
  }
}

/// Inputs first, first + stride, ... below 2^32 as bit patterns, on all cores.
Tally sweep(const Function& function, const MathTable& table, std::uint64_t stride) {
  constexpr std::uint64_t kAll = std::uint64_t{1} << 32;
  constexpr std::int64_t kChunk = 1 << 14;
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  Tally total;
  const auto work = [&] {
    std::vector<float> in(kChunk);
    std::vector<float> out(kChunk);
    Tally mine;
    for (;;) {
      const std::uint64_t first = next.fetch_add(kChunk * stride);
      if (first >= kAll) break;
      for (std::int64_t i = 0; i < kChunk; ++i) {
        const std::uint64_t code = std::min(first + static_cast<std::uint64_t>(i) * stride, kAll - 1);
        in[static_cast<std::size_t>(i)] = std::bit_cast<float>(static_cast<std::uint32_t>(code));
      }
      table.f32(function.id, in.data(), out.data(), kChunk);
      for (std::size_t i = 0; i < in.size(); ++i) compare(function, in[i], out[i], mine);
    }
    const std::lock_guard lock(mutex);
    total.add(mine);
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(std::thread::hardware_concurrency(), 1U); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return total;
}

void judge(const Function& function, const char* build, const Tally& tally) {
  EXPECT_EQ(tally.wrong_special, 0U) << function.name << " on " << build << ", for instance x = " << tally.wrong_input;
  EXPECT_LE(tally.worst_ulp, kMaxUlp) << function.name << " on " << build << " at x = " << tally.worst_input;
}

TEST(MathF32, StridedInputsAreWithinTheBoundOnEveryBuild) {
  for (const Function& function : kFunctions) {
    for (const MathBuild& build : math_builds()) {
      judge(function, build.name, sweep(function, *build.table, 8209));
    }
  }
}

class MathF32Long : public testing::TestWithParam<Function> {};

TEST_P(MathF32Long, AllInputsAreWithinTheBound) {
  const MathBuild build = math_builds().back();
  const Tally tally = sweep(GetParam(), *build.table, 1);
  std::printf("%-8s %-7s %llu inputs, %llu misrounded, worst %.9f ulp at %a\n", GetParam().name, build.name,
              static_cast<unsigned long long>(tally.inputs), static_cast<unsigned long long>(tally.misrounded),
              tally.worst_ulp, static_cast<double>(tally.worst_input));
  judge(GetParam(), build.name, tally);
}

INSTANTIATE_TEST_SUITE_P(Functions, MathF32Long, testing::ValuesIn(kFunctions),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(MathF32, EveryBuildGivesTheSameBits) {
  const std::vector<MathBuild> builds = math_builds();
  constexpr std::size_t kCount = 1 << 18;
  std::vector<float> in(kCount);
  for (std::size_t i = 0; i < kCount; ++i) in[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i * 16411));
  for (const Function& function : kFunctions) {
    std::vector<float> expected(kCount);
    builds[0].table->f32(function.id, in.data(), expected.data(), kCount);
    for (const MathBuild& build : builds) {
      std::vector<float> found(kCount);
      build.table->f32(function.id, in.data(), found.data(), kCount);
      EXPECT_EQ(std::memcmp(found.data(), expected.data(), kCount * sizeof(float)), 0)
          << function.name << " on " << build.name;
    }
  }
}

float one(const MathTable& table, MathF32 function, float x) {
  alignas(64) float in[32];
  alignas(64) float out[32];
  std::fill(std::begin(in), std::end(in), x);
  table.f32(function, in, out, 32);
  return out[17];
}

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

TEST(MathF32, SpecialValuesAreThoseOfAnnexF) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  struct Case {
    MathF32 function;
    float x;
    std::uint32_t expected;
  };
  constexpr std::uint32_t kNan = 0x7fffffffU;
  const Case cases[] = {
      {MathF32::exp, -kInf, 0x00000000U},   {MathF32::exp, kInf, 0x7f800000U},   {MathF32::exp, -0.0F, 0x3f800000U},
      {MathF32::log, 0.0F, 0xff800000U},    {MathF32::log, -0.0F, 0xff800000U},  {MathF32::log, 1.0F, 0x00000000U},
      {MathF32::log, -1.0F, kNan},          {MathF32::log, -kInf, kNan},         {MathF32::log, kInf, 0x7f800000U},
      {MathF32::sin, -0.0F, 0x80000000U},   {MathF32::sin, kInf, kNan},          {MathF32::sin, -kInf, kNan},
      {MathF32::cos, 0.0F, 0x3f800000U},    {MathF32::cos, -kInf, kNan},         {MathF32::tanh, -0.0F, 0x80000000U},
      {MathF32::tanh, kInf, 0x3f800000U},   {MathF32::tanh, -kInf, 0xbf800000U}, {MathF32::erf, -0.0F, 0x80000000U},
      {MathF32::erf, kInf, 0x3f800000U},    {MathF32::erf, -kInf, 0xbf800000U},  {MathF32::sigmoid, -kInf, 0x00000000U},
      {MathF32::sigmoid, kInf, 0x3f800000U}};
  for (const MathBuild& build : math_builds()) {
    for (const Case& c : cases) {
      EXPECT_EQ(bits(one(*build.table, c.function, c.x)), c.expected)
          << build.name << " function " << static_cast<int>(c.function) << " at " << c.x;
    }
    for (const Function& function : kFunctions) {
      for (const std::uint32_t nan : {0x7fc00000U, 0xffc00000U, 0x7fffffffU, 0x7f800001U, 0xff800001U, 0x7fc00123U}) {
        EXPECT_EQ(bits(one(*build.table, function.id, std::bit_cast<float>(nan))), kNan)
            << function.name << " on " << build.name;
      }
    }
  }
}

}  // namespace
}  // namespace nanscope::kernels
