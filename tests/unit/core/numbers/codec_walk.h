#pragma once
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "core/numbers/codec.h"
#include "tests/unit/core/numbers/definition.h"

/// Casts compared with an oracle: a function of (format, value, overflow mode) that gives the code.
namespace nanscope::testing {

using CastOracle = std::uint32_t (*)(Format, float, Overflow);

constexpr std::array kBothModes = {Overflow::saturate, Overflow::overflow};
constexpr std::array kOracleFormats = {Format::f16,  Format::bf16, Format::e4m3, Format::e5m2,
                                       Format::e3m2, Format::e2m3, Format::e2m1, Format::e8m0};

/// All boundaries of all formats, and each 104729th float: a prime, so that all residues of the low bits occur.
inline std::vector<std::uint32_t> strided_inputs() {
  std::vector<std::uint32_t> inputs = boundary_inputs();
  for (std::uint64_t bits = 0; bits <= 0xffffffff; bits += 104729) inputs.push_back(static_cast<std::uint32_t>(bits));
  return inputs;
}

/// True when both are the same code, or ours is the canonical NaN and theirs is any NaN.
inline bool agrees(const FormatInfo& f, std::uint32_t ours, std::uint32_t theirs) {
  if (ours == theirs) return true;
  return f.specials != Specials::none && ours == f.canonical_nan_code &&
         decode_bits(codec_params(f), theirs) == kCanonicalNan;
}

inline void expect_strided_casts(CastOracle oracle) {
  const std::vector<std::uint32_t> inputs = strided_inputs();
  for (const Format format : kOracleFormats) {
    const FormatInfo& f = info(format);
    for (const std::uint32_t bits : inputs) {
      for (const Overflow overflow : kBothModes) {
        const std::uint32_t want = oracle(format, std::bit_cast<float>(bits), overflow);
        const std::uint32_t got = encode_bits(codec_params(f), bits, overflow);
        ASSERT_TRUE(agrees(f, got, want))
            << f.name << std::hex << " input 0x" << bits << " gives 0x" << got << ", oracle 0x" << want;
      }
    }
  }
}

/// Counts differing casts over all 2^32 inputs; `first` receives the smallest one.
template <Format F>
std::uint64_t count_differences(CastOracle oracle, std::atomic<std::uint32_t>& first) {
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
          const std::uint32_t want = oracle(F, std::bit_cast<float>(bits), overflow);
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

/// All 2^32 inputs in both overflow modes.
template <Format F>
void expect_all_casts(CastOracle oracle) {
  std::atomic<std::uint32_t> first = 0xffffffff;
  const auto start = std::chrono::steady_clock::now();
  const std::uint64_t different = count_differences<F>(oracle, first);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%s: 2^32 inputs, both overflow modes: %llu differ, %.0f s\n", name(F).data(),
              static_cast<unsigned long long>(different), seconds);
  EXPECT_EQ(different, 0u) << "first input 0x" << std::hex << first.load();
}

}  // namespace nanscope::testing
