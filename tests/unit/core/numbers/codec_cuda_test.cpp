// Compares with CUDA's conversion headers, which run on the host. The long test walks all 2^32
// inputs: NANSCOPE_LONG_TESTS=1. Without the headers the long test compares with the definition.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

#include "core/numbers/codec.h"
#include "tests/unit/core/numbers/definition.h"

#ifdef NANSCOPE_HAVE_CUDA_HEADERS
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#endif

namespace nanscope {
namespace {

constexpr std::array kBothModes = {Overflow::saturate, Overflow::overflow};
constexpr std::uint32_t kStride = 104729;  // prime: visits all residues of the low bits

#ifdef NANSCOPE_HAVE_CUDA_HEADERS
constexpr const char* kOracle = "CUDA headers";
constexpr std::array kOracleFormats = {Format::f16,  Format::bf16, Format::e4m3, Format::e5m2,
                                       Format::e3m2, Format::e2m3, Format::e2m1, Format::e8m0};

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
  for (const Format format : kOracleFormats) {
    const CodecParams p = codec_params(format);
    for (std::uint32_t code = 0; code < (1u << info(format).bits); ++code) {
      const float want = oracle_decode(format, code);
      const std::uint32_t bits = std::isnan(want) ? kCanonicalNan : std::bit_cast<std::uint32_t>(want);
      ASSERT_EQ(decode_bits(p, code), bits) << name(format) << " " << code;
    }
  }
}

TEST(CodecCuda, E8m0RoundsDownAndUpAsInTheHeaders) {
  std::vector<std::uint32_t> inputs = testing::boundary_inputs();
  for (std::uint64_t bits = 0; bits <= 0xffffffff; bits += kStride) inputs.push_back(static_cast<std::uint32_t>(bits));
  for (const std::uint32_t bits : inputs) {
    for (const Overflow overflow : kBothModes) {
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
#else
constexpr const char* kOracle = "definition (CUDA headers not found)";
constexpr std::array kOracleFormats = {Format::f16,  Format::bf16, Format::e4m3, Format::e5m2,
                                       Format::e3m2, Format::e2m3, Format::e2m1, Format::e8m0};

std::uint32_t oracle_encode(Format format, float value, Overflow overflow) {
  return testing::define_encode(info(format), value, overflow);
}

TEST(CodecCuda, EveryCodeDecodesAsInTheHeaders) { GTEST_SKIP() << "cuda_fp4.h not found: no CUDA oracle"; }
TEST(CodecCuda, E8m0RoundsDownAndUpAsInTheHeaders) { GTEST_SKIP() << "cuda_fp4.h not found: no CUDA oracle"; }
#endif

/// True when both are the same code, or ours is the canonical NaN and theirs is any NaN.
bool agrees(const FormatInfo& f, std::uint32_t ours, std::uint32_t theirs) {
  if (ours == theirs) return true;
  return f.specials != Specials::none && ours == f.canonical_nan_code &&
         decode_bits(codec_params(f), theirs) == kCanonicalNan;
}

TEST(CodecCuda, StridedInputsAndAllBoundariesAreCastAsInTheHeaders) {
  RecordProperty("oracle", kOracle);
  std::vector<std::uint32_t> inputs = testing::boundary_inputs();
  for (std::uint64_t bits = 0; bits <= 0xffffffff; bits += kStride) inputs.push_back(static_cast<std::uint32_t>(bits));
  for (const Format format : kOracleFormats) {
    const FormatInfo& f = info(format);
    for (const std::uint32_t bits : inputs) {
      for (const Overflow overflow : kBothModes) {
        const std::uint32_t want = oracle_encode(format, std::bit_cast<float>(bits), overflow);
        const std::uint32_t got = encode_bits(codec_params(f), bits, overflow);
        ASSERT_TRUE(agrees(f, got, want))
            << f.name << std::hex << " input 0x" << bits << " gives 0x" << got << ", oracle 0x" << want;
      }
    }
  }
}

/// Counts differing casts over all 2^32 inputs; `first` receives the smallest one.
template <Format F>
std::uint64_t count_differences(std::atomic<std::uint32_t>& first) {
  const unsigned workers = std::max(1u, std::thread::hardware_concurrency());
  std::atomic<std::uint64_t> next = 0;
  std::atomic<std::uint64_t> different = 0;
  constexpr std::uint64_t kBlock = 1u << 22;
  const auto work = [&] {
    for (std::uint64_t begin; (begin = next.fetch_add(kBlock)) < (std::uint64_t{1} << 32);) {
      std::uint64_t here = 0;
      for (std::uint64_t i = begin; i < begin + kBlock; ++i) {
        const auto bits = static_cast<std::uint32_t>(i);
        for (const Overflow overflow : kBothModes) {
          const std::uint32_t want = oracle_encode(F, std::bit_cast<float>(bits), overflow);
          if (agrees(info(F), encode_bits<F>(bits, overflow), want)) continue;
          ++here;
          std::uint32_t seen = first.load();
          while (bits < seen && !first.compare_exchange_weak(seen, bits)) {
          }
        }
      }
      different += here;
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < workers; ++i) threads.emplace_back(work);
  threads.clear();
  return different;
}

template <Format F>
void walk_all_inputs() {
  const char* wanted = std::getenv("NANSCOPE_LONG_TESTS");
  if (wanted == nullptr || std::string_view(wanted) != "1") GTEST_SKIP() << "set NANSCOPE_LONG_TESTS=1 to run it";
  std::atomic<std::uint32_t> first = 0xffffffff;
  const auto start = std::chrono::steady_clock::now();
  const std::uint64_t different = count_differences<F>(first);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%s: 2^32 inputs, both overflow modes, against %s: %llu differ, %.0f s\n", name(F).data(), kOracle,
              static_cast<unsigned long long>(different), seconds);
  EXPECT_EQ(different, 0u) << "first input 0x" << std::hex << first.load();
}

TEST(CodecLong, AllFloatsToE4m3) { walk_all_inputs<Format::e4m3>(); }
TEST(CodecLong, AllFloatsToE5m2) { walk_all_inputs<Format::e5m2>(); }
TEST(CodecLong, AllFloatsToF16) { walk_all_inputs<Format::f16>(); }
TEST(CodecLong, AllFloatsToBf16) { walk_all_inputs<Format::bf16>(); }

}  // namespace
}  // namespace nanscope
