// Health, argmax and absmax against plain loops that know nothing of lanes or tiles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/numbers/codec.h"
#include "kernels/health.h"
#include "kernels/ops/absmax.h"
#include "kernels/ops/argmax.h"
#include "kernels/ops/content_hash.h"
#include "kernels/ops/health_scan.h"
#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels {
namespace {

using test::Floats;
using test::Indices;
using test::kInf;
using test::kNan;

/// Codes of any format in memory of their width.
struct Coded {
  Format format;
  std::int64_t rows;
  std::int64_t columns;
  std::vector<std::uint32_t> codes;
  std::vector<std::byte> bytes;

  Coded(Format f, std::int64_t r, std::int64_t c, std::vector<std::uint32_t> values)
      : format(f), rows(r), columns(c), codes(std::move(values)) {
    const std::size_t element = info(f).storage_bytes();
    bytes.resize(codes.size() * element);
    for (std::size_t i = 0; i < codes.size(); ++i) std::memcpy(&bytes[i * element], &codes[i], element);
  }
  TensorView view() { return {bytes.data(), format, rows, columns, columns}; }
};

std::vector<Health> scan(Coded& x, Floats* source = nullptr, float scale = 1.0F, bool sums = true) {
  const std::int64_t tiles_per_row = (x.columns + kTileChannels - 1) / kTileChannels;
  std::vector<Health> tiles(static_cast<std::size_t>(x.rows * tiles_per_row));
  Floats scales(1, 1, scale);
  HealthScanArgs args;
  args.x = x.view();
  if (source != nullptr) {
    args.source = source->view();
    args.source_scales = scales.view();
  }
  args.tiles = tiles.data();
  args.sums = sums;
  test::launch(args);
  return tiles;
}

TEST(HealthScan, GroupsOfColumnsHaveScalesOfTheirOwn) {
  // Groups that are narrower than 32 columns, as wide, and wider than a tile.
  for (const std::int64_t width : {5, 16, 32, 700}) {
    constexpr std::int64_t kGroups = 3;
    const std::int64_t columns = kGroups * width;
    Floats source(2, columns, 0.0F);
    Floats scales(1, kGroups, 0.0F);
    std::vector<std::uint32_t> codes;
    std::uint64_t clipped = 0;
    std::uint64_t flushed = 0;
    for (std::int64_t i = 0; i < 2 * columns; ++i) {
      const std::int64_t group = i % columns / width;
      const float scale = std::ldexp(1.0F, static_cast<int>(4 * group) - 4);
      scales.data[static_cast<std::size_t>(group)] = scale;
      const float value = std::ldexp(1.0F, static_cast<int>(i % 29) - 9) * 1.1F;
      source.data[static_cast<std::size_t>(i)] = value;
      const std::uint32_t code = encode(Format::e4m3, value / scale, Overflow::saturate);
      codes.push_back(code);
      clipped += value / scale > 448 ? 1U : 0U;
      flushed += decode(Format::e4m3, code) == 0 ? 1U : 0U;
    }
    Coded x(Format::e4m3, 2, columns, codes);
    std::vector<Health> tiles(static_cast<std::size_t>(2 * ((columns + kTileChannels - 1) / kTileChannels)));
    test::launch(
        HealthScanArgs{.x = x.view(), .source = source.view(), .source_scales = scales.view(), .tiles = tiles.data()});
    Health all;
    for (const Health& tile : tiles) {
      all.clipped += tile.clipped;
      all.flushed += tile.flushed;
    }
    ASSERT_GT(clipped, 0U);
    EXPECT_EQ(all.clipped, clipped) << width;
    EXPECT_EQ(all.flushed, flushed) << width;
  }
}

/// A scan that takes no sums tells all but the sums, and that it took none.
void expect_same_without_sums(Coded& x, std::span<const Health> tiles) {
  std::vector<Health> found = scan(x, nullptr, 1.0F, false);
  ASSERT_EQ(found.size(), tiles.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(std::isnan(found[i].sum) && std::isnan(found[i].sum_sq));
    found[i].sum = tiles[i].sum;
    found[i].sum_sq = tiles[i].sum_sq;
    EXPECT_EQ(std::memcmp(&found[i], &tiles[i], sizeof(Health)), 0) << "tile " << i;
  }
}

/// One element after the other, in row-major order, from the format table and the scalar decoder.
void count(Health& health, const FormatInfo& format, std::uint32_t code, std::int64_t index) {
  const float value = decode(format.format, code);
  ++health.count;
  if (std::isnan(value)) ++health.nan;
  if (value == kInf) ++health.pos_inf;
  if (value == -kInf) ++health.neg_inf;
  if (!std::isfinite(value)) {
    if (health.first_bad < 0) health.first_bad = index;
    return;
  }
  if (std::abs(value) >= format.max_finite) ++health.saturated;
  if (value == 0.0F) ++health.zero;
  if (value != 0.0F && std::abs(value) < format.min_normal) ++health.subnormal;
  health.sum += static_cast<double>(value);
  health.sum_sq += static_cast<double>(value) * static_cast<double>(value);
  health.min = std::min(health.min, value);
  health.max = std::max(health.max, value);
  health.absmax = std::max(health.absmax, std::abs(value));
}

void expect_same(const Health& found, const Health& expected) {
  EXPECT_EQ(found.count, expected.count);
  EXPECT_EQ(found.nan, expected.nan);
  EXPECT_EQ(found.pos_inf, expected.pos_inf);
  EXPECT_EQ(found.neg_inf, expected.neg_inf);
  EXPECT_EQ(found.saturated, expected.saturated);
  EXPECT_EQ(found.subnormal, expected.subnormal);
  EXPECT_EQ(found.zero, expected.zero);
  EXPECT_EQ(found.flushed, expected.flushed);
  EXPECT_EQ(found.clipped, expected.clipped);
  EXPECT_EQ(found.first_bad, expected.first_bad);
  EXPECT_EQ(found.min, expected.min);
  EXPECT_EQ(found.max, expected.max);
  EXPECT_EQ(found.absmax, expected.absmax);
  EXPECT_EQ(found.reserved, 0U);
  const double magnitude = std::sqrt(expected.sum_sq * static_cast<double>(expected.count));
  const double rounding = static_cast<double>(expected.count) * 0x1p-52;  // of either order of the sums
  EXPECT_NEAR(found.sum, expected.sum, magnitude * rounding);
  EXPECT_NEAR(found.sum_sq, expected.sum_sq, expected.sum_sq * rounding);
}

class HealthScanFormats : public testing::TestWithParam<Format> {};

TEST_P(HealthScanFormats, CountsWhatAPlainLoopCounts) {
  const Format format = GetParam();
  for (const cases::Fill fill : {cases::Fill::ordinary, cases::Fill::zoo}) {
    for (const std::int64_t columns : {1, 31, 32, 511, 512, 513, 2000}) {
      const std::int64_t rows = 30;
      Coded x(format, rows, columns, cases::fill(fill, format, rows, columns, 71));
      const auto tiles = scan(x);
      const std::int64_t tiles_per_row = (columns + kTileChannels - 1) / kTileChannels;
      for (std::size_t tile = 0; tile < tiles.size(); ++tile) {
        const std::int64_t row = static_cast<std::int64_t>(tile) / tiles_per_row;
        const std::int64_t first = static_cast<std::int64_t>(tile) % tiles_per_row * kTileChannels;
        Health expected = empty_health();
        for (std::int64_t i = first; i < std::min(columns, first + kTileChannels); ++i) {
          count(expected, info(format), x.codes[static_cast<std::size_t>(row * columns + i)], row * columns + i);
        }
        SCOPED_TRACE(testing::Message() << name(format) << " columns " << columns << " tile " << tile);
        expect_same(tiles[tile], expected);
      }
      SCOPED_TRACE(testing::Message() << name(format) << " columns " << columns);
      expect_same_without_sums(x, tiles);
    }
  }
}

/// Of formats wider than 16 bits, every code of the upper 16, the lower ones mixed.
TEST_P(HealthScanFormats, SeesEveryCode) {
  const FormatInfo& format = info(GetParam());
  std::vector<std::uint32_t> codes(std::size_t{1} << std::min<int>(format.bits, 16));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto code = static_cast<std::uint32_t>(i);
    codes[i] = format.bits > 16 ? code << 16 | ((code * 40503U) & 0xffffU) : code;
  }
  const auto columns = static_cast<std::int64_t>(codes.size());
  Coded x(format.format, 1, columns, codes);
  Health expected = empty_health();
  for (std::size_t i = 0; i < codes.size(); ++i) count(expected, format, codes[i], static_cast<std::int64_t>(i));
  const auto tiles = scan(x);
  expect_same(summarize(tiles, 1, static_cast<std::int64_t>(tiles.size())).tensor, expected);
  expect_same_without_sums(x, tiles);
}

INSTANTIATE_TEST_SUITE_P(All, HealthScanFormats,
                         testing::Values(Format::f32, Format::f16, Format::bf16, Format::e4m3, Format::e5m2,
                                         Format::e4m3fnuz, Format::e5m2fnuz, Format::e3m2, Format::e2m3, Format::e2m1,
                                         Format::e8m0, Format::int8, Format::i32),
                         [](const testing::TestParamInfo<Format>& info) { return std::string(name(info.param)); });

TEST(HealthScan, OneNanInAMillionIsSeenWhereverItStands) {
  const std::int64_t rows = 64;
  const std::int64_t columns = 4096;
  for (const std::int64_t at : {0L, 1L, 31L, 32L, 4095L, 4096L, 131071L, rows * columns - 1}) {
    Coded x(Format::f32, rows, columns, cases::fill(cases::Fill::ordinary, Format::f32, rows, columns, 72));
    const std::uint32_t payload = at % 2 == 0 ? 0x7f800001U : 0xff800000U;
    std::memcpy(&x.bytes[static_cast<std::size_t>(at) * 4], &payload, 4);
    const std::vector<Health> tiles = scan(x);
    expect_same_without_sums(x, tiles);
    const HealthSummary summary = summarize(tiles, rows, columns / kTileChannels);
    EXPECT_EQ(summary.tensor.first_bad, at);
    EXPECT_EQ(summary.tensor.bad(), 1U);
    EXPECT_EQ(summary.rows[static_cast<std::size_t>(at / columns)].first_bad, at);
    EXPECT_EQ(summary.rows[static_cast<std::size_t>((at / columns + 1) % rows)].first_bad, -1);
  }
}

TEST(HealthScan, AllNanHasNoRange) {
  Coded x(Format::f32, 1, 40, std::vector<std::uint32_t>(40, 0xffc00000U));
  const Health found = scan(x)[0];
  EXPECT_EQ(found.nan, 40U);
  EXPECT_EQ(found.min, kInf);
  EXPECT_EQ(found.max, -kInf);
  EXPECT_EQ(found.absmax, 0.0F);
  EXPECT_EQ(found.sum, 0.0);
}

TEST(HealthScan, ZerosOfBothSignsAreReportedAsPlusZero) {
  for (const bool negative_first : {false, true}) {
    std::vector<std::uint32_t> codes(64, 0U);
    for (std::size_t i = negative_first ? 0 : 1; i < 64; i += 2) codes[i] = 0x80000000U;
    Coded x(Format::f32, 1, 64, codes);
    const Health found = scan(x)[0];
    EXPECT_EQ(found.zero, 64U);
    EXPECT_EQ(test::bits(found.min), 0U);
    EXPECT_EQ(test::bits(found.max), 0U);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(found.sum), 0U);
  }
}

TEST(HealthScan, FlushedAndClippedComeFromTheSource) {
  // In units of the scale 0.5: 448 is the largest e4m3, 2^-9 the smallest.
  const std::vector<float> values = {224.0F, 224.5F, -300.0F, kInf, 1e-6F, -1e-6F, 0.0F, kNan, 1.0F};
  std::vector<std::uint32_t> codes;
  for (const float v : values) codes.push_back(encode(Format::e4m3, v / 0.5F, Overflow::saturate));
  Coded x(Format::e4m3, 1, static_cast<std::int64_t>(values.size()), codes);
  Floats source(1, x.columns, values);
  const Health found = scan(x, &source, 0.5F)[0];
  EXPECT_EQ(found.clipped, 3U) << "224.5, -300 and Inf; 224 / 0.5 is exactly the largest";
  EXPECT_EQ(found.saturated, 4U);
  EXPECT_EQ(found.flushed, 2U);
  EXPECT_EQ(found.zero, 3U);
  EXPECT_EQ(found.nan, 1U);
}

/// One launch that scans and hashes, against a launch for each.
void expect_one_pass_agrees(Coded& x, std::int64_t rows, std::size_t offset, std::int64_t stride) {
  TensorView view{x.bytes.data() + offset, x.format, rows, x.columns, stride};
  const std::int64_t tiles_per_row = (x.columns + kTileChannels - 1) / kTileChannels;
  std::vector<Health> expected(static_cast<std::size_t>(rows * tiles_per_row));
  std::vector<std::uint64_t> expected_chunks(static_cast<std::size_t>(hash_chunks(view)));
  HealthScanArgs args;
  args.x = view;
  args.tiles = expected.data();
  test::launch(args);
  test::launch(ContentHashArgs{view, expected_chunks.data()});
  std::vector<Health> found(expected.size() + 1);
  std::vector<std::uint64_t> chunks(expected_chunks.size() + 1, 7);
  args.tiles = found.data();
  args.chunks = chunks.data();
  test::launch(args);
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), expected.size() * sizeof(Health)), 0);
  EXPECT_EQ(found.back().count, 0U) << "wrote beyond the last tile";
  EXPECT_EQ(chunks.back(), 7U) << "wrote beyond the last chunk";
  chunks.pop_back();
  EXPECT_EQ(chunks, expected_chunks);
}

/// Around 256 chunks, from where one warp does both, of shapes that share borders with chunks and that do not.
TEST(HealthScan, HashOfTheSameLaunchIsTheHash) {
  for (const Format format : {Format::f32, Format::f16, Format::e4m3, Format::e2m1}) {
    const auto element = static_cast<std::int64_t>(info(format).storage_bytes());
    for (const std::int64_t columns : {32, 64, 96, 128, 256, 384, 512, 1000, 1024, 1536, 4096}) {
      for (const std::int64_t bytes : {100 * kHashChunk, 256 * kHashChunk - 1, 256 * kHashChunk + 1}) {
        const std::int64_t rows = (bytes + columns * element - 1) / (columns * element);
        Coded x(format, rows + 1, columns, cases::fill(cases::Fill::zoo, format, rows + 1, columns, 78));
        SCOPED_TRACE(testing::Message() << name(format) << " " << rows << " x " << columns);
        expect_one_pass_agrees(x, rows, 0, columns);
        expect_one_pass_agrees(x, rows, static_cast<std::size_t>(element), columns);
        expect_one_pass_agrees(x, rows / 2, 0, 2 * columns);
      }
    }
  }
}

TEST(HealthScan, HashOfLargeRowsWithGapsLeavesThemOut) {
  Coded x(Format::f32, 2200, 512, cases::fill(cases::Fill::ordinary, Format::f32, 2200, 512, 79));
  expect_one_pass_agrees(x, 1100, 0, 1024);
}

TEST(HealthSummary, MergesTilesInOrder) {
  Coded x(Format::f32, 7, 1000, cases::fill(cases::Fill::zoo, Format::f32, 7, 1000, 73));
  const auto tiles = scan(x);
  const HealthSummary summary = summarize(tiles, 7, static_cast<std::int64_t>(tiles.size()) / 7);
  Health all = empty_health();
  ASSERT_EQ(summary.rows.size(), 7U);
  for (std::size_t row = 0; row < 7; ++row) {
    Health expected = empty_health();
    for (std::int64_t i = 0; i < 1000; ++i) {
      const auto at = static_cast<std::int64_t>(row) * 1000 + i;
      count(expected, info(Format::f32), x.codes[static_cast<std::size_t>(at)], at);
      count(all, info(Format::f32), x.codes[static_cast<std::size_t>(at)], at);
    }
    expect_same(summary.rows[row], expected);
  }
  expect_same(summary.tensor, all);
  EXPECT_EQ(summarize({}, 0, 1).tensor.count, 0U);
}

// ---- Argmax ----

std::int32_t argmax(Floats x, ArgmaxNan rule) {
  Indices out(1, 1);
  ArgmaxArgs args;
  args.x = x.view();
  args.out = out.view();
  args.nan = rule;
  test::launch(args);
  return out.at(0, 0);
}

/// The sampler's loop: best = 0, then strictly greater wins.
std::int32_t sampler(const Floats& x) {
  std::int32_t best = 0;
  for (std::int64_t i = 1; i < x.columns; ++i) {
    if (x.at(0, i) > x.at(0, best)) best = static_cast<std::int32_t>(i);
  }
  return best;
}

TEST(Argmax, FirstGreaterIsTheSamplersLoop) {
  cases::Sequence sequence(74);
  for (int round = 0; round < 400; ++round) {
    const std::int64_t columns = 1 + round * 7 % 200;
    Floats x(1, columns);
    for (float& v : x.data) {
      const float draw = sequence.next();
      v = draw > 0.9F ? kNan : draw > 0.8F ? kInf : draw < -0.7F ? -kInf : std::round(draw * 8.0F);
    }
    EXPECT_EQ(argmax(x, ArgmaxNan::first_greater), sampler(x)) << "round " << round;
  }
}

TEST(Argmax, AnAllNanRowAnswersZeroItselfOrRefuses) {
  const Floats x(1, 77, kNan);
  EXPECT_EQ(argmax(x, ArgmaxNan::first_greater), 0);
  EXPECT_EQ(argmax(x, ArgmaxNan::propagate), 0);
  EXPECT_EQ(argmax(x, ArgmaxNan::refuse), -1);
}

TEST(Argmax, OneNan) {
  Floats x = test::random_floats(1, 77, 75);
  x.at(0, 40) = 9.0F;
  x.at(0, 50) = test::from_bits(0xff800001U);
  EXPECT_EQ(argmax(x, ArgmaxNan::first_greater), 40);
  EXPECT_EQ(argmax(x, ArgmaxNan::propagate), 50);
  EXPECT_EQ(argmax(x, ArgmaxNan::refuse), -1);
  x.at(0, 0) = kNan;
  EXPECT_EQ(argmax(x, ArgmaxNan::first_greater), 0) << "nothing is greater than NaN";
}

TEST(Argmax, TiesGoToTheLowestIndex) {
  for (const ArgmaxNan rule : {ArgmaxNan::first_greater, ArgmaxNan::propagate, ArgmaxNan::refuse}) {
    EXPECT_EQ(argmax(Floats(1, 100, 2.0F), rule), 0);
    EXPECT_EQ(argmax(Floats(1, 100, -kInf), rule), 0);
    EXPECT_EQ(argmax(Floats(1, 3, {-0.0F, 0.0F, -1.0F}), rule), 0);
  }
}

// ---- Absmax ----

TEST(Absmax, PerRowAndPerTensorWithBothNanRules) {
  Floats x = test::random_floats(5, 77, 76, 3.0F);
  x.at(3, 70) = -9.5F;
  x.at(1, 2) = test::from_bits(0xffc00001U);
  for (const NanRule rule : {NanRule::propagate, NanRule::ignore}) {
    Floats rows(5, 1);
    Floats whole(1, 1);
    AbsmaxArgs args;
    args.x = x.view();
    args.nan = rule;
    args.out = rows.view();
    test::launch(args);
    args.out = whole.view();
    test::launch(args);
    for (std::int64_t row = 0; row < 5; ++row) {
      float expected = 0;
      for (std::int64_t i = 0; i < 77; ++i) expected = std::fmax(expected, std::abs(x.at(row, i)));
      if (row == 1 && rule == NanRule::propagate) {
        EXPECT_EQ(test::bits(rows.at(row, 0)), test::kCanonical);
      } else {
        EXPECT_EQ(rows.at(row, 0), expected);
      }
    }
    EXPECT_EQ(test::bits(whole.at(0, 0)), rule == NanRule::propagate ? test::kCanonical : test::bits(9.5F));
  }
}

TEST(Absmax, NothingButNan) {
  Floats x(1, 40, kNan);
  Floats out(1, 1);
  AbsmaxArgs args;
  args.x = x.view();
  args.out = out.view();
  args.nan = NanRule::ignore;
  test::launch(args);
  EXPECT_EQ(out.at(0, 0), 0.0F);
}

}  // namespace
}  // namespace nanscope::kernels
