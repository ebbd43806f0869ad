// Compares with ml_dtypes through golden/ml_dtypes_casts.txt: every code, and every finite f32,
// because the file holds the smallest input of each code and casts are monotone.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "core/numbers/codec.h"

namespace nanscope {
namespace {

struct Row {
  std::uint32_t code;
  std::optional<std::uint32_t> decoded;   // nullopt: NaN
  std::optional<std::uint32_t> first[2];  // smallest magnitude with sign + and - that is cast to code
};

std::optional<std::uint32_t> hex(const std::string& text, const char* absent) {
  if (text == absent) return std::nullopt;
  return static_cast<std::uint32_t>(std::stoul(text, nullptr, 16));
}

std::map<std::string, std::vector<Row>> read_golden() {
  std::ifstream file(NANSCOPE_SOURCE_DIR "/tests/unit/core/numbers/golden/ml_dtypes_casts.txt");
  std::map<std::string, std::vector<Row>> table;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream in(line);
    std::string format, code, decoded, positive, negative;
    in >> format >> code >> decoded >> positive >> negative;
    table[format].push_back({*hex(code, ""), hex(decoded, "nan"), {hex(positive, "-"), hex(negative, "-")}});
  }
  return table;
}

/// Our NaN has no sign; ml_dtypes keeps it on overflow.
bool same_code(const FormatInfo& f, std::uint32_t ours, std::uint32_t theirs) {
  const bool ours_nan = decode_bits(codec_params(f), ours) == kCanonicalNan;
  const bool theirs_nan = decode_bits(codec_params(f), theirs) == kCanonicalNan;
  return ours_nan ? theirs_nan && ours == f.canonical_nan_code : ours == theirs;
}

TEST(CodecGolden, HoldsEveryFormatOfAtMostEightBits) {
  const auto golden = read_golden();
  for (const FormatInfo& f : formats()) {
    if (f.bits > 8 || f.exponent_bits == 0) continue;
    const auto found = golden.find(std::string(f.name));
    ASSERT_NE(found, golden.end()) << f.name;
    EXPECT_EQ(found->second.size(), std::size_t{1} << f.bits) << f.name;
  }
}

TEST(CodecGolden, EveryCodeDecodesAsInMlDtypes) {
  for (const auto& [format, rows] : read_golden()) {
    const FormatInfo& f = info(format_from_name(format).value());
    for (const Row& row : rows) {
      EXPECT_EQ(decode_bits(codec_params(f), row.code), row.decoded.value_or(kCanonicalNan))
          << format << " " << row.code;
    }
  }
}

TEST(CodecGolden, EveryCodeBeginsWhereItDoesInMlDtypes) {
  for (const auto& [format, rows] : read_golden()) {
    const FormatInfo& f = info(format_from_name(format).value());
    // ml_dtypes rounds every value between 2^-127 and 2^-126 up; the nearest power starts at 1.5 x 2^-127.
    const bool e8m0 = f.specials == Specials::e8m0;
    for (int sign = 0; sign < 2; ++sign) {
      std::map<std::uint32_t, std::uint32_t> code_from;  // by first magnitude
      for (const Row& row : rows) {
        if (row.first[sign]) code_from[*row.first[sign] & 0x7fffffffu] = row.code;
      }
      std::uint32_t before = 0;
      bool any_before = false;
      for (const auto& [magnitude, code] : code_from) {
        if (e8m0 && magnitude < 0x00800000u) continue;
        const std::uint32_t bits = magnitude | (static_cast<std::uint32_t>(sign) << 31);
        EXPECT_TRUE(same_code(f, encode_bits(codec_params(f), bits, Overflow::overflow), code))
            << format << std::hex << " 0x" << bits << " gives another code than 0x" << code;
        if (any_before) {
          EXPECT_TRUE(same_code(f, encode_bits(codec_params(f), bits - 1, Overflow::overflow), before))
              << format << std::hex << " 0x" << bits - 1 << " gives another code than 0x" << before;
        }
        before = code;
        any_before = true;
      }
    }
  }
}

TEST(CodecGolden, CastsAreMonotoneBetweenTheGoldenPoints) {
  for (const FormatInfo& f : formats()) {
    if (f.bits > 16 || f.exponent_bits == 0) continue;
    std::uint32_t last = 0;
    for (std::uint64_t bits = 0; bits <= 0x7f800000u; bits += 10007) {
      const std::uint32_t code = encode_bits(codec_params(f), static_cast<std::uint32_t>(bits), Overflow::saturate);
      ASSERT_GE(code, last) << f.name << " " << bits;
      last = code;
    }
  }
}

}  // namespace
}  // namespace nanscope
