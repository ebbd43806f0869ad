#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "instrument/files/file.h"
#include "instrument/image/image.h"
#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

/// golden_pngs.json was made by a Python script that writes PNG chunks itself with zlib and struct
/// (no libpng): every colour type, depths of 1 to 16 bits, Adam7 interlacing, palettes with
/// transparency; "rgb" is round(sample * 255 / (2^depth - 1)) of the samples it drew.
json golden() {
  const auto bytes =
      read_file(std::filesystem::path(NANSCOPE_SOURCE_DIR) / "tests/unit/instrument/image/golden_pngs.json", 1 << 20);
  return bytes ? json::parse(as_text(*bytes)) : json();
}

Image random_image(int width, int height) {
  std::mt19937 random(1);
  Image image{width, height, {}};
  for (int i = 0; i < width * height * 3; ++i) image.rgb.push_back(static_cast<std::uint8_t>(random() & 0xFF));
  return image;
}

std::string refusal(std::span<const std::byte> bytes) {
  const auto image = decode_png(bytes, "x.png");
  if (image) return "";
  EXPECT_THAT(image.error().message, StartsWith("x.png: "));
  EXPECT_EQ(image.error().message.find('\n'), std::string::npos);
  return image.error().message;
}

TEST(Png, ReadsEveryColourTypeAndDepth) {
  const json cases = golden();
  ASSERT_EQ(cases.size(), 14U);
  for (const json& entry : cases) {
    const auto image = decode_png(from_hex(entry["png"].get<std::string>()), "golden");
    ASSERT_TRUE(image.has_value()) << entry["name"] << ": " << image.error().message;
    EXPECT_EQ(image->width, entry["width"].get<int>());
    EXPECT_EQ(image->height, entry["height"].get<int>());
    EXPECT_EQ(image->rgb, entry["rgb"].get<std::vector<std::uint8_t>>()) << entry["name"];
  }
}

TEST(Png, ReadsBackWhatItWrites) {
  for (const auto& [width, height] : {std::pair(1, 1), std::pair(7, 5), std::pair(64, 48)}) {
    const Image image = random_image(width, height);
    const auto bytes = encode_png(image);
    ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
    EXPECT_EQ(decode_png(*bytes, "memory").value(), image);
  }
  const TemporaryFolder folder;
  const auto path = folder / "nanscope_test.png";
  ASSERT_TRUE(write_png(random_image(3, 2), path).has_value());
  EXPECT_EQ(read_png(path).value(), random_image(3, 2));
  std::filesystem::remove(path);
  EXPECT_THAT(read_png(path).error().message, HasSubstr("cannot open"));
}

TEST(Png, WriterRefusesSizesThatDoNotFit) {
  EXPECT_FALSE(encode_png(Image{}).has_value());
  EXPECT_FALSE(encode_png(Image{2, 2, {1, 2, 3}}).has_value());
  EXPECT_FALSE(encode_png(Image{-1, -1, {1, 2, 3}}).has_value());
  EXPECT_FALSE(encode_png(Image{20'000, 1, std::vector<std::uint8_t>(60'000)}).has_value());
}

TEST(Png, EveryTruncationIsRefused) {
  const auto bytes = encode_png(random_image(16, 16)).value();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(refusal(std::span(bytes).first(size)), "") << size;
  }
  EXPECT_THAT(refusal(std::span(bytes).first(100)), HasSubstr("the file ends early"));
  EXPECT_THAT(refusal(std::vector<std::byte>(100)), HasSubstr("not a PNG"));
}

TEST(Png, EveryDamagedByteIsRefusedOrHarmless) {
  const Image image = random_image(8, 8);
  const auto bytes = encode_png(image).value();
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    auto damaged = bytes;
    damaged[at] ^= std::byte{0x20};
    const auto decoded = decode_png(damaged, "x.png");
    // Every byte is covered by the signature or a checksum.
    EXPECT_FALSE(decoded.has_value() && *decoded != image) << at;
  }
}

/// The header of a PNG of any claimed size; its checksum is computed here bit by bit.
std::vector<std::byte> header_only(std::uint32_t width, std::uint32_t height) {
  std::vector<std::uint8_t> chunk = {'I', 'H', 'D', 'R'};
  for (const std::uint32_t side : {width, height}) {
    for (int shift = 24; shift >= 0; shift -= 8) chunk.push_back(static_cast<std::uint8_t>((side >> shift) & 0xFF));
  }
  for (const int field : {8, 2, 0, 0, 0}) chunk.push_back(static_cast<std::uint8_t>(field));
  std::uint32_t crc = 0xFFFFFFFF;
  for (const std::uint8_t byte : chunk) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320 : 0);
  }
  crc = ~crc;
  for (int shift = 24; shift >= 0; shift -= 8) chunk.push_back(static_cast<std::uint8_t>((crc >> shift) & 0xFF));
  std::vector<std::byte> bytes = from_hex("89504e470d0a1a0a0000000d");
  for (const std::uint8_t byte : chunk) bytes.push_back(static_cast<std::byte>(byte));
  // An image data chunk must begin before the header counts as read.
  for (const std::byte byte : from_hex("0000000049444154")) bytes.push_back(byte);
  return bytes;
}

TEST(Png, HugeSizesAreRefusedBeforeAnythingIsAllocated) {
  EXPECT_THAT(refusal(header_only(16384, 16384)), HasSubstr("16384x16384 pixels, expected at most 16777216"));
  EXPECT_THAT(refusal(header_only(0x7fffffff, 0x7fffffff)), HasSubstr("Invalid IHDR data"));
  EXPECT_THAT(refusal(header_only(0, 4)), HasSubstr("Invalid IHDR data"));
}

}  // namespace
}  // namespace nanscope
