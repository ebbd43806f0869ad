#include "core/blocks/block_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/blocks/block_element.h"
#include "core/blocks/block_elements.h"
#include "core/blocks/block_loops.h"
#include "core/blocks/block_packing.h"
#include "core/blocks/presets.h"
#include "core/numbers/decode_span.h"

namespace nanscope {
namespace {

constexpr Format kElements[] = {Format::e4m3, Format::e5m2, Format::e3m2, Format::e2m3, Format::e2m1, Format::int8};
constexpr Ties kTies[] = {Ties::even, Ties::away, Ties::down};

const BlockFormat& preset(std::string_view name) { return find_block_preset(name)->format; }

/// The quick way: what encode_elements makes of one element under a scale of 1.
std::uint8_t quick(Format element, Ties ties, float x) {
  BlockFormat format;
  format.element = element;
  format.ties = ties;
  const BlockPart part{&x, 1, 1, 1, 0};
  std::uint8_t code = 0;
  encode_elements(format, part, BlockScale{}, ElementRounding(format, 0), true, &code, 1);
  return code;
}

std::uint8_t exact(Format element, Ties ties, float x) {
  return static_cast<std::uint8_t>(
      encode_block_element(codec_params(element), ties, std::bit_cast<std::uint32_t>(x), 0U));
}

float beside(float x, bool up) {
  return std::nextafter(x, up ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::infinity());
}

TEST(BlockElements, RoundAtTheMiddlesOfCodesAsTheirTiesSay) {
  for (const Format element : kElements) {
    const std::uint32_t count = info(element).max_finite_code;
    for (std::uint32_t code = 0; code < count; ++code) {
      const float middle = (decode(element, code) + decode(element, code + 1)) / 2;  // exact
      for (const Ties ties : kTies) {
        const bool up = ties == Ties::away || (ties == Ties::even && code % 2 == 1);
        const std::uint32_t tie = code + (up ? 1 : 0);
        for (const auto way : {quick, exact}) {
          EXPECT_EQ(way(element, ties, middle), tie) << name(element) << ' ' << name(ties) << ' ' << middle;
          EXPECT_EQ(way(element, ties, beside(middle, true)), code + 1) << name(element) << ' ' << middle;
          EXPECT_EQ(way(element, ties, beside(middle, false)), code) << name(element) << ' ' << middle;
          if (element != Format::int8) {
            const std::uint32_t sign = 1U << (info(element).bits - 1);
            EXPECT_EQ(way(element, ties, -middle), tie | sign) << name(element) << ' ' << -middle;
          } else {
            EXPECT_EQ(way(element, ties, -middle), (0U - tie) & 0xffU) << -middle;
          }
        }
      }
    }
  }
}

TEST(BlockElements, BothWaysAgreeOverAllMagnitudes) {
  for (const Format element : kElements) {
    for (const Ties ties : kTies) {
      for (std::uint32_t bits = 0; bits < 0x7f800000U; bits += 104729) {
        const float x = std::bit_cast<float>(bits);
        ASSERT_EQ(quick(element, ties, x), exact(element, ties, x)) << name(element) << ' ' << name(ties) << ' ' << x;
        ASSERT_EQ(quick(element, ties, -x), exact(element, ties, -x)) << name(element) << ' ' << name(ties) << ' ' << x;
      }
    }
  }
}

TEST(BlockElements, StochasticRoundingGoesUpAsOftenAsTheRemainderSays) {
  BlockFormat format = preset("mxfp4");
  format.ties = Ties::stochastic;
  std::vector<float> values(8192, 2.25F);  // a quarter of the way from 2 to 3
  for (std::size_t i = 0; i < values.size(); i += 32) values[i] = 4;
  const BlockBytes size = block_bytes(format, 256, 32);
  std::vector<std::byte> codes(size.codes);
  std::vector<std::byte> scales(size.scales);
  std::vector<float> read(values.size());
  std::set<int> counts;
  for (const std::uint32_t seed : {1U, 2U, 3U}) {
    encode_blocks(format, values, 256, 32, 1, {codes, scales}, seed);
    decode_blocks(format, {codes, scales}, 256, 32, 1, read);
    int up = 0;
    for (std::size_t i = 0; i < read.size(); ++i) {
      if (i % 32 == 0) {
        EXPECT_EQ(read[i], 4) << "a value of the format stays";
      } else {
        EXPECT_TRUE(read[i] == 2 || read[i] == 3) << read[i];
        up += read[i] == 3 ? 1 : 0;
      }
    }
    EXPECT_NEAR(up / (256.0 * 31), 0.25, 0.02);  // four standard deviations
    counts.insert(up);
  }
  EXPECT_GT(counts.size(), 1U) << "seeds differ";
}

/// Every block of a matrix, also a ragged one, is what encode_block makes of its elements.
void expect_blocks_alone(const BlockPreset& one, std::int64_t rows, std::int64_t columns) {
  const BlockFormat& format = one.format;
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows * columns; ++i) values.push_back(std::sin(static_cast<float>(i * i % 10007)) * 5);
  const float second = second_block_scale(format, 5);
  const BlockBytes size = block_bytes(format, rows, columns);
  std::vector<std::byte> codes(size.codes);
  std::vector<std::byte> scales(size.scales);
  std::vector<float> read(values.size());
  encode_blocks(format, values, rows, columns, second, {codes, scales});
  decode_blocks(format, {codes, scales}, rows, columns, second, read);
  const BlockGrid grid = block_grid(format, rows, columns);
  for (std::int64_t row = 0; row < grid.rows; ++row) {
    for (std::int64_t column = 0; column < grid.columns; ++column) {
      std::vector<float> alone;
      std::vector<float> found;
      const std::int64_t bottom = std::min<std::int64_t>(rows, (row + 1) * format.block.rows);
      const std::int64_t begin = column * format.block.columns;
      for (std::int64_t r = row * format.block.rows; r < bottom; ++r) {
        for (std::int64_t c = begin; c < std::min<std::int64_t>(columns, begin + format.block.columns); ++c) {
          alone.push_back(values[static_cast<std::size_t>(r * columns + c)]);
          found.push_back(read[static_cast<std::size_t>(r * columns + c)]);
        }
      }
      const EncodedBlock block = encode_block(format, alone, second);
      for (std::size_t i = 0; i < alone.size(); ++i) {
        ASSERT_EQ(found[i], block_value(format, block.codes[i], block.scale.code, second))
            << one.name << ' ' << columns;
        ASSERT_NEAR(found[i], alone[i], 1.3) << one.name;
      }
    }
  }
}

TEST(BlockCodec, BlocksAreThoseOfTheirElementsAlone) {
  for (const BlockPreset& one : block_presets()) {
    expect_blocks_alone(one, 3, 149);
    expect_blocks_alone(one, 2, 8229);  // more than the loops take at a time
  }
}

TEST(BlockCodec, PackingsHoldCodesWhereTheySay) {
  BlockFormat format = preset("mxfp4");
  const std::vector<std::uint8_t> codes = {1, 2, 3, 4, 5};
  std::vector<std::byte> bytes(packed_bytes(format, 5));
  ASSERT_EQ(bytes.size(), 3U);
  pack_codes(format, codes, bytes);
  EXPECT_THAT(bytes, testing::ElementsAre(std::byte{0x21}, std::byte{0x43}, std::byte{0x05}));
  format.packing = Packing::high_first;
  pack_codes(format, codes, bytes);
  EXPECT_THAT(bytes, testing::ElementsAre(std::byte{0x12}, std::byte{0x34}, std::byte{0x50}));
  format.packing = Packing::halves;
  format.block.columns = 4;
  bytes.resize(packed_bytes(format, 5));
  ASSERT_EQ(bytes.size(), 4U);
  pack_codes(format, codes, bytes);
  EXPECT_THAT(bytes, testing::ElementsAre(std::byte{0x31}, std::byte{0x42}, std::byte{0x05}, std::byte{0}));
}

TEST(BlockCodec, PackedCodesAreReadBack) {
  for (const BlockPreset& one : block_presets()) {
    for (const std::int64_t count : {1, 5, 16, 31, 32, 77}) {
      std::vector<std::uint8_t> codes;
      const bool four = one.format.packing == Packing::halves && one.format.element == Format::int8;
      const std::uint32_t mask = (1U << info(one.format.element).bits) - 1;
      for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(count); ++i) {
        codes.push_back(static_cast<std::uint8_t>(four ? i * 7 % 16 - 8 : (i * 37) & mask));
      }
      std::vector<std::byte> bytes(packed_bytes(one.format, count));
      pack_codes(one.format, codes, bytes);
      std::vector<std::uint8_t> read(codes.size());
      unpack_codes(one.format, bytes, read);
      EXPECT_EQ(read, codes) << one.name << ' ' << count;
    }
  }
}

/// The layout as its users state it: (rows / 128, 4, 32, columns / 4, 4), axes 0 3 2 1 4.
TEST(BlockCodec, SwizzledScalesLieInTilesOf128By4) {
  constexpr std::int64_t kColumns = 12;
  std::set<std::size_t> places;
  for (std::int64_t row = 0; row < 256; ++row) {
    for (std::int64_t column = 0; column < kColumns; ++column) {
      const std::int64_t tile = row / 128;
      const std::int64_t quarter = row % 128 / 32;
      const std::int64_t line = row % 32;
      const std::int64_t group = column / 4;
      const auto expected = (((tile * (kColumns / 4) + group) * 32 + line) * 4 + quarter) * 4 + column % 4;
      ASSERT_EQ(swizzled_place(row, column, kColumns), static_cast<std::size_t>(expected)) << row << ',' << column;
      places.insert(swizzled_place(row, column, kColumns));
    }
  }
  EXPECT_EQ(places.size(), swizzled_count(256, kColumns));
  EXPECT_EQ(swizzled_count(129, 5), 256U * 8);
}

/// All that one set of loops makes of a row, as bytes.
std::vector<std::byte> all_of(const BlockLoops& loops, const BlockFormat& format, std::span<const float> x) {
  const BlockPlan plan = make_block_plan(format, second_block_scale(format, 5));
  const std::int64_t blocks = std::ssize(x) / format.block.columns;
  const auto room = static_cast<std::size_t>((blocks + 15) / 16 * 16);
  std::vector<float> extremes(room);
  std::vector<float> factors(room);
  std::vector<std::uint32_t> scales(room);
  std::vector<std::uint32_t> alone(room);
  std::vector<std::uint8_t> codes(x.size());
  std::vector<float> values(x.size());
  const auto find = format.rule == ScaleRule::signed_extreme ? loops.signed_extremes : loops.magnitudes;
  find(x.data(), blocks, format.block.columns, extremes.data());
  const bool any = loops.scales(plan, extremes.data(), blocks, 1, {scales.data(), factors.data(), alone.data()});
  EXPECT_EQ(any, std::any_of(alone.begin(), alone.end(), [](std::uint32_t one) { return one != 0; }));
  loops.elements(plan, x.data(), blocks, factors.data(), codes.data());
  for (std::size_t block = 0; block < static_cast<std::size_t>(blocks); ++block) {  // whose codes mean nothing
    const auto width = static_cast<std::size_t>(format.block.columns);
    if (alone[block] != 0) std::fill_n(codes.data() + block * width, width, std::uint8_t{1});
  }
  loops.values(plan, codes.data(), blocks, factors.data(), values.data());
  if (format.four_over_six) {
    std::vector<float> table;
    for (std::uint32_t i = 0; i < 4096; ++i) table.push_back(block_value(format, i % 16, i / 16, plan.second));
    loops.products(table.data(), 16, codes.data(), blocks, scales.data(), values.data());
    std::vector<std::uint32_t> other(room);
    std::vector<float> other_factors(room);
    loops.scales(plan, extremes.data(), blocks, 1.5F, {other.data(), other_factors.data(), alone.data()});
    loops.nearer(plan, table.data(), x.data(), blocks, {scales.data(), factors.data()},
                 {other.data(), other_factors.data()});
  }
  std::vector<std::byte> all;
  const auto add = [&](const auto& list) {
    const auto bytes = std::as_bytes(std::span(list));
    all.insert(all.end(), bytes.begin(), bytes.end());
  };
  add(extremes), add(scales), add(alone), add(codes), add(values);
  return all;
}

TEST(BlockLoops, EveryInstructionSetMakesTheSameBits) {
  std::vector<float> x;
  for (std::uint32_t i = 0; i < 4096; ++i) {
    const float size = std::ldexp(1.0F, static_cast<int>(i / 128) * 2 - 30);
    x.push_back(std::sin(static_cast<float>(i * i)) * 3 * size);
    if (i % 5 == 0) x.back() = std::round(x.back() / size * 4) / 4 * size;  // ties
    if (i % 97 == 0) x.back() = -0.0F;
  }
  for (const BlockPreset& one : block_presets()) {
    if (!has_block_loops(one.format)) continue;
    const std::vector<std::byte> first = all_of(*all_block_loops().front(), one.format, x);
    for (const BlockLoops* loops : all_block_loops()) EXPECT_EQ(all_of(*loops, one.format, x), first) << one.name;
  }
}

/// Quotients by which a correction of too few steps is a unit off: by IEEE division.
TEST(BlockLoops, DivideAsADivisionDoes) {
  std::vector<float> values;
  for (std::uint32_t i = 0; i < 64 * 128; ++i) {
    const float divisor = std::bit_cast<float>(0x3c000000U + (i / 128) * 131101U);
    const float code = decode(Format::e4m3, 8 + i % 118) + decode(Format::e4m3, 9 + i % 118);
    values.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(code / 2 * divisor) + i % 5 - 2));
    if (i % 128 == 0) values.back() = 448 * divisor;
    if (i % 7 == 0) values.back() = -values.back();
  }
  for (const auto& [name, second] : {std::pair("fp8-group", 1.0F),
                                     {"nvfp4", 0.0123F},
                                     {"nvfp4", 1e-30F},
                                     {"nvfp4-modelopt", 1e-18F},
                                     {"nvfp4-ct", 3e7F}}) {
    for (const float size : {1.0F, 0x1p-70F, 0x1p60F, 0x1p100F}) {
      const BlockFormat& format = preset(name);
      std::vector<float> x = values;
      for (float& value : x) value *= size;
      x[5] = -0.0F;
      const std::int64_t columns = std::ssize(x);
      const BlockBytes room = block_bytes(format, 1, columns);
      std::vector<std::byte> codes(room.codes);
      std::vector<std::byte> scales(room.scales);
      encode_blocks(format, x, 1, columns, second, {codes, scales});
      std::vector<std::uint8_t> found(x.size());
      unpack_codes(format, codes, found);
      for (std::int64_t first = 0; first < columns; first += format.block.columns) {
        const auto block =
            std::span(x).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(format.block.columns));
        const EncodedBlock alone = encode_block(format, block, second);
        for (std::size_t i = 0; i < block.size(); ++i) {
          ASSERT_EQ(found[static_cast<std::size_t>(first) + i], alone.codes[i])
              << name << ' ' << second << ' ' << block[i];
        }
      }
    }
  }
}

TEST(BlockLoops, ReadHalvesAsTheCodecDoes) {
  std::vector<std::uint32_t> codes(65536);
  for (std::uint32_t i = 0; i < 65536; ++i) codes[i] = i;
  std::vector<float> values(codes.size());
  for (const BlockLoops* loops : all_block_loops()) {
    loops->half_values(codes.data(), 65536, values.data());
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const float expected = decode(Format::f16, i);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(values[i])) << i;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected)) << i;
      }
    }
  }
}

TEST(BlockLoops, KnowEveryPreset) {
  for (const BlockPreset& one : block_presets()) EXPECT_TRUE(has_block_loops(one.format)) << one.name;
}

std::uint32_t scale_of(std::string_view name, float amax) {
  const std::vector<float> block(32, amax);
  return encode_block(preset(name), block, 1).scale.code;
}

/// Bytes that torchao 0.18.0 gave (OCP's floor, and NVIDIA's rounding up).
TEST(BlockCodec, ScaleRulesDifferWhereTheyShould) {
  EXPECT_EQ(scale_of("mxfp4", 6), 127U);
  EXPECT_EQ(scale_of("mxfp4", 6.5F), 127U) << "and 6.5 is clipped to 6";
  EXPECT_EQ(scale_of("mxfp4-rceil", 6.5F), 128U);
  EXPECT_EQ(scale_of("mxfp4-torchao-ceil", 6), 128U);
  EXPECT_EQ(scale_of("mxfp4-torchao-even", 7), 128U);
  EXPECT_EQ(scale_of("mxfp4-torchao-even", 6.5F), 127U);
  EXPECT_EQ(scale_of("mxfp8", 448), 127U);
  EXPECT_EQ(scale_of("mxfp8-ct", 448), 128U) << "rounded to the mantissa of E2M1";
  EXPECT_EQ(scale_of("mxfp4-gguf", 0x1p-130F), 251U) << "a byte that wrapped";
}

/// As transformers 5.24.0 has it: 448 / amax is infinite, its reciprocal is stored, and codes are made with it.
TEST(BlockCodec, ScalesWhoseInverseIsInfiniteAreZero) {
  const std::vector<float> block = {3e-45F, -1e-45F, 0.0F};
  const EncodedBlock made = encode_block(preset("fp8-block-transformers"), block, 1);
  EXPECT_EQ(made.scale.code, 0U);
  EXPECT_THAT(made.codes, testing::ElementsAre(126, 254, 127));
}

TEST(BlockPresets, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const BlockPreset& one : block_presets()) EXPECT_TRUE(names.insert(one.name).second) << one.name;
  EXPECT_EQ(find_block_preset("mxfp5"), nullptr);
  EXPECT_EQ(block_summary(preset("fp8-block")), "128 x 128 e4m3 under f32");
}

}  // namespace
}  // namespace nanscope
