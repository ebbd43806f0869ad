// f64 functions against the C library in long double, over a deterministic sample of their domain.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "tests/unit/kernels/math/math_lanes.h"

namespace nanscope::kernels::test_math_f64 {
namespace {

struct Function {
  const char* name;
  MathF64 id;
  long double (*reference)(long double);
  double low;
  double high;
  double max_ulp;
};

const Function kFunctions[] = {
    {"exp", MathF64::exp, [](long double x) { return std::exp(x); }, -708.0, 709.0, 1.5},
    {"log", MathF64::log, [](long double x) { return std::log(x); }, 1e-3, 1e6, 2.0},
    {"log near 1", MathF64::log, [](long double x) { return std::log(x); }, 0.9, 1.1, 2.0},
    {"sin", MathF64::sin, [](long double x) { return std::sin(x); }, -10.0, 10.0, 3.0},
    {"cos", MathF64::cos, [](long double x) { return std::cos(x); }, -10.0, 10.0, 3.0},
    {"sin of a long context", MathF64::sin, [](long double x) { return std::sin(x); }, -2e6, 2e6, 3.0},
    {"cos to the end of the domain", MathF64::cos, [](long double x) { return std::cos(x); }, -1e8, 1e8, 3.0},
};

double error_in_ulp(double found, long double exact) {
  const int exponent = std::max(std::ilogb(static_cast<double>(exact)), -1022);
  return static_cast<double>(std::fabs(static_cast<long double>(found) - exact) / std::ldexp(1.0L, exponent - 52));
}

TEST(MathF64, SampleIsWithinTheBoundOnEveryBuild) {
  constexpr std::size_t kCount = 1 << 16;
  for (const Function& function : kFunctions) {
    std::vector<double> in(kCount);
    std::uint64_t state = 1;
    for (double& x : in) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      x = function.low + (function.high - function.low) * (static_cast<double>(state >> 11) * 0x1p-53);
    }
    for (const MathBuild& build : math_builds()) {
      std::vector<double> out(kCount);
      build.table->f64(function.id, in.data(), out.data(), kCount);
      double worst = 0;
      for (std::size_t i = 0; i < kCount; ++i) {
        worst = std::max(worst, error_in_ulp(out[i], function.reference(in[i])));
      }
      EXPECT_LE(worst, function.max_ulp) << function.name << " on " << build.name;
    }
  }
}

double one(const MathTable& table, MathF64 function, double x) {
  alignas(64) double in[32];
  alignas(64) double out[32];
  std::fill(std::begin(in), std::end(in), x);
  table.f64(function, in, out, 32);
  return out[5];
}

TEST(MathF64, EdgesOfTheDomain) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const MathBuild& build : math_builds()) {
    const MathTable& table = *build.table;
    EXPECT_EQ(one(table, MathF64::exp, -kInf), 0.0);
    EXPECT_EQ(one(table, MathF64::exp, kInf), kInf);
    EXPECT_EQ(one(table, MathF64::exp, 0.0), 1.0);
    EXPECT_GT(one(table, MathF64::exp, -740.0), 0.0) << "a subnormal result";
    EXPECT_EQ(one(table, MathF64::log, 0.0), -kInf);
    EXPECT_EQ(one(table, MathF64::log, kInf), kInf);
    EXPECT_TRUE(std::isnan(one(table, MathF64::log, -1.0)));
    EXPECT_NEAR(one(table, MathF64::log, 5e-324), -744.4400719213812, 1e-12);
    EXPECT_TRUE(std::signbit(one(table, MathF64::sin, -0.0)));
    EXPECT_TRUE(std::isnan(one(table, MathF64::sin, 1.1e8))) << "beyond the stated domain";
    EXPECT_TRUE(std::isnan(one(table, MathF64::cos, kInf)));
  }
}

}  // namespace
}  // namespace nanscope::kernels::test_math_f64
