// Health of f32, f16 and bf16 against its definition in plain loops, every field to its bits: sums of lanes l, l + 32,
// ... ascending, then the butterfly 16 8 4 2 1, over values of so many binades that another order gives other bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "core/numbers/codec.h"
#include "kernels/ops/health_scan.h"
#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels {
namespace {

double butterfly(std::array<double, 32> lanes) {
  for (std::size_t apart = 16; apart > 0; apart /= 2) {
    for (std::size_t lane = 0; lane < apart; ++lane) lanes[lane] += lanes[lane + apart];
  }
  return lanes[0] + 0.0;
}

Health expected_health(Format format, std::span<const std::uint32_t> codes) {
  const FormatInfo& of = info(format);
  Health health = empty_health();
  std::array<double, 32> sums{};
  std::array<double, 32> squares{};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const float value = decode(format, codes[i]);
    ++health.count;
    if (!std::isfinite(value)) {
      health.nan += std::isnan(value) ? 1U : 0U;
      health.pos_inf += value > 0 ? 1U : 0U;
      health.neg_inf += value < 0 ? 1U : 0U;
      if (health.first_bad < 0) health.first_bad = static_cast<std::int64_t>(i);
      continue;
    }
    // The square of 24 bits is exact in 53: a multiplication and an addition round once.
    const auto wide = static_cast<double>(value);
    sums[i % 32] += wide;
    squares[i % 32] += wide * wide;
    health.saturated += std::abs(value) == of.max_finite ? 1U : 0U;
    health.zero += value == 0 ? 1U : 0U;
    health.subnormal += value != 0 && std::abs(value) < of.min_normal ? 1U : 0U;
    health.min = std::min(health.min, value + 0.0F);
    health.max = std::max(health.max, value + 0.0F);
    health.absmax = std::max(health.absmax, std::abs(value));
  }
  health.sum = butterfly(sums);
  health.sum_sq = butterfly(squares);
  return health;
}

class HealthSums : public testing::TestWithParam<Format> {
 protected:
  /// A row of one tile, `offset` elements from a multiple of 64 bytes, on every instruction set of this machine.
  void expect_exact(const std::vector<std::uint32_t>& codes, std::size_t offset, const char* what) {
    const std::size_t bytes = info(GetParam()).storage_bytes();
    alignas(64) std::array<std::byte, 4096> memory{};
    ASSERT_LE((codes.size() + offset) * bytes, memory.size());
    for (std::size_t i = 0; i < codes.size(); ++i) std::memcpy(&memory[(i + offset) * bytes], &codes[i], bytes);
    const Health expected = expected_health(GetParam(), codes);
    for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
      const auto device = make_cpu_device(isa, 1);
      if (!device) continue;
      Health found;
      HealthScanArgs args;
      const auto columns = static_cast<std::int64_t>(codes.size());
      args.x = {memory.data() + offset * bytes, GetParam(), 1, columns, columns};
      args.tiles = &found;
      ASSERT_TRUE((*device)->launch(args));
      ASSERT_TRUE((*device)->synchronize());
      EXPECT_EQ(std::memcmp(&found, &expected, sizeof expected), 0)
          << (*device)->info().isa << ", " << codes.size() << " columns, " << what << ": sums " << found.sum << " "
          << found.sum_sq << ", not " << expected.sum << " " << expected.sum_sq << "; min " << found.min << " max "
          << found.max << " absmax " << found.absmax << " zero " << found.zero << " subnormal " << found.subnormal
          << " saturated " << found.saturated << " bad " << found.bad();
    }
  }

  /// Any finite code, of either sign.
  std::uint32_t finite_code() {
    for (;;) {
      const auto code = static_cast<std::uint32_t>(random_() >> 33) & mask();
      if (std::isfinite(decode(GetParam(), code))) return code;
    }
  }
  std::uint32_t mask() const { return 0xffffffffU >> (32 - info(GetParam()).bits); }
  std::uint32_t sign() const { return 1U << (info(GetParam()).bits - 1); }
  std::uint32_t normal_code() {
    for (;;) {
      const std::uint32_t code = finite_code();
      const float magnitude = std::abs(decode(GetParam(), code));
      if (magnitude >= info(GetParam()).min_normal && magnitude < info(GetParam()).max_finite) return code;
    }
  }

  std::mt19937_64 random_{17};
};

TEST_P(HealthSums, AreThoseOfTheDefinition) {
  const FormatInfo& of = info(GetParam());
  const std::uint32_t infinite = of.max_finite_code + 1;
  for (const std::size_t columns : {1U, 31U, 32U, 33U, 64U, 77U, 96U, 480U, 512U}) {
    for (const std::size_t offset : {0U, 1U, 3U}) {
      std::vector<std::uint32_t> codes(columns);
      const auto with = [&](const char* what, auto&& code) {
        for (std::size_t i = 0; i < columns; ++i) codes[i] = code(i);
        expect_exact(codes, offset, what);
      };
      const std::size_t one = random_() % columns;
      with("normal numbers", [&](std::size_t) { return normal_code(); });
      with("finite numbers", [&](std::size_t) { return finite_code(); });
      with("positive ones", [&](std::size_t) { return finite_code() & ~sign(); });
      with("negative ones", [&](std::size_t) { return finite_code() | sign(); });
      with("zeros of both signs", [&](std::size_t i) { return i % 3 == 0 ? sign() : 0U; });
      with("negative zeros", [&](std::size_t) { return sign(); });
      with("one zero", [&](std::size_t i) { return i == one ? 0U : normal_code(); });
      with("one subnormal", [&](std::size_t i) { return i == one ? sign() | 1U : normal_code(); });
      with("largest values", [&](std::size_t i) {
        return i % 5 == one % 5 ? of.max_finite_code | (i % 2 == 0 ? sign() : 0U) : normal_code();
      });
      with("one Inf", [&](std::size_t i) { return i == one ? infinite : normal_code(); });
      with("one -Inf", [&](std::size_t i) { return i == one ? infinite | sign() : normal_code(); });
      with("one NaN", [&](std::size_t i) { return i == one ? infinite + 1 : finite_code(); });
      with("one NaN with a sign", [&](std::size_t i) { return i == one ? mask() : finite_code(); });
      with("nothing finite", [&](std::size_t i) { return i % 2 == 0 ? infinite : infinite + 1; });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, HealthSums, testing::Values(Format::f32, Format::f16, Format::bf16),
                         [](const auto& of) { return std::string(name(of.param)); });

}  // namespace
}  // namespace nanscope::kernels
