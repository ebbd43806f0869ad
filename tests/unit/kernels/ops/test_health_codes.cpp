// Health of formats with at most 256 codes: sums are exact, rounded once, whatever the instruction set, the order of
// the codes and their place in memory. The oracle adds integers of 128 bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "core/numbers/codec.h"
#include "kernels/ops/health_scan.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels {
namespace {

__extension__ using Wide = __int128;

/// Binary places of the format's smallest magnitude.
int places(Format format) {
  const FormatInfo& of = info(format);
  return -std::ilogb(of.min_subnormal > 0 ? of.min_subnormal : of.min_normal);
}

/// One code after the other. Every value is a multiple of the smallest one, and every square of its square.
Health expected_health(Format format, std::span<const std::uint8_t> codes) {
  const FormatInfo& of = info(format);
  const int shift = places(format);
  Health health = empty_health();
  Wide sum = 0;
  Wide squares = 0;
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
    const auto units = static_cast<std::int64_t>(std::ldexp(value, shift));
    sum += units;
    squares += static_cast<Wide>(units) * units;
    health.saturated += std::abs(value) >= of.max_finite ? 1U : 0U;
    health.zero += value == 0 ? 1U : 0U;
    health.subnormal += value != 0 && std::abs(value) < of.min_normal ? 1U : 0U;
    // A zero counts as +0.
    health.min = std::min(health.min, value + 0.0F);
    health.max = std::max(health.max, value + 0.0F);
    health.absmax = std::max(health.absmax, std::abs(value));
  }
  // The conversion of a whole number to double rounds to nearest even, once.
  health.sum = std::ldexp(static_cast<double>(sum), -shift);
  health.sum_sq = std::ldexp(static_cast<double>(squares), -2 * shift);
  return health;
}

std::vector<std::unique_ptr<Device>> devices() {
  std::vector<std::unique_ptr<Device>> found;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (auto device = make_cpu_device(isa, 1)) found.push_back(*std::move(device));
  }
  return found;
}

class HealthCodes : public testing::TestWithParam<Format> {
 protected:
  /// Rows of one tile each and no gap, `offset` bytes from a multiple of 64.
  void expect_exact(const std::vector<std::uint8_t>& codes, std::size_t columns, std::size_t offset) {
    alignas(64) static std::uint8_t memory[1 << 20];
    ASSERT_LE(codes.size() + offset, sizeof memory);
    std::memcpy(memory + offset, codes.data(), codes.size());
    const std::size_t rows = codes.size() / columns;
    for (const auto& device : devices_) {
      for (const bool sums : {true, false}) {
        std::vector<Health> tiles(rows);
        const HealthScanArgs args{.x = {memory + offset, GetParam(), static_cast<std::int64_t>(rows),
                                        static_cast<std::int64_t>(columns), static_cast<std::int64_t>(columns)},
                                  .source = {},
                                  .source_scales = {},
                                  .tiles = tiles.data(),
                                  .sums = sums};
        ASSERT_TRUE(device->launch(args));
        ASSERT_TRUE(device->synchronize());
        for (std::size_t row = 0; row < rows; ++row) {
          Health expected = expected_health(GetParam(), std::span(codes).subspan(row * columns, columns));
          if (expected.first_bad >= 0) expected.first_bad += static_cast<std::int64_t>(row * columns);
          if (!sums) {
            EXPECT_TRUE(std::isnan(tiles[row].sum) && std::isnan(tiles[row].sum_sq));
            tiles[row].sum = expected.sum;
            tiles[row].sum_sq = expected.sum_sq;
          }
          EXPECT_EQ(std::memcmp(&tiles[row], &expected, sizeof expected), 0)
              << device->info().isa << " row " << row << " of " << columns << " columns: sums " << tiles[row].sum << " "
              << tiles[row].sum_sq << ", not " << expected.sum << " " << expected.sum_sq << "; min " << tiles[row].min
              << " max " << tiles[row].max << " zero " << tiles[row].zero << " subnormal " << tiles[row].subnormal
              << " saturated " << tiles[row].saturated;
        }
      }
    }
  }

  /// Tiles of `width` columns of a tensor without gaps that holds the first `period` codes again and again, with the
  /// f32 that it was cast from.
  std::vector<Health> expected_tiles(std::span<const std::uint8_t> codes, std::span<const float> source,
                                     std::size_t width, std::size_t period) const {
    std::vector<Health> expected;
    for (std::size_t at = 0; at < codes.size(); at += width) {
      if (at >= period) {
        expected.push_back(expected[(at - period) / width]);
        if (expected.back().first_bad >= 0) expected.back().first_bad += static_cast<std::int64_t>(period);
        continue;
      }
      Health health = expected_health(GetParam(), codes.subspan(at, width));
      if (health.first_bad >= 0) health.first_bad += static_cast<std::int64_t>(at);
      for (std::size_t i = at; i < at + width; ++i) {
        const bool something = source[i] != 0 && !std::isnan(source[i]);
        health.flushed += decode(GetParam(), codes[i]) == 0 && something ? 1U : 0U;
        health.clipped += std::abs(source[i]) > info(GetParam()).max_finite ? 1U : 0U;
      }
      expected.push_back(health);
    }
    return expected;
  }
  /// In the launch that hashes the tensor too, and in one that does not.
  void expect_tiles(std::vector<std::uint8_t>& codes, std::vector<float>& source, std::int64_t columns,
                    const std::vector<Health>& expected) {
    const auto rows = static_cast<std::int64_t>(codes.size()) / columns;
    HealthScanArgs args;
    args.x = {codes.data(), GetParam(), rows, columns, columns};
    args.source = {source.data(), Format::f32, rows, columns, columns};
    for (const auto& device : devices_) {
      std::vector<Health> tiles(expected.size());
      std::vector<std::uint64_t> chunks(static_cast<std::size_t>(hash_chunks(args.x)));
      std::vector<std::uint64_t> hashed(chunks.size());
      args.tiles = tiles.data();
      args.chunks = chunks.data();
      ASSERT_TRUE(device->launch(args) && device->launch(ContentHashArgs{args.x, hashed.data()}));
      ASSERT_TRUE(device->synchronize());
      EXPECT_EQ(chunks, hashed) << device->info().isa;
      for (std::size_t tile = 0; tile < tiles.size(); ++tile) {
        ASSERT_EQ(std::memcmp(&tiles[tile], &expected[tile], sizeof(Health)), 0)
            << device->info().isa << " tile " << tile << " of " << columns << " columns: sums " << tiles[tile].sum
            << " " << tiles[tile].sum_sq << ", not " << expected[tile].sum << " " << expected[tile].sum_sq
            << "; flushed " << tiles[tile].flushed << ", not " << expected[tile].flushed;
      }
      std::vector<Health> unhashed(expected.size());
      args.tiles = unhashed.data();
      args.chunks = nullptr;
      ASSERT_TRUE(device->launch(args) && device->synchronize());
      EXPECT_EQ(std::memcmp(unhashed.data(), tiles.data(), tiles.size() * sizeof(Health)), 0) << device->info().isa;
    }
  }

  std::uint8_t next_code() {
    const auto bits = static_cast<std::uint32_t>(static_cast<std::int32_t>(sequence_.next() * 0x1p22F));
    return static_cast<std::uint8_t>(bits >> 3 & ((1U << info(GetParam()).bits) - 1U));
  }
  bool finite(std::uint8_t code) const { return std::isfinite(decode(GetParam(), code)); }

  cases::Sequence sequence_{91};
  std::vector<std::unique_ptr<Device>> devices_ = devices();
};

TEST_P(HealthCodes, SumsOfRandomCodesAreExact) {
  for (const std::size_t columns : {1U, 2U, 31U, 32U, 33U, 64U, 100U, 127U, 128U, 160U, 255U, 480U, 511U, 512U}) {
    std::vector<std::uint8_t> codes(columns * 40);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      do codes[i] = next_code();
      while (!finite(codes[i]) && i / columns % 8 != 7);  // every eighth row may hold NaN and Inf
    }
    for (const std::size_t offset : {0U, 1U, 4U}) expect_exact(codes, columns, offset);
  }
}

/// The largest sums of products that any path adds up, ranges of one sign, and nothing but zeros or subnormals.
TEST_P(HealthCodes, SumsOfOneCodeAreExact) {
  const int all = 1 << info(GetParam()).bits;
  for (const std::size_t columns : {512U, 77U}) {
    std::vector<std::uint8_t> codes;
    for (int code = 0; code < all; ++code) codes.insert(codes.end(), columns, static_cast<std::uint8_t>(code));
    expect_exact(codes, columns, 0);
  }
}

/// Pairs of codes that meet in the same registers with both signs.
TEST_P(HealthCodes, SumsOfTwoCodesAreExact) {
  const int all = 1 << info(GetParam()).bits;
  for (int first = 0; first < all; first += 5) {
    std::vector<std::uint8_t> codes;
    for (int second = 0; second < all; ++second) {
      if (!finite(static_cast<std::uint8_t>(second))) continue;
      for (int i = 0; i < 96; ++i) codes.push_back(static_cast<std::uint8_t>(i % 3 == 0 ? first : second));
    }
    expect_exact(codes, 96, 0);
  }
}

/// Rows of one code, a few above it and some far below, so that sums of squares have a few bits more than f64: what is
/// rounded twice shows.
TEST_P(HealthCodes, SumsAreRoundedOnce) {
  constexpr std::size_t kColumns = 512;
  const auto sign = static_cast<std::uint8_t>(1 << (info(GetParam()).bits - 1));
  const int largest = static_cast<int>(info(GetParam()).max_finite_code & (sign - 1U));
  std::vector<std::uint8_t> codes;
  for (int code = 7; code <= largest; code += 8) {
    for (std::size_t i = 0; i < 100 * kColumns; ++i) {
      const std::uint8_t any = next_code();
      const int above = std::min(code + 1 + any % 24, largest);
      const int below = any % (code / 2 + 1);
      const int magnitude = i % kColumns < i / kColumns % 4 ? above : i % 8 == any % 8 ? below : code;
      codes.push_back(static_cast<std::uint8_t>(magnitude | (any & sign)));
    }
  }
  expect_exact(codes, kColumns, 0);
}

/// Few zeros and subnormals among ordinary values, as caches hold them.
TEST_P(HealthCodes, ZerosAndSubnormalsAmongOrdinaryValues) {
  std::vector<std::uint8_t> codes(512 * 64);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const float bell = (sequence_.next() + sequence_.next() + sequence_.next()) * info(GetParam()).max_finite / 4;
    const float value = i % 64 == 7 ? 0.0F : i % 64 == 30 ? -info(GetParam()).min_normal / 2 : bell;
    codes[i] = static_cast<std::uint8_t>(encode(GetParam(), value, Overflow::saturate));
  }
  expect_exact(codes, 512, 0);
}

/// A tensor large enough to be scanned and hashed by the same warps, tiles of 256 columns and of 512, each of another
/// kind: what one tile holds must not show in the next.
TEST_P(HealthCodes, TilesOfALargeTensorThatIsHashed) {
  const auto sign = static_cast<std::uint8_t>(1 << (info(GetParam()).bits - 1));
  constexpr std::size_t kPeriod = 7 * 8192;
  std::vector<std::uint8_t> codes(37 * kPeriod);
  std::vector<float> source(codes.size());
  for (std::size_t i = 0; i < kPeriod; ++i) {
    const std::size_t kind = i / 256 % 7;
    const auto wanted = [&](std::uint8_t code) {
      if (kind == 1) return true;  // NaN and Inf too
      return finite(code) && (kind != 2 || code < sign) && (kind != 3 || code >= sign);
    };
    do codes[i] = next_code();
    while (!wanted(codes[i]));
    if (kind == 4 && i % 5 == 0) codes[i] = 0;
    if (kind == 5 && i % 3 == 0) codes[i] = static_cast<std::uint8_t>(info(GetParam()).max_finite_code);
    source[i] = i % 8 == 1 ? 1.0F : i % 16 == 2 ? -2e9F : i % 32 == 3 ? NAN : 0.0F;
  }
  for (std::size_t i = kPeriod; i < codes.size(); ++i) {
    codes[i] = codes[i - kPeriod];
    source[i] = source[i - kPeriod];
  }
  for (const std::int64_t columns : {256, 1024}) {
    const auto width = static_cast<std::size_t>(std::min(columns, kTileChannels));
    expect_tiles(codes, source, columns, expected_tiles(codes, source, width, kPeriod));
  }
}

/// Four tiles that are put together, of which the first begins with one exponent and the others hold another: all of
/// it with one sign, which gives the largest sums; mixed; and once in a tile.
TEST_P(HealthCodes, TilesOfTwoExponents) {
  constexpr std::size_t kTile = 512;
  const auto sign = static_cast<std::uint8_t>(1 << (info(GetParam()).bits - 1));
  const auto largest = static_cast<std::uint8_t>(info(GetParam()).max_finite_code & (sign - 1U));
  const auto code_of = [&](std::size_t exponent, std::size_t low, bool negative) {
    const auto magnitude = static_cast<std::uint8_t>(std::min<std::size_t>(exponent << 3 | low, largest));
    return static_cast<std::uint8_t>(magnitude | (negative ? sign : 0));
  };
  std::vector<std::uint8_t> codes;
  for (std::size_t first = 0; first < 16; ++first) {
    for (std::size_t other = 0; other < 16; ++other) {
      for (std::size_t i = 0; i < 4 * kTile; ++i) {
        const std::size_t at = i % kTile;
        const bool any = next_code() % 2 == 0;
        switch (i / kTile) {
          case 0:
            codes.push_back(code_of(first, at % 8, any));
            break;
          case 1:
            codes.push_back(code_of(other, 7, other % 2 == 0));
            break;
          case 2:
            codes.push_back(code_of(any ? first : other, at / 2 % 8, at % 2 == 0));
            break;
          default:
            codes.push_back(code_of(at == other * 30 ? other : first, other % 8, any));
        }
      }
    }
  }
  const std::size_t period = codes.size();
  for (std::size_t i = 0; i < 4 * period; ++i) codes.push_back(codes[i]);
  std::vector<float> source(codes.size(), 0.0F);
  for (const std::int64_t columns : {256, 512}) {
    expect_tiles(codes, source, columns, expected_tiles(codes, source, static_cast<std::size_t>(columns), period));
  }
}

INSTANTIATE_TEST_SUITE_P(All, HealthCodes,
                         testing::Values(Format::e4m3, Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz, Format::e3m2,
                                         Format::e2m3, Format::e2m1, Format::int8),
                         [](const testing::TestParamInfo<Format>& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace nanscope::kernels
