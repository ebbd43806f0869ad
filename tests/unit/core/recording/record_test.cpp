#include "core/recording/record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

/// By hand, after https://www.sqlite.org/fileformat2.html; row_image_test.cpp has SQLite read what these make.
namespace nanscope::sqlite {
namespace {

std::string hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

TEST(Varint, HasSevenBitsAByteAndEightInTheNinth) {
  const auto of = [](std::uint64_t value) { return hex(Varint(value).bytes()); };
  EXPECT_EQ(of(0), "00");
  EXPECT_EQ(of(0x7f), "7f");
  EXPECT_EQ(of(0x80), "8100");
  EXPECT_EQ(of(0x3fff), "ff7f");
  EXPECT_EQ(of(0x4000), "818000");
  EXPECT_EQ(of((std::uint64_t{1} << 56) - 1), "ffffffffffffff7f");
  EXPECT_EQ(of(std::uint64_t{1} << 56), "80c080808080808000");
  EXPECT_EQ(of(std::numeric_limits<std::uint64_t>::max()), "ffffffffffffffffff");
}

TEST(Record, HasTypesAndThenValues) {
  Record record;
  record.null().integer(0).integer(1).integer(-1).integer(127).integer(128).integer(-129);
  record.integer(0x8000).integer(0x800000).integer(std::int64_t{1} << 31).integer(std::int64_t{1} << 47);
  record.real(2.5).text("ab").text("");
  EXPECT_EQ(hex(record.bytes()),
            "0f"
            "00080901010202030405060711"
            "0d"
            "ff"
            "7f"
            "0080"
            "ff7f"
            "008000"
            "00800000"
            "000080000000"
            "0000800000000000"
            "4004000000000000"
            "6162");
  record.clear();
  record.real(std::numeric_limits<double>::quiet_NaN()).real(-0.0);
  EXPECT_EQ(hex(record.bytes()), "0300078000000000000000");
}

TEST(Record, TakesTheFewestBytesThatHoldAnInteger) {
  const auto bytes = [](std::int64_t value) {
    Record record;
    record.integer(value);
    return record.bytes().size() - 2;
  };
  std::size_t expected = 1;
  for (const int bits : {8, 16, 24, 32, 48}) {
    const std::int64_t end = std::int64_t{1} << (bits - 1);
    EXPECT_EQ(bytes(end - 1), expected) << bits;
    EXPECT_EQ(bytes(-end), expected) << bits;
    expected = bits == 32 ? 6 : bits == 48 ? 8 : expected + 1;
    EXPECT_EQ(bytes(end), expected) << bits;
    EXPECT_EQ(bytes(-end - 1), expected) << bits;
  }
  EXPECT_EQ(bytes(std::numeric_limits<std::int64_t>::min()), 8U);
  EXPECT_EQ(bytes(std::numeric_limits<std::int64_t>::max()), 8U);
}

/// The header's length counts its own bytes.
TEST(Record, AHeaderOfMoreThan127BytesHasALengthOfTwo) {
  const auto begin = [](int columns) {
    Record record;
    for (int i = 0; i < columns; ++i) record.null();
    return hex(record.bytes().first(3));
  };
  EXPECT_EQ(begin(126), "7f0000");
  EXPECT_EQ(begin(127), "810100");
}

}  // namespace
}  // namespace nanscope::sqlite
