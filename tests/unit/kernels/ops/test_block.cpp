// Block quantisation and the block-scaled product, against definitions written here in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/blocks/block_codec.h"
#include "core/blocks/presets.h"
#include "core/numbers/codec.h"
#include "kernels/ops/block_gemm.h"
#include "kernels/ops/block_quantise.h"
#include "tests/unit/kernels/ops/op_test.h"

#ifdef NANSCOPE_HAVE_CUDA_HEADERS
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#endif

namespace nanscope::kernels {
namespace {

using test::Floats;
using Codes = test::Matrix<std::uint8_t>;

struct Quantised {
  Codes codes;
  Codes scales;
};

struct How {
  Format codes = Format::e4m3;
  Format scales = Format::e8m0;
  std::int64_t block = 32;
  std::int64_t columns = 4;  ///< of the scales
  ScalePacking packing = ScalePacking::rounded;
  float tensor_scale = 1;
  Overflow overflow = Overflow::saturate;
  bool zero_padding = true;
  std::uint8_t memory = 0x7F;  ///< what the scales' memory held
};

/// As serving kernels have it: e8m0 scales rounded up.
BlockFormat format_of(const How& how) {
  BlockFormat format;
  format.element = how.codes;
  format.block.columns = static_cast<std::int32_t>(how.block);
  format.scale = how.scales;
  format.second = SecondScale::multiplier;
  format.rule = how.scales == Format::e8m0 ? ScaleRule::rceil : ScaleRule::amax_over_max;
  format.largest = info(how.codes).max_finite;
  format.inf = BadBlock::arithmetic;
  return format;
}

Quantised quantise(Floats x, const How& how) {
  Quantised out{Codes(x.rows, x.columns), Codes(x.rows, how.columns, how.memory)};
  out.codes.format = how.codes;
  out.scales.format = how.scales;
  BlockQuantiseArgs args;
  args.x = x.view();
  args.codes = out.codes.view();
  args.scales = out.scales.view();
  args.format = format_of(how);
  args.packing = how.packing;
  args.second = how.tensor_scale;
  args.scale_overflow = how.overflow;
  args.zero_padding = how.zero_padding;
  test::launch(args);
  return out;
}

/// Smallest power of two that is not below `value`, as an e8m0 code: 2^(code - 127).
int power_above(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return (fraction == 0.5 ? exponent - 1 : exponent) + 127;
}

TEST(BlockQuantise, MxScalesArePowersOfTwoThatHoldTheBlock) {
  const Floats x = test::random_floats(3, 77, 81, 5.0F);
  const Quantised found = quantise(x, {});
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t block = 0; block < 3; ++block) {
      double largest = 0;
      for (std::int64_t i = block * 32; i < std::min<std::int64_t>(77, block * 32 + 32); ++i) {
        largest = std::max(largest, std::abs(double{x.at(row, i)}));
      }
      EXPECT_EQ(found.scales.at(row, block), power_above(largest / 448));
      const double scale = std::ldexp(1.0, found.scales.at(row, block) - 127);
      for (std::int64_t i = block * 32; i < std::min<std::int64_t>(77, block * 32 + 32); ++i) {
        const double read = double{decode(Format::e4m3, found.codes.at(row, i))} * scale;
        EXPECT_NEAR(read, x.at(row, i), std::max(std::abs(double{x.at(row, i)}) / 16, scale / 1024));
      }
    }
    EXPECT_EQ(found.scales.at(row, 3), 0) << "behind the last block";
  }
}

TEST(BlockQuantise, NvScalesAreRoundedToE4m3AndCodesToE2m1) {
  Floats x(1, 32, 0.0F);
  x.at(0, 3) = -6.75F;  // 6.75 / 6 = 1.125, an e4m3 value
  x.at(0, 4) = 1.2F;    // 1.0667 rounds to 1
  x.at(0, 20) = 3.0F;
  const Quantised found = quantise(x, {.codes = Format::e2m1, .scales = Format::e4m3, .block = 16});
  EXPECT_EQ(decode(Format::e4m3, found.scales.at(0, 0)), 1.125F);
  EXPECT_EQ(decode(Format::e4m3, found.scales.at(0, 1)), 0.5F);
  EXPECT_EQ(decode(Format::e2m1, found.codes.at(0, 3)), -6.0F);
  EXPECT_EQ(decode(Format::e2m1, found.codes.at(0, 4)), 1.0F);
  EXPECT_EQ(decode(Format::e2m1, found.codes.at(0, 20)), 6.0F);
}

TEST(BlockQuantise, ABlockOfZerosIsZeroUnderAScaleOfZero) {
  const Quantised found = quantise(Floats(1, 16, 0.0F), {.codes = Format::e2m1, .scales = Format::e4m3, .block = 16});
  EXPECT_EQ(found.scales.at(0, 0), 0);
  for (std::int64_t i = 0; i < 16; ++i) EXPECT_EQ(found.codes.at(0, i), 0);
}

/// NVFP4 with a scale for the tensor above those of the blocks. 6 * 448 * 0.001 is what it can hold.
How narrow(Overflow overflow) {
  return {.codes = Format::e2m1, .scales = Format::e4m3, .block = 16, .tensor_scale = 0.001F, .overflow = overflow};
}

TEST(BlockQuantise, ABlockBeyondTheTensorScaleSaturatesOrMakesItsScaleNan) {
  Floats x(1, 32, 0.5F);
  x.at(0, 5) = 3.0F;  // 3 / 6 / 0.001 = 500: 448 or, as 480 has the code of NaN, NaN
  const Quantised kept = quantise(x, narrow(Overflow::saturate));
  EXPECT_EQ(kept.scales.at(0, 0), 0x7E);
  EXPECT_EQ(decode(Format::e2m1, kept.codes.at(0, 5)), 6.0F) << "clipped: 3 / 0.448 is 6.7";
  EXPECT_EQ(decode(Format::e2m1, kept.codes.at(0, 0)), 1.0F) << "0.5 / 0.448 is 1.12";
  const Quantised lost = quantise(x, narrow(Overflow::overflow));
  EXPECT_EQ(lost.scales.at(0, 0), 0x7F);
  EXPECT_EQ(lost.scales.at(0, 1), kept.scales.at(0, 1)) << "the other block";
  x.at(0, 5) = 2.7F;  // 450 rounds to 448
  EXPECT_EQ(quantise(x, narrow(Overflow::overflow)).scales.at(0, 0), 0x7E);
}

TEST(BlockQuantise, PaddingOfScalesKeepsWhatTheMemoryHeldUnlessItIsZeroed) {
  const How kept{.scales = Format::e4m3, .zero_padding = false};
  const Quantised found = quantise(test::random_floats(2, 64, 82), kept);
  for (std::int64_t row = 0; row < 2; ++row) {
    EXPECT_NE(found.scales.at(row, 1), 0x7F);
    EXPECT_EQ(found.scales.at(row, 2), 0x7F);
    EXPECT_EQ(found.scales.at(row, 3), 0x7F);
  }
}

TEST(BlockQuantise, ANanMakesItsBlockNanAndNoOther) {
  Floats x = test::random_floats(1, 64, 83);
  x.at(0, 40) = test::kNan;
  const Quantised found = quantise(x, {});
  EXPECT_NE(found.scales.at(0, 0), 0xFF);
  EXPECT_EQ(found.scales.at(0, 1), 0xFF);
  for (std::int64_t i = 32; i < 64; ++i) EXPECT_EQ(found.codes.at(0, i) & 0x7F, 0x7F) << i;
}

/// Scales 1, 1.5, 1 and 1: only the second has mantissa bits.
Floats with_second_block(float value) {
  Floats x(1, 128, 448.0F);
  for (std::int64_t i = 32; i < 64; ++i) x.at(0, i) = 448.0F * value;
  return x;
}

TEST(BlockQuantise, UnmaskedPackingIsRightForPowersOfTwoAlone) {
  const Quantised good = quantise(with_second_block(2.0F), {.packing = ScalePacking::unmasked});
  EXPECT_EQ(good.scales.data, (std::vector<std::uint8_t>{127, 128, 127, 127}));
  // 1.5 is 0x3FC00000: the word gets its bits >> 15, and 0x80 of the mantissa lands in the first exponent.
  const Quantised bad = quantise(with_second_block(1.5F), {.packing = ScalePacking::unmasked});
  EXPECT_EQ(bad.scales.data, (std::vector<std::uint8_t>{127 | 0x80, 127, 127, 127})) << "0xFF is e8m0's NaN";
  EXPECT_EQ(decode(Format::e4m3, bad.codes.at(0, 40)), 448.0F) << "the codes were made with 1.5";
  EXPECT_EQ(quantise(with_second_block(1.5F), {}).scales.at(0, 0), 127);
}

/// Rows that are hard: ties, thresholds of scales, zeros, subnormals, NaN, Inf.
Floats hard_rows() {
  Floats x(14, 77, 0.0F);
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t i = 0; i < x.columns; ++i) {
      const float tie = static_cast<float>((row * 31 + i * 17) % 33 - 16) / 4;
      const float size = std::ldexp(1.0F, static_cast<int>(row * 7 % 40) - 20);
      x.at(row, i) = row % 2 == 0 ? tie * size : std::sin(static_cast<float>(i * i + row)) * size;
    }
  }
  x.at(8, 5) = std::numeric_limits<float>::infinity();
  x.at(9, 40) = test::kNan;
  for (std::int64_t i = 0; i < x.columns; ++i) {
    x.at(10, i) = i % 2 == 0 ? 0.0F : -0.0F;
    x.at(11, i) *= 0x1p-120F;
    x.at(12, i) = std::ldexp(1.75F, static_cast<int>(i) - 30);
    x.at(13, i) = 448.0F;
  }
  return x;
}

/// The same descriptor, read by the op's lanes and by what writes files.
TEST(BlockQuantise, IsWhatFilesHoldInEveryPresetThatItTakes) {
  int taken = 0;
  for (const BlockPreset& preset : block_presets()) {
    Floats x = hard_rows();
    BlockFormat format = preset.format;
    format.packing = Packing::bytes;
    format.layout = ScaleLayout::linear;
    const std::int64_t blocks = block_grid(format, x.rows, x.columns).columns;
    const auto scale_bytes = static_cast<std::int64_t>(info(format.scale).storage_bytes());
    Codes codes(x.rows, x.columns);
    Codes scales(x.rows, blocks * scale_bytes);
    BlockQuantiseArgs args;
    args.x = x.view();
    args.codes = codes.view();
    args.codes.format = format.element;
    args.scales = {scales.data.data(), format.scale, x.rows, blocks, blocks};
    args.format = format;
    args.second = format.second == SecondScale::divisor ? 300.0F : 0.004F;
    if (!check(args)) continue;
    ++taken;
    test::launch(args);
    const BlockBytes size = block_bytes(format, x.rows, x.columns);
    std::vector<std::byte> file_codes(size.codes);
    std::vector<std::byte> file_scales(size.scales);
    encode_blocks(format, x.data, x.rows, x.columns, args.second, {file_codes, file_scales});
    ASSERT_EQ(codes.data.size(), file_codes.size());
    ASSERT_EQ(scales.data.size(), file_scales.size());
    for (std::size_t i = 0; i < file_scales.size(); ++i) {
      ASSERT_EQ(scales.data[i], static_cast<std::uint8_t>(file_scales[i])) << preset.name << " scale " << i;
    }
    for (std::size_t i = 0; i < file_codes.size(); ++i) {
      ASSERT_EQ(codes.data[i], static_cast<std::uint8_t>(file_codes[i])) << preset.name << ": " << x.data[i];
    }
  }
  EXPECT_GE(taken, 25);
}

#ifdef NANSCOPE_HAVE_CUDA_HEADERS
/// What CUDA's conversions, which run on the host, make of the same blocks.
std::uint8_t cuda_scale(float scale, const How& how) {
  if (how.scales == Format::e8m0) return __nv_cvt_float_to_e8m0(scale, __NV_SATFINITE, cudaRoundPosInf);
  return __nv_cvt_float_to_fp8(scale, how.overflow == Overflow::saturate ? __NV_SATFINITE : __NV_NOSAT, __NV_E4M3);
}
std::uint8_t cuda_code(float value, Format format) {
  if (format == Format::e2m1) return __nv_cvt_float_to_fp4(value, __NV_E2M1, cudaRoundNearest);
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
}

TEST(BlockQuantise, ScalesAndCodesAreThoseOfCudasConversions) {
  const How hows[] = {
      {},
      {.codes = Format::e2m1},
      {.codes = Format::e2m1, .scales = Format::e4m3, .block = 16, .columns = 8, .tensor_scale = 0.003F},
      {.codes = Format::e2m1,
       .scales = Format::e4m3,
       .block = 16,
       .columns = 8,
       .tensor_scale = 0.0015F,
       .overflow = Overflow::overflow}};
  int invalid = 0;
  for (const How& how : hows) {
    const Floats x = test::random_floats(40, 100, 88, 5.0F);
    const Quantised found = quantise(x, how);
    for (std::int64_t row = 0; row < x.rows; ++row) {
      for (std::int64_t block = 0; block * how.block < x.columns; ++block) {
        const std::int64_t end = std::min(x.columns, (block + 1) * how.block);
        float amax = 0;
        for (std::int64_t i = block * how.block; i < end; ++i) amax = std::max(amax, std::abs(x.at(row, i)));
        const float largest = how.codes == Format::e2m1 ? 6.0F : 448.0F;
        const std::uint8_t scale = cuda_scale(amax / largest / how.tensor_scale, how);
        ASSERT_EQ(found.scales.at(row, block), scale) << row << ',' << block;
        const float whole = decode(how.scales, scale) * how.tensor_scale;
        invalid += std::isnan(whole) ? 1 : 0;
        for (std::int64_t i = block * how.block; i < end && !std::isnan(whole); ++i) {
          ASSERT_EQ(found.codes.at(row, i), cuda_code(x.at(row, i) / whole, how.codes)) << row << ',' << i;
        }
      }
    }
  }
  EXPECT_GT(invalid, 0) << "no scale was beyond e4m3";
}
#endif

/// (K, 32) panels of `weight`, which has N rows of K.
Floats packed(const Floats& weight) {
  const std::int64_t panels = (weight.rows + 31) / 32;
  Floats out(panels * weight.columns, 32);
  for (std::int64_t n = 0; n < weight.rows; ++n) {
    for (std::int64_t k = 0; k < weight.columns; ++k) out.at(n / 32 * weight.columns + k, n % 32) = weight.at(n, k);
  }
  return out;
}

struct Rest {
  float tensor_scale = 1;
  float bias = 0;  ///< of all outputs; 0: not given
};

Floats product(Quantised x, const Floats& weight, std::int64_t block, bool read_padding, const Rest& rest = {}) {
  Floats out(x.codes.rows, weight.rows);
  Floats panels = packed(weight);
  Floats bias(1, weight.rows, rest.bias);
  BlockGemmArgs args;
  args.codes = x.codes.view();
  args.scales = x.scales.view();
  args.packed = panels.view();
  if (rest.bias != 0) args.bias = bias.view();
  args.out = out.view();
  args.format = format_of({.codes = x.codes.format, .scales = x.scales.format, .block = block});
  args.second = rest.tensor_scale;
  args.read_padding = read_padding;
  test::launch(args);
  return out;
}

TEST(BlockGemm, IsTheChainOfScaledPartialSums) {
  const Quantised x = quantise(test::random_floats(5, 77, 84, 9.0F), {});
  const Floats weight = test::random_floats(45, 77, 85);
  const Floats found = product(x, weight, 32, false, {.tensor_scale = 0.3F, .bias = 0.7F});
  for (std::int64_t t = 0; t < 5; ++t) {
    for (std::int64_t n = 0; n < 45; ++n) {
      float acc = 0;
      double exact = 0;
      for (std::int64_t block = 0; block < 3; ++block) {
        float partial = 0;
        const float scale = std::ldexp(1.0F, x.scales.at(t, block) - 127);
        for (std::int64_t k = block * 32; k < std::min<std::int64_t>(77, block * 32 + 32); ++k) {
          const float code = decode(Format::e4m3, x.codes.at(t, k));
          partial = std::fma(code, weight.at(n, k), partial);
          exact += double{scale} * code * weight.at(n, k);
        }
        acc = std::fma(scale, partial, acc);
      }
      EXPECT_EQ(found.at(t, n), acc * 0.3F + 0.7F) << t << "," << n;
      EXPECT_NEAR(found.at(t, n), exact * double{0.3F} + double{0.7F}, 1e-4) << t << "," << n;
    }
  }
}

TEST(BlockGemm, ReadingThePaddingMakesNanOfNanInIt) {
  const How how{.codes = Format::e2m1, .scales = Format::e4m3, .block = 16, .zero_padding = false};
  const Quantised stale = quantise(test::random_floats(2, 48, 86), how);
  How zeroed_how = how;
  zeroed_how.zero_padding = true;
  const Quantised zeroed = quantise(test::random_floats(2, 48, 86), zeroed_how);
  const Floats weight = test::random_floats(33, 48, 87);
  const Floats expected = product(zeroed, weight, 16, false);
  EXPECT_EQ(product(stale, weight, 16, false).data, expected.data);
  EXPECT_EQ(product(zeroed, weight, 16, true).data, expected.data);
  for (const float value : product(stale, weight, 16, true).data) EXPECT_EQ(test::bits(value), test::kCanonical);
}

}  // namespace
}  // namespace nanscope::kernels
