#include "instrument/recompute/kernel_arithmetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/numbers/codec.h"

namespace nanscope {
namespace {

/// What varies: the weight's format, whether it lies (in, out), and how far from an aligned address.
struct Given {
  Format format = Format::f32;
  bool transposed = false;
  std::size_t offset = 0;
};

float small(std::int64_t i, std::int64_t seed) {
  return static_cast<float>((i * 2654435761 + seed * 40503) % 2003 - 1001) / 500.0F;
}

class KernelArithmeticOf : public ::testing::TestWithParam<Given> {
 protected:
  static constexpr std::int64_t kRows = 5;
  static constexpr std::int64_t kInputs = 77;
  static constexpr std::int64_t kOutputs = 1045;  // two chunks, the last panel of 32 ragged
};

TEST_P(KernelArithmeticOf, IsTheSumInDoubleWithinItsRounding) {
  const Given given = GetParam();
  const std::int64_t rows = given.transposed ? kInputs : kOutputs;
  const std::int64_t columns = given.transposed ? kOutputs : kInputs;
  const std::int64_t stride = columns + 3;
  const std::size_t size = info(given.format).storage_bytes();
  std::vector<std::byte> bytes(given.offset + static_cast<std::size_t>(rows * stride) * size);
  std::vector<double> weight(static_cast<std::size_t>(rows * columns));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::uint32_t code = encode(given.format, small(r * columns + c, 1), Overflow::saturate);
      std::memcpy(bytes.data() + given.offset + static_cast<std::size_t>(r * stride + c) * size, &code, size);
      weight[static_cast<std::size_t>(r * columns + c)] = double{decode(given.format, code)};
    }
  }
  std::vector<float> x(static_cast<std::size_t>(kRows * kInputs));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = small(static_cast<std::int64_t>(i), 2);
  std::vector<float> out(static_cast<std::size_t>(kRows * kOutputs), -1.0F);
  std::vector<float> squares(static_cast<std::size_t>(kOutputs), -1.0F);
  const MatrixView view{std::span<const std::byte>(bytes).subspan(given.offset), given.format, rows, columns, stride};
  KernelArithmetic arithmetic;
  ASSERT_TRUE(arithmetic.product(x, kRows, view, given.transposed, out, squares));
  for (std::int64_t n = 0; n < kOutputs; ++n) {
    const auto of = [&](std::int64_t k) {
      return weight[static_cast<std::size_t>(given.transposed ? k * columns + n : n * columns + k)];
    };
    double norm = 0;
    for (std::int64_t k = 0; k < kInputs; ++k) norm += of(k) * of(k);
    EXPECT_NEAR(double{squares[static_cast<std::size_t>(n)]}, norm, kInputs * 0x1p-24 * norm) << n;
    for (std::int64_t t = 0; t < kRows; ++t) {
      double sum = 0;
      double magnitudes = 0;
      for (std::int64_t k = 0; k < kInputs; ++k) {
        const double product = double{x[static_cast<std::size_t>(t * kInputs + k)]} * of(k);
        sum += product;
        magnitudes += std::abs(product);
      }
      EXPECT_NEAR(double{out[static_cast<std::size_t>(t * kOutputs + n)]}, sum, kInputs * 0x1p-24 * magnitudes)
          << t << ", " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, KernelArithmeticOf,
                         ::testing::Values(Given{Format::f32, false, 0}, Given{Format::f32, false, 2},
                                           Given{Format::f32, true, 0}, Given{Format::f16, false, 0},
                                           Given{Format::bf16, false, 1}, Given{Format::bf16, false, 0},
                                           Given{Format::bf16, true, 1}, Given{Format::e4m3, false, 0},
                                           Given{Format::e4m3, true, 3}));

TEST(KernelArithmetic, GivesNothingOfNothing) {
  KernelArithmetic arithmetic;
  EXPECT_TRUE(arithmetic.product({}, 0, {{}, Format::bf16, 0, 0, 0}, false, {}, {}));
}

TEST(KernelArithmetic, NanAndOverflowShow) {
  const std::vector<float> weight = {1.0F, 1.0F, 3e38F, 3e38F};
  const std::vector<float> x = {std::nanf(""), 1.0F, 1.0F, 1.0F};
  std::vector<float> out(4);
  std::vector<float> squares(2);
  KernelArithmetic arithmetic;
  ASSERT_TRUE(arithmetic.product(x, 2, {std::as_bytes(std::span(weight)), Format::f32, 2, 2, 2}, false, out, squares));
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_TRUE(std::isnan(out[1]));
  EXPECT_EQ(out[2], 2.0F);
  EXPECT_TRUE(std::isinf(out[3]));
}

}  // namespace
}  // namespace nanscope
