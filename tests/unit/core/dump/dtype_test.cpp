#include "core/dump/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace nanscope {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

const json& golden() {
  static const json kGolden = [] {
    std::ifstream file(std::filesystem::path(NANSCOPE_SOURCE_DIR) / "tests/golden/dumps/dtypes.json");
    return json::parse(file);
  }();
  return kGolden;
}

/// dtypes.json holds what NumPy, ml_dtypes and torch make of the same bytes; NaN is the canonical one.
TEST(Dtypes, AreDecodedAsTheirMakersDo) {
  for (const Dtype& dtype : dtypes()) {
    if (dtype.kind == DtypeKind::complex) continue;
    ASSERT_TRUE(golden().contains(dtype.name)) << dtype.name;
    const json& row = golden().at(std::string(dtype.name));
    const auto bytes = from_hex(row["bytes"].get<std::string>());
    const auto expected = row["bits"].get<std::vector<std::uint32_t>>();
    EXPECT_EQ(dtype.bytes(expected.size()), bytes.size()) << dtype.name;
    const auto values = decode_values(dtype, bytes, 0, expected.size());
    ASSERT_TRUE(values.has_value()) << values.error().message;
    EXPECT_EQ(bits_of(*values), expected) << dtype.name;
    // A part that begins in the middle, for packed ones in the middle of a byte.
    const auto part = decode_values(dtype, bytes, 1, expected.size() - 2);
    EXPECT_EQ(bits_of(*part), std::vector<std::uint32_t>(expected.begin() + 1, expected.end() - 1)) << dtype.name;
  }
}

TEST(Dtypes, EarlierElementIsTheLowHalfOfAByte) {
  const std::vector<std::byte> bytes = {std::byte{0x21}, std::byte{0xF7}};
  const Dtype* dtype = find_dtype("F4");
  EXPECT_EQ(decode_values(*dtype, bytes, 0, 4).value(), (std::vector<float>{0.5F, 1.0F, 6.0F, -6.0F}));
  EXPECT_EQ(stored_code(*dtype, bytes, 1), 2U);
  EXPECT_EQ(stored_code(*dtype, bytes, 2), 7U);
  EXPECT_EQ(dtype->bytes(3), 2U);
}

TEST(Dtypes, StoredCodesAreTheBits) {
  const std::vector<std::byte> bytes = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},
                                        std::byte{5}, std::byte{6}, std::byte{7}, std::byte{8}};
  EXPECT_EQ(stored_code(*find_dtype("u8"), bytes, 3), 4U);
  EXPECT_EQ(stored_code(*find_dtype("bf16"), bytes, 1), 0x0403U);
  EXPECT_EQ(stored_code(*find_dtype("f32"), bytes, 1), 0x08070605U);
}

TEST(Dtypes, AreFoundByEveryNameOfTheirs) {
  for (const Dtype& dtype : dtypes()) {
    EXPECT_EQ(find_dtype(dtype.name), &dtype) << dtype.name;
    if (!dtype.safetensors.empty()) {
      EXPECT_EQ(find_dtype(dtype.safetensors), &dtype) << dtype.safetensors;
    }
    if (!dtype.torch.empty()) {
      EXPECT_EQ(find_dtype("torch." + std::string(dtype.torch)), &dtype) << dtype.torch;
    }
    if (!dtype.numpy.empty()) {
      const std::string numpy(dtype.numpy);
      EXPECT_EQ(find_dtype(numpy.size() > 3 ? numpy : "<" + numpy), &dtype) << numpy;
    }
  }
  EXPECT_EQ(find_dtype("half")->name, "f16");
  EXPECT_EQ(find_dtype("FP8_E4M3")->name, "e4m3");
  EXPECT_EQ(find_dtype("|u1")->name, "u8");
  EXPECT_EQ(find_dtype("<f1")->name, "e5m2");
  EXPECT_EQ(&dtype_of(Format::e2m1), find_dtype("F4"));
}

/// "u8" is a byte to safetensors and eight bytes to NumPy: NumPy's sizes need their byte order.
TEST(Dtypes, WidthsAreNotConfused) {
  EXPECT_EQ(find_dtype("u8")->bits, 8);
  EXPECT_EQ(find_dtype("<u8")->bits, 64);
  EXPECT_EQ(find_dtype("i8")->bits, 8);
  EXPECT_EQ(find_dtype("<i8")->bits, 64);
  EXPECT_EQ(find_dtype("F4")->bits, 4);
  EXPECT_EQ(find_dtype("<f4")->bits, 32);
  for (const char* name : {"", "<", ">f4", ">u1", "f4", "F6_E3M2", "F99", "torch.", "object", "|O"}) {
    EXPECT_EQ(find_dtype(name), nullptr) << name;
  }
}

TEST(Dtypes, RefuseComplexNumbersAndTooFewBytes) {
  const std::vector<std::byte> bytes(9);
  EXPECT_THAT(decode_values(*find_dtype("C64"), bytes, 0, 1).error().message, HasSubstr("dtype c64: a complex number"));
  EXPECT_THAT(decode_values(*find_dtype("f32"), bytes, 1, 2).error().message,
              HasSubstr("elements 1 to 3 of f32, expected at most the 2 that 9 bytes hold"));
  EXPECT_FALSE(decode_values(*find_dtype("f32"), bytes, ~std::uint64_t{0}, 2).has_value());
  EXPECT_FALSE(decode_values(*find_dtype("f32"), bytes, 0, ~std::uint64_t{0}).has_value());
  EXPECT_EQ(decode_values(*find_dtype("f32"), bytes, 2, 0).value().size(), 0U);
}

}  // namespace
}  // namespace nanscope
