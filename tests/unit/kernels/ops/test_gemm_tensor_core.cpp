// gemm_tensor_core against the model of its header in numbers of 640 bits, where every step is what the header says; by
// hand where one rule decides; and in double against the bound that holds of any tensor core.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/numbers/codec.h"
#include "kernels/ops/gemm.h"
#include "kernels/ops/gemm_tensor_core.h"
#include "kernels/tensor_core_bound.h"
#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels {
namespace {

using test::Floats;

std::vector<std::unique_ptr<Device>> every_cpu() {
  std::vector<std::unique_ptr<Device>> devices;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (auto made = make_cpu_device(isa, 2)) devices.push_back(*std::move(made));
  }
  return devices;
}

/// A number from 0 on as bits: bit i stands for 2^(i - kZero).
class WideSum {
 public:
  static constexpr int kBits = 640;
  static constexpr int kZero = 300;

  /// significand * 2^lowest, without what lies below 2^least.
  static WideSum of(std::uint64_t significand, int lowest, int least) {
    WideSum wide;
    for (int i = 0; i < 64; ++i) {
      if ((significand >> i & 1U) != 0 && lowest + i >= least) wide.bit(lowest + i) = true;
    }
    return wide;
  }
  bool& bit(int power) { return bits_[static_cast<std::size_t>(power + kZero)]; }
  bool bit(int power) const { return bits_[static_cast<std::size_t>(power + kZero)]; }
  void add(const WideSum& other) {
    bool carry = false;
    for (std::size_t i = 0; i < kBits; ++i) {
      const int sum = int{bits_[i]} + int{other.bits_[i]} + int{carry};
      bits_[i] = sum % 2 != 0;
      carry = sum > 1;
    }
  }
  /// Of a number that is not larger.
  void subtract(const WideSum& other) {
    bool borrow = false;
    for (std::size_t i = 0; i < kBits; ++i) {
      const int rest = int{bits_[i]} - int{other.bits_[i]} - int{borrow};
      bits_[i] = rest % 2 != 0;
      borrow = rest < 0;
    }
  }
  bool operator<(const WideSum& other) const {
    return std::lexicographical_compare(bits_.rbegin(), bits_.rend(), other.bits_.rbegin(), other.bits_.rend());
  }
  /// The power of the leading bit; below all where there is none.
  int leading() const {
    const auto found = std::find(bits_.rbegin(), bits_.rend(), true);
    return static_cast<int>(bits_.rend() - found) - 1 - kZero;
  }

 private:
  std::array<bool, kBits> bits_{};
};

struct MmaTerm {
  bool negative;
  std::uint64_t significand;
  int exponent;
  int lowest;
};

/// Of a finite value; `fraction` bits and the least exponent of its format.
MmaTerm mma_term(float value, int fraction, int least) {
  int exponent = least;
  if (value != 0) exponent = std::max(std::ilogb(value), least);
  const double units = std::ldexp(std::abs(double{value}), fraction - exponent);
  return {std::signbit(value), static_cast<std::uint64_t>(units), exponent, exponent - fraction};
}

/// One instruction as the header of gemm_tensor_core.h has it: a and b are 16 values.
float one_instruction(Format operand, std::span<const float> a, std::span<const float> b, float c) {
  double all = c;
  for (std::size_t k = 0; k < a.size(); ++k) all += double{a[k]} * double{b[k]};
  if (!std::isfinite(all)) return static_cast<float>(all);
  const int fraction = operand == Format::f16 ? 10 : 7;
  const int least = operand == Format::f16 ? -14 : -126;
  std::vector<MmaTerm> terms;
  if (c != 0) terms.push_back(mma_term(c, 23, -126));
  for (std::size_t k = 0; k < a.size(); ++k) {
    if (a[k] == 0 || b[k] == 0) continue;
    const MmaTerm x = mma_term(a[k], fraction, least);
    const MmaTerm w = mma_term(b[k], fraction, least);
    terms.push_back(
        {x.negative != w.negative, x.significand * w.significand, x.exponent + w.exponent, x.lowest + w.lowest});
  }
  if (terms.empty()) return 0;
  int largest = terms.front().exponent;
  for (const MmaTerm& term : terms) largest = std::max(largest, term.exponent);
  WideSum above;
  WideSum below;
  for (const MmaTerm& term : terms) {
    (term.negative ? below : above).add(WideSum::of(term.significand, term.lowest, largest - 25));
  }
  const bool negative = above < below;
  WideSum sum = negative ? below : above;
  sum.subtract(negative ? above : below);
  const int leading = sum.leading();
  if (leading < -WideSum::kZero) return 0;
  if (leading >= 128) return negative ? -test::kInf : test::kInf;
  double value = 0;
  for (int power = leading; power >= std::max(leading - 23, -149); --power) {
    if (sum.bit(power)) value += std::ldexp(1.0, power);
  }
  return static_cast<float>(negative ? -value : value);
}

float mma_reference(Format operand, std::span<const float> x, std::span<const float> weight) {
  std::array<float, 16> a;
  std::array<float, 16> b;
  float sum = 0;
  for (std::size_t k = 0; k < x.size(); k += 16) {
    for (std::size_t i = 0; i < 16; ++i) {
      a[i] = k + i < x.size() ? x[k + i] : 0.0F;
      b[i] = k + i < x.size() ? weight[k + i] : 0.0F;
    }
    sum = one_instruction(operand, a, b, sum);
  }
  return sum;
}

/// A product with operands as codes, and its outputs in f32.
struct MmaProduct {
  Format operand;
  std::int64_t rows, depth, outputs;
  std::vector<std::uint16_t> x, weight;

  float x_at(std::int64_t row, std::int64_t k) const {
    return decode(operand, x[static_cast<std::size_t>(row * depth + k)]);
  }
  std::vector<float> x_row(std::int64_t row) const { return values(x, row); }
  std::vector<float> weight_row(std::int64_t n) const { return values(weight, n); }
  std::vector<float> values(const std::vector<std::uint16_t>& codes, std::int64_t row) const {
    std::vector<float> all;
    for (std::int64_t k = 0; k < depth; ++k)
      all.push_back(decode(operand, codes[static_cast<std::size_t>(row * depth + k)]));
    return all;
  }
  Floats run(Device& device) {
    Floats out(rows, outputs, test::kNan);
    const Status done = device.launch(GemmTensorCoreArgs{.x = {x.data(), operand, rows, depth, depth},
                                                         .weight = {weight.data(), operand, outputs, depth, depth},
                                                         .bias = {},
                                                         .out = out.view()});
    EXPECT_TRUE(done) << done.error().message;
    EXPECT_TRUE(device.synchronize());
    return out;
  }
};

using MmaDraw = std::function<float(cases::Sequence&)>;

MmaProduct product_of(Format operand, std::int64_t rows, std::int64_t depth, std::int64_t outputs, const MmaDraw& draw,
                      std::uint64_t seed) {
  MmaProduct product{operand, rows, depth, outputs, {}, {}};
  cases::Sequence sequence(seed);
  const auto codes = [&](std::int64_t count) {
    std::vector<std::uint16_t> all;
    for (std::int64_t i = 0; i < count; ++i) {
      all.push_back(static_cast<std::uint16_t>(encode(operand, draw(sequence), Overflow::saturate)));
    }
    return all;
  };
  product.x = codes(rows * depth);
  product.weight = codes(outputs * depth);
  return product;
}

/// Kinds of data in which each rule of the model decides somewhere.
std::vector<std::pair<std::string, MmaDraw>> mma_draws() {
  const auto spread = [](float powers) {
    return [powers](cases::Sequence& s) { return s.next() * std::exp2(std::round(s.next() * powers)); };
  };
  return {
      {"ordinary", spread(0)},
      {"of many magnitudes", spread(14)},
      {"of all magnitudes", spread(120)},
      {"small integers, which cancel", [](cases::Sequence& s) { return std::round(s.next() * 3); }},
      {"subnormals", [](cases::Sequence& s) { return s.next() * (s.next() > 0 ? 0x1p-15F : 0x1p-127F); }},
      {"near overflow", [](cases::Sequence& s) { return s.next() * 0x1p64F; }},
      {"mostly zeros", [](cases::Sequence& s) { return s.next() > 0.7F ? s.next() : std::copysign(0.0F, s.next()); }},
      {"specials", [](cases::Sequence& s) {
         const float chosen = s.next();
         if (chosen > 0.97F) return test::kNan;
         if (chosen > 0.9F) return std::copysign(test::kInf, s.next());
         return chosen > 0.7F ? 0.0F : s.next();
       }}};
}

/// Inf is what `saturate` of the draws would not let through.
MmaProduct with_specials(MmaProduct product) {
  cases::Sequence sequence(99);
  for (auto* codes : {&product.x, &product.weight}) {
    for (std::uint16_t& code : *codes) {
      const float chosen = sequence.next();
      if (chosen > 0.995F) code = static_cast<std::uint16_t>(encode(product.operand, test::kInf, Overflow::overflow));
      if (chosen < -0.995F) code = static_cast<std::uint16_t>(encode(product.operand, -test::kInf, Overflow::overflow));
    }
  }
  return product;
}

TEST(GemmTensorCore, IsTheModelOfItsHeaderOnEveryCpu) {
  const auto devices = every_cpu();
  ASSERT_FALSE(devices.empty());
  std::uint64_t seed = 1;
  for (const auto& [what, draw] : mma_draws()) {
    for (const Format operand : {Format::bf16, Format::f16}) {
      for (const std::int64_t depth : {1, 37, 130}) {
        MmaProduct product = product_of(operand, 33, depth, 35, draw, ++seed);
        if (what == "specials") product = with_specials(std::move(product));
        std::vector<std::uint32_t> expected;
        for (std::int64_t row = 0; row < product.rows; ++row) {
          const std::vector<float> x = product.x_row(row);
          for (std::int64_t n = 0; n < product.outputs; ++n) {
            const float value = mma_reference(operand, x, product.weight_row(n));
            expected.push_back(std::isnan(value) ? test::kCanonical : test::bits(value));
          }
        }
        for (const auto& device : devices) {
          const Floats out = product.run(*device);
          for (std::size_t i = 0; i < expected.size(); ++i) {
            ASSERT_EQ(test::bits(out.data[i]), expected[i])
                << device->info().isa << ", " << name(operand) << " " << what << ", K " << depth << ", output " << i;
          }
        }
      }
    }
  }
}

/// One output, of products that are given as pairs.
float one_output(Format operand, const std::vector<std::pair<float, float>>& pairs) {
  MmaProduct product{operand, 1, static_cast<std::int64_t>(pairs.size()), 1, {}, {}};
  for (const auto& [a, b] : pairs) {
    product.x.push_back(static_cast<std::uint16_t>(encode(operand, a, Overflow::overflow)));
    product.weight.push_back(static_cast<std::uint16_t>(encode(operand, b, Overflow::overflow)));
  }
  return product.run(test::cpu()).data.front();
}

TEST(GemmTensorCore, CutsOffWhatLiesBelowTheLargest) {
  EXPECT_EQ(one_output(Format::bf16, {{1, 1}, {0x1p-12F, 0x1p-13F}}), 1.0F) << "2^-25 is kept, and cut off at the end";
  EXPECT_EQ(one_output(Format::bf16, {{1, 1}, {0x1p-12F, 0x1p-12F}, {0x1p-12F, 0x1p-12F}}), 0x1.000002p0F);
  EXPECT_EQ(one_output(Format::bf16, {{1, 1}, {0x1.cp-12F, 0x1p-12F}}), 1.0F) << "to nearest it would be 1 + 2^-23";
  EXPECT_EQ(one_output(Format::bf16, {{1, 1}, {-0x1p-13F, 0x1p-12F}}), 0x1.fffffep-1F) << "towards zero";
  EXPECT_EQ(one_output(Format::bf16, {{1, 1}, {-0x1p-13F, 0x1p-13F}}), 1.0F) << "2^-26 is cut off before";
  EXPECT_EQ(one_output(Format::bf16, {{-1, 1}, {0x1p-13F, 0x1p-12F}}), -0x1.fffffep-1F);
  // The largest cancels, and what it hid is lost.
  EXPECT_EQ(one_output(Format::bf16, {{0x1p14F, 0x1p14F}, {1, 1}, {-0x1p14F, 0x1p14F}}), 0.0F);
  EXPECT_EQ(one_output(Format::bf16, {{0x1p12F, 0x1p13F}, {1, 1}, {-0x1p12F, 0x1p13F}}), 1.0F)
      << "2^25 hides nothing of 1";
  // A product's exponent is the sum of its operands': 1.5 * 1.5 = 2.25 still has 0, so that 2^-25 counts.
  EXPECT_EQ(one_output(Format::f16, {{1.5F, 1.5F}, {0x1p-12F, 0x1p-13F}, {-1.5F, 1.5F}}), 0x1p-25F);
  // Two instructions: the accumulator is f32, and is aligned with the next 16.
  std::vector<std::pair<float, float>> pairs(17, {0.0F, 1.0F});
  pairs[0] = {1, 1};
  pairs[16] = {0x1p-12F, 0x1.8p-12F};
  EXPECT_EQ(one_output(Format::bf16, pairs), 1.0F) << "1.5 * 2^-24, cut off";
}

TEST(GemmTensorCore, SubnormalsCountAndOverflowIsInf) {
  EXPECT_EQ(one_output(Format::bf16, {{0x1p-130F, 1}}), 0x1p-130F);
  EXPECT_EQ(one_output(Format::bf16, {{0x1p-75F, 0x1p-74F}}), 0x1p-149F);
  EXPECT_EQ(test::bits(one_output(Format::bf16, {{-0x1p-75F, 0x1p-75F}})), 0x80000000U) << "cut off to zero";
  EXPECT_EQ(one_output(Format::f16, {{0x1p-24F, 0x1p-24F}}), 0x1p-48F);
  // A subnormal's exponent is that of the least normal number: 2^-24 * 2^15 has 1, and hides what is below 2^-24.
  EXPECT_EQ(one_output(Format::f16, {{0x1p-24F, 0x1p15F}, {0x1p-12F, 0x1p-13F}}), 0x1p-9F);
  EXPECT_EQ(one_output(Format::f16, {{0x1p-9F, 1}, {0x1p-12F, 0x1p-13F}}), 0x1.0001p-9F);
  EXPECT_EQ(one_output(Format::bf16, {{0x1p64F, 0x1p63F}, {0x1p64F, 0x1p63F}}), test::kInf);
  EXPECT_EQ(one_output(Format::bf16, {{0x1p64F, 0x1p64F}, {-0x1p64F, 0x1p63F}}), 0x1p127F) << "no product overflows";
}

TEST(GemmTensorCore, NanAndInfFollowIeeeAndZerosArePlus) {
  EXPECT_EQ(test::bits(one_output(Format::bf16, {{test::kNan, 0}})), test::kCanonical);
  EXPECT_EQ(test::bits(one_output(Format::f16, {{test::kInf, 0}})), test::kCanonical);
  EXPECT_EQ(test::bits(one_output(Format::bf16, {{test::kInf, 1}, {1, -test::kInf}})), test::kCanonical);
  EXPECT_EQ(one_output(Format::bf16, {{test::kInf, -2}, {1, 1}}), -test::kInf);
  EXPECT_EQ(test::bits(one_output(Format::bf16, {{-0.0F, 1}, {-0.0F, 1}})), 0U);
  std::vector<std::pair<float, float>> pairs(40, {1.0F, 1.0F});
  pairs[3] = {test::kInf, 1};
  EXPECT_EQ(one_output(Format::bf16, pairs), test::kInf) << "of an instruction before the last";
  pairs[39] = {1, -test::kInf};
  EXPECT_EQ(test::bits(one_output(Format::bf16, pairs)), test::kCanonical);
}

/// The sum in double of what the instruction reads, and how far off it is taken to be at most.
TEST(GemmTensorCore, StaysWithinHalfTheBoundOfTheExactSum) {
  std::uint64_t seed = 100;
  for (const auto& [what, draw] : mma_draws()) {
    if (what == "specials") continue;
    for (const Format operand : {Format::bf16, Format::f16}) {
      MmaProduct product = product_of(operand, 20, 500, 33, draw, ++seed);
      const Floats out = product.run(test::cpu());
      for (std::int64_t row = 0; row < product.rows; ++row) {
        const std::vector<float> x = product.x_row(row);
        for (std::int64_t n = 0; n < product.outputs; ++n) {
          const std::vector<float> weight = product.weight_row(n);
          long double sum = 0;
          for (std::size_t k = 0; k < x.size(); ++k) sum += static_cast<long double>(double{x[k]} * double{weight[k]});
          const float found = out.at(row, n);
          const double magnitude = tensor_core_magnitude(operand, x, weight);
          if (!std::isfinite(found)) {  // a sum on the way was beyond f32, and perhaps one of the other sign after it
            EXPECT_GT(magnitude, 0x1.fffp127) << what;
            continue;
          }
          const double bound = tensor_core_bound(Format::f32, product.depth, magnitude, found, 0.0F);
          EXPECT_LE(std::abs(static_cast<double>(sum - static_cast<long double>(double{found}))), bound / 2 + 0x1p-149)
              << name(operand) << " " << what << " at " << row << ", " << n;
        }
      }
    }
  }
}

/// An instruction in two steps of 8, 24 bits deep, as published of sm_80: other bits, within the bound.
TEST(GemmTensorCore, OtherTensorCoresAreWithinTheBound) {
  const auto other = [](std::span<const float> x, std::span<const float> weight) {
    float sum = 0;
    for (std::size_t k = 0; k < x.size(); k += 8) {
      double largest = std::abs(double{sum});
      for (std::size_t i = k; i < std::min(k + 8, x.size()); ++i) {
        largest = std::max(largest, std::abs(double{x[i]} * double{weight[i]}));
      }
      const double unit = largest > 0 ? std::ldexp(1.0, std::ilogb(largest) - 24) : 1;
      double all = std::trunc(double{sum} / unit) * unit;
      for (std::size_t i = k; i < std::min(k + 8, x.size()); ++i) {
        all += std::trunc(double{x[i]} * double{weight[i]} / unit) * unit;
      }
      const double last = all == 0 ? 1 : std::ldexp(1.0, std::ilogb(all) - 23);
      sum = static_cast<float>(std::trunc(all / last) * last);
    }
    return sum;
  };
  MmaProduct product = product_of(
      Format::bf16, 20, 900, 33, [](cases::Sequence& s) { return s.next(); }, 7);
  const Floats out = product.run(test::cpu());
  int differ = 0;
  for (std::int64_t row = 0; row < product.rows; ++row) {
    for (std::int64_t n = 0; n < product.outputs; ++n) {
      const float found = other(product.x_row(row), product.weight_row(n));
      differ += found != out.at(row, n) ? 1 : 0;
      const double magnitude = tensor_core_magnitude(Format::bf16, product.x_row(row), product.weight_row(n));
      double share = 0;
      EXPECT_TRUE(within_tensor_core_bound(Format::f32, product.depth, magnitude, out.at(row, n), found, share));
      EXPECT_LE(share, 1);
      // The bound is one: a product that is left out is seen.
      const float less = out.at(row, n) - 0.5F;
      EXPECT_FALSE(within_tensor_core_bound(Format::f32, product.depth, magnitude, out.at(row, n), less, share));
    }
  }
  EXPECT_GT(differ, 300);
}

TEST(GemmTensorCore, TheBoundKnowsNanAndInf) {
  double share = 0;
  const float largest = 0x1.fffffep127F;
  const auto within = [&](float a, float b) { return within_tensor_core_bound(Format::f32, 16, 4, a, b, share); };
  EXPECT_TRUE(within(test::kNan, test::kNan));
  EXPECT_FALSE(within(test::kNan, 1));
  EXPECT_FALSE(within(1, test::kNan));
  EXPECT_TRUE(within(test::kInf, test::kInf));
  EXPECT_FALSE(within(test::kInf, -test::kInf));
  EXPECT_FALSE(within(test::kInf, 1));
  EXPECT_TRUE(within(test::kInf, largest));
  EXPECT_FALSE(within(-test::kInf, largest));
  EXPECT_TRUE(within(1, 1));
  EXPECT_EQ(share, 0);
  EXPECT_FALSE(within(1, 1.001F));
  EXPECT_GT(share, 1);
  // n = 1: 22 * 2^-24 of a magnitude of 4, twice, and the roundings: 1.05e-5 and a little.
  EXPECT_NEAR(tensor_core_bound(Format::f32, 16, 4, 0, 0), 1.01 * 2 * 22 * 0x1p-24 * 4, 1e-9);
  EXPECT_EQ(tensor_core_magnitude(Format::f16, std::array{1.0F, -2.0F, 0.0F}, std::array{0x1p-20F, 3.0F, 9.0F}),
            0x1p-14 + 6);
}

/// 2^127 twice, and -2^127 twice in the other half: 16 at once cancel, and 8 and 8 are Inf before they do.
TEST(GemmTensorCore, ASumThatOverflowsOnOneDeviceAloneIsWithinTheBound) {
  std::vector<std::pair<float, float>> pairs(16, {0.0F, 0x1p63F});
  pairs[0].first = pairs[1].first = 0x1p64F;
  pairs[8].first = pairs[9].first = -0x1p64F;
  const float at_once = one_output(Format::bf16, pairs);
  EXPECT_EQ(at_once, 0.0F);
  const float first_half = one_output(Format::bf16, {pairs.begin(), pairs.begin() + 8});
  const float second_half = one_output(Format::bf16, {pairs.begin() + 8, pairs.end()});
  EXPECT_EQ(first_half, test::kInf);
  EXPECT_EQ(second_half, -test::kInf);
  std::vector<float> x;
  std::vector<float> weight;
  for (const auto& [a, b] : pairs) {
    x.push_back(a);
    weight.push_back(b);
  }
  const double magnitude = tensor_core_magnitude(Format::bf16, x, weight);
  EXPECT_EQ(magnitude, 0x1p129);
  double share = 1;
  const auto within = [&](double sum, float a, float b) {
    return within_tensor_core_bound(Format::f32, 16, sum, a, b, share);
  };
  for (const float in_steps : {first_half, second_half, first_half + second_half}) {
    EXPECT_TRUE(within(magnitude, at_once, in_steps));
    EXPECT_EQ(share, 0);
    EXPECT_TRUE(within(magnitude, in_steps, at_once));
    EXPECT_TRUE(within(magnitude, test::kInf, in_steps));
    EXPECT_TRUE(within(0x1.fffffep127, at_once, in_steps)) << "with its errors it reaches 2^128";
    EXPECT_FALSE(within(0x1.fffp127, at_once, in_steps));
  }
  EXPECT_FALSE(within(magnitude, 0.0F, 0x1p126F)) << "both finite: 2^130 * 22 * 2^-24 is less than 2^111";
  EXPECT_GT(share, 1);
}

/// What no device can make finite is not excused by the size of the rest, nor does it widen the bound.
TEST(GemmTensorCore, InfAndNanAmongTheOperandsHaveNoPartInTheMagnitude) {
  const std::array weight{2.0F, 1.0F, 0.0F, 1.0F};
  const double magnitude =
      tensor_core_magnitude(Format::bf16, std::array{3.0F, test::kInf, -test::kInf, test::kNan}, weight);
  EXPECT_EQ(magnitude, 6);
  double share = 0;
  EXPECT_FALSE(within_tensor_core_bound(Format::f32, 4, magnitude, test::kInf, 5.0F, share));
  EXPECT_FALSE(within_tensor_core_bound(Format::f32, 4, magnitude, test::kNan, test::kInf, share));
}

/// Operands of f32 are rounded to bf16, and those of f16 beside them, before all else.
TEST(GemmTensorCore, OperandsAreRoundedToOneFormatFirst) {
  Floats x = test::random_floats(5, 70, 11);
  Floats weight = test::random_floats(9, 70, 12);
  Floats out(5, 9);
  test::launch(GemmTensorCoreArgs{.x = x.view(), .weight = weight.view(), .bias = {}, .out = out.view()});
  const auto rounded = [](const Floats& from, Format first) {
    std::vector<std::uint16_t> codes;
    for (const float value : from.data) {
      const float read = first == Format::f32 ? value : decode(first, encode(first, value, Overflow::overflow));
      codes.push_back(static_cast<std::uint16_t>(encode(Format::bf16, read, Overflow::overflow)));
    }
    return codes;
  };
  MmaProduct product{Format::bf16, 5, 70, 9, rounded(x, Format::f32), rounded(weight, Format::f32)};
  EXPECT_EQ(product.run(test::cpu()).data, out.data);
  std::vector<std::uint16_t> halves;
  for (const float value : weight.data) {
    halves.push_back(static_cast<std::uint16_t>(encode(Format::f16, value, Overflow::overflow)));
  }
  test::launch(GemmTensorCoreArgs{
      .x = x.view(), .weight = {halves.data(), Format::f16, 9, 70, 70}, .bias = {}, .out = out.view()});
  product.weight = rounded(weight, Format::f16);
  EXPECT_EQ(product.run(test::cpu()).data, out.data);
}

TEST(GemmTensorCore, TheBiasIsAddedOnceAndTheOutputRounded) {
  Floats x = test::random_floats(3, 40, 21);
  Floats weight = test::random_floats(6, 40, 22);
  Floats bias = test::random_floats(1, 6, 23);
  Floats plain(3, 6);
  std::vector<std::uint16_t> out(18);
  test::launch(GemmTensorCoreArgs{.x = x.view(), .weight = weight.view(), .bias = {}, .out = plain.view()});
  test::launch(GemmTensorCoreArgs{
      .x = x.view(), .weight = weight.view(), .bias = bias.view(), .out = {out.data(), Format::bf16, 3, 6, 6}});
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t n = 0; n < 6; ++n) {
      const float sum = plain.at(row, n) + bias.at(0, n);
      EXPECT_EQ(out[static_cast<std::size_t>(row * 6 + n)], encode(Format::bf16, sum, Overflow::overflow));
    }
  }
}

/// Beside the exact form: what rounding the operands to bf16 costs, and what the instruction does.
TEST(GemmTensorCore, IsNearTheExactForm) {
  Floats x = test::random_floats(8, 300, 31);
  Floats weight = test::random_floats(20, 300, 32);
  Floats exact(8, 20);
  Floats out(8, 20);
  test::launch(GemmArgs{.x = x.view(), .weight = weight.view(), .packed = {}, .bias = {}, .out = exact.view()});
  test::launch(GemmTensorCoreArgs{.x = x.view(), .weight = weight.view(), .bias = {}, .out = out.view()});
  int differ = 0;
  for (std::int64_t row = 0; row < 8; ++row) {
    for (std::int64_t n = 0; n < 20; ++n) {
      double magnitude = 0;
      for (std::int64_t k = 0; k < 300; ++k) magnitude += std::abs(double{x.at(row, k)} * double{weight.at(n, k)});
      EXPECT_NEAR(out.at(row, n), exact.at(row, n), 0x1.1p-7 * magnitude);
      differ += out.at(row, n) != exact.at(row, n) ? 1 : 0;
    }
  }
  EXPECT_GT(differ, 150);
}

TEST(GemmTensorCore, RefusesCodesAndOtherShapes) {
  Floats x(2, 3);
  Floats weight(4, 3);
  Floats out(2, 4);
  EXPECT_TRUE(check(GemmTensorCoreArgs{.x = x.view(), .weight = weight.view(), .bias = {}, .out = out.view()}));
  test::Matrix<std::uint8_t> codes(4, 3);
  EXPECT_FALSE(check(GemmTensorCoreArgs{.x = x.view(), .weight = codes.view(), .bias = {}, .out = out.view()}));
  EXPECT_FALSE(check(GemmTensorCoreArgs{.x = x.view(), .weight = out.view(), .bias = {}, .out = out.view()}));
  EXPECT_FALSE(check(GemmTensorCoreArgs{.x = x.view(), .weight = {}, .bias = {}, .out = out.view()}));
}

}  // namespace
}  // namespace nanscope::kernels
