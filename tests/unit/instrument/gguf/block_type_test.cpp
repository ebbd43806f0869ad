// Compares with what the package gguf decodes: tests/golden/gguf/types.txt, made by tests/blocks/compare_gguf.py.
#include "instrument/gguf/block_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/read_text.h"

namespace nanscope {
namespace {

const GgufType* type_named(std::string_view name) {
  const auto types = gguf_types();
  const auto found = std::find_if(types.begin(), types.end(), [&](const GgufType& one) { return one.name == name; });
  return found == types.end() ? nullptr : &*found;
}

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

/// The same as in compare_gguf.py.
std::vector<std::byte> counted_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    std::uint64_t x = i * 0x9E3779B97F4A7C15U;
    x = (x ^ x >> 32) * 0xBF58476D1CE4E5B9U;
    bytes[i] = static_cast<std::byte>(x >> 56);
  }
  return bytes;
}

/// All NaN are one: what the package leaves of their bits is chance.
std::uint32_t digest(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values)
    bits.push_back(std::isnan(value) ? 0x7FFFFFFFU : std::bit_cast<std::uint32_t>(value));
  return static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(bits.data()), static_cast<uInt>(bits.size() * sizeof(std::uint32_t))));
}

TEST(GgufTypes, DecodeAsThePackageDoes) {
  std::istringstream lines(read_text(std::string(NANSCOPE_SOURCE_DIR) + "/tests/golden/gguf/types.txt"));
  std::map<std::string, int> seen;
  std::string name;
  std::string block;
  std::string wanted;
  while (lines >> name >> block >> wanted) {
    const GgufType* type = type_named(name);
    ASSERT_NE(type, nullptr) << name;
    const bool many = block.starts_with("blocks=");
    const std::size_t count = many ? std::stoul(block.substr(block.find('=') + 1)) : 1;
    const std::vector<std::byte> bytes = many ? counted_bytes(count * type->bytes) : from_hex(block);
    ASSERT_EQ(bytes.size(), count * type->bytes) << name;
    std::vector<float> values(count * type->elements);
    decode_blocks(*type, bytes, values);
    EXPECT_EQ(digest(values), std::stoul(wanted, nullptr, 16)) << name << ' ' << block;
    ++seen[name];
  }
  EXPECT_EQ(seen.size(), gguf_types().size());
  for (const auto& [type, cases] : seen) EXPECT_EQ(cases, 4) << type;
}

TEST(GgufTypes, ManyBlocksFollowEachOther) {
  const GgufType& type = *type_named("Q8_0");
  std::vector<std::byte> bytes(2 * type.bytes, std::byte{1});
  bytes[0] = bytes[34] = std::byte{0};
  bytes[1] = std::byte{0x3C};   // 1
  bytes[35] = std::byte{0x40};  // 2
  std::vector<float> values(64);
  decode_blocks(type, bytes, values);
  EXPECT_EQ(values[31], 1);
  EXPECT_EQ(values[32], 2);
}

std::vector<float> scales_of(std::string_view name, std::vector<std::byte> block) {
  const GgufType& type = *type_named(name);
  block.resize(type.bytes);
  std::array<float, kMostGgufScales> room{};
  const auto scales = block_scales(type, block.data(), room);
  return {scales.begin(), scales.end()};
}

TEST(GgufTypes, TellTheScalesOfABlock) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  const std::byte one{0x3C};
  EXPECT_THAT(scales_of("F32", {}), IsEmpty());
  for (const std::string name : {"Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K"}) {
    EXPECT_EQ(scales_of(name, {}).size(), 2U) << name;
    EXPECT_TRUE(type_named(name)->scales.minimum) << name;
  }
  EXPECT_THAT(scales_of("Q4_0", {std::byte{0}, one}), ElementsAre(1));
  EXPECT_THAT(scales_of("Q4_K", {std::byte{0}, one, std::byte{0}, std::byte{0xC0}}), ElementsAre(1, -2));
  EXPECT_THAT(scales_of("MXFP4", {std::byte{128}}), ElementsAre(2));
  EXPECT_THAT(scales_of("NVFP4", {std::byte{0x38}, std::byte{0x7F}, std::byte{0x40}}), ElementsAre(1, 0, 2, 0));
  std::vector<std::byte> spread(56);
  spread[53] = std::byte{0xC0};
  spread[55] = std::byte{0x3F};  // 0x3C00, whose digits lie in the upper halves of four bytes, the lowest first
  EXPECT_THAT(scales_of("IQ1_M", spread), ElementsAre(1));
}

}  // namespace
}  // namespace nanscope
