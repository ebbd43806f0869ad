// Compares with CUDA's conversion headers, which run on the host. CodecCudaLong walks all 2^32 inputs.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "core/numbers/codec.h"
#include "tests/unit/core/numbers/codec_walk.h"

namespace nanscope {
namespace {

float half_bits(std::uint32_t code) { return __half2float(__half(__half_raw{static_cast<unsigned short>(code)})); }
float bfloat_bits(std::uint32_t code) {
  return __bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>(code)}));
}

float oracle_decode(Format format, std::uint32_t code) {
  const auto byte = static_cast<unsigned char>(code);
  switch (format) {
    case Format::f16:
      return half_bits(code);
    case Format::bf16:
      return bfloat_bits(code);
    case Format::e4m3:
      return half_bits(__nv_cvt_fp8_to_halfraw(byte, __NV_E4M3).x);
    case Format::e5m2:
      return half_bits(__nv_cvt_fp8_to_halfraw(byte, __NV_E5M2).x);
    case Format::e3m2:
      return half_bits(__nv_cvt_fp6_to_halfraw(byte, __NV_E3M2).x);
    case Format::e2m3:
      return half_bits(__nv_cvt_fp6_to_halfraw(byte, __NV_E2M3).x);
    case Format::e2m1:
      return half_bits(__nv_cvt_fp4_to_halfraw(byte, __NV_E2M1).x);
    case Format::e8m0:
      return bfloat_bits(__nv_cvt_e8m0_to_bf16raw(byte).x);
    default:
      return 0.0f;
  }
}

/// CUDA's half and bfloat16 casts have no saturating form on the host: Inf becomes the largest.
std::uint32_t clamp_inf(Format format, std::uint32_t code, Overflow overflow) {
  const FormatInfo& f = info(format);
  const std::uint32_t inf = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
  if (overflow == Overflow::saturate && (code & 0x7fffu) == inf) return (code & 0x8000u) | f.max_finite_code;
  return code;
}

std::uint32_t oracle_encode(Format format, float value, Overflow overflow) {
  const auto saturation = overflow == Overflow::saturate ? __NV_SATFINITE : __NV_NOSAT;
  switch (format) {
    case Format::f16:
      return clamp_inf(format, __half_raw(__float2half_rn(value)).x, overflow);
    case Format::bf16:
      return clamp_inf(format, __nv_bfloat16_raw(__float2bfloat16_rn(value)).x, overflow);
    case Format::e4m3:
      return __nv_cvt_float_to_fp8(value, saturation, __NV_E4M3);
    case Format::e5m2:
      return __nv_cvt_float_to_fp8(value, saturation, __NV_E5M2);
    case Format::e3m2:
      return __nv_cvt_float_to_fp6(value, __NV_E3M2, cudaRoundNearest);
    case Format::e2m3:
      return __nv_cvt_float_to_fp6(value, __NV_E2M3, cudaRoundNearest);
    case Format::e2m1:
      return __nv_cvt_float_to_fp4(value, __NV_E2M1, cudaRoundNearest);
    default:
      return testing::define_encode(info(format), value, overflow);
  }
}

TEST(CodecCuda, EveryCodeDecodesAsInTheHeaders) {
  for (const Format format : testing::kOracleFormats) {
    const CodecParams p = codec_params(format);
    for (std::uint32_t code = 0; code < (1u << info(format).bits); ++code) {
      const float want = oracle_decode(format, code);
      const std::uint32_t bits = std::isnan(want) ? kCanonicalNan : std::bit_cast<std::uint32_t>(want);
      ASSERT_EQ(decode_bits(p, code), bits) << name(format) << " " << code;
    }
  }
}

TEST(CodecCuda, E8m0RoundsDownAndUpAsInTheHeaders) {
  for (const std::uint32_t bits : testing::strided_inputs()) {
    for (const Overflow overflow : testing::kBothModes) {
      const auto saturation = overflow == Overflow::saturate ? __NV_SATFINITE : __NV_NOSAT;
      const float value = std::bit_cast<float>(bits);
      ASSERT_EQ(encode_e8m0_bits(bits, E8m0Rounding::down, overflow),
                __nv_cvt_float_to_e8m0(value, saturation, cudaRoundZero))
          << std::hex << bits;
      ASSERT_EQ(encode_e8m0_bits(bits, E8m0Rounding::up, overflow),
                __nv_cvt_float_to_e8m0(value, saturation, cudaRoundPosInf))
          << std::hex << bits;
    }
  }
}
TEST(CodecCuda, StridedInputsAndAllBoundariesAreCastAsInTheHeaders) { testing::expect_strided_casts(oracle_encode); }

TEST(CodecCudaLong, AllFloatsToE4m3) { testing::expect_all_casts<Format::e4m3>(oracle_encode); }
TEST(CodecCudaLong, AllFloatsToE5m2) { testing::expect_all_casts<Format::e5m2>(oracle_encode); }
TEST(CodecCudaLong, AllFloatsToF16) { testing::expect_all_casts<Format::f16>(oracle_encode); }
TEST(CodecCudaLong, AllFloatsToBf16) { testing::expect_all_casts<Format::bf16>(oracle_encode); }

}  // namespace
}  // namespace nanscope
