#include "core/numbers/bits_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

namespace nanscope {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

BitsOptions options(std::string input, std::string format = "") {
  BitsOptions o;
  o.input = std::move(input);
  o.format = std::move(format);
  return o;
}

std::string text(const BitsOptions& o) {
  const Result<std::string> report = bits_text(o);
  EXPECT_TRUE(report) << (report ? "" : report.error().message);
  return report.value_or("");
}

nlohmann::json json(const BitsOptions& o) {
  const Result<std::string> report = bits_json(o);
  EXPECT_TRUE(report) << (report ? "" : report.error().message);
  return nlohmann::json::parse(report.value_or("null"));
}

TEST(BitsReport, DrawsTheFieldsTheBucketsAndTheLossOf430) {
  EXPECT_EQ(text(options("430", "e4m3")),
            R"(430 as e4m3, saturating: stored as 416 (0x7d), 3.26 % lost

     S    E E E E    M   M   M
  ┌─────┬─────────┬─────────────┐
  │  0  │ 1 1 1 1 │  1   0   1  │  0x7d = 0b0_1111_101
  └─────┴─────────┴─────────────┘
    +/-   8 4 2 1   1/2 1/4 1/8

  fields     sign +, exponent 15 - bias 7 = 8, mantissa 5/8
  formula    (-1)^0 x 2^(15-7) x (1 + 5/8) = 416
  class      normal, number 253 of 254 in order of value
  neighbours below 384 (0x7c, 32 away), above 448 (0x7e, 32 away)
  range      largest 448 (0x7e), smallest normal 0.015625, subnormal 0.001953125
  format     OCP 8-bit floating point (OFP8) 1.0, E4M3; has NaN, no Inf
  bucket     430 is below the midpoint 432 of 416 and 448: it goes down
  lost       14 of 430 (3.26 %)

       384                             416                            448
      0x7c                            0x7d                           0x7e
  ──────┼───────────────┊───────────────●──────────────┊───────────────┼──────
                                                     ▲
                                                    430
  ● stored   ┊ where two buckets meet   ▲ the value
)");
}

TEST(BitsReport, ScaleTurnsCodesIntoRealValues) {
  BitsOptions o = options("12", "e4m3");
  o.scale = 0.025;
  EXPECT_THAT(text(o), HasSubstr("12 / scale = 480, stored 448 x scale = 11.2"));
  EXPECT_THAT(text(o), HasSubstr("every value beyond 448 (real 11.2) is stored as the same code 0x7e"));
  const auto result = json(o)["results"][0];
  EXPECT_EQ(result["code"], "0x7e");
  EXPECT_EQ(result["real"].get<float>(), 11.2f);
  EXPECT_EQ(result["rounding"]["clipped"], true);
}

TEST(BitsReport, AsciiUsesNothingElse) {
  for (const char* format : {"e4m3", "f16", "f32", "int8", "e8m0"}) {
    BitsOptions o = options("1000", format);
    o.ascii = true;
    const std::string report = text(o);
    EXPECT_TRUE(std::all_of(report.begin(), report.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
    EXPECT_THAT(report, HasSubstr("+---"));
  }
}

TEST(BitsReport, CodeIsTakenApartInItsFormat) {
  EXPECT_THAT(text(options("0x7e", "e4m3")), StartsWith("e4m3 code 0x7e: 448\n"));
  EXPECT_THAT(text(options("0b0_1111_110", "fp8_e4m3")), StartsWith("e4m3 code 0x7e: 448\n"));
  EXPECT_THAT(text(options("0x7f", "e4m3")), StartsWith("e4m3 code 0x7f: NaN\n"));
  EXPECT_THAT(text(options("0x7c", "e5m2")), HasSubstr("+Inf"));
}

TEST(BitsReport, CodeWithoutFormatIsReadInEveryFormatOfItsWidth) {
  const auto results = json(options("0x80"))["results"];
  std::vector<std::string> names;
  for (const auto& result : results) names.push_back(result["format"]);
  EXPECT_THAT(names, ::testing::IsSupersetOf({"e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0", "int8"}));
  EXPECT_THAT(names, Not(::testing::Contains(::testing::AnyOf("f32", "f16", "e3m2", "e2m1"))));
  const std::string report = text(options("0x80"));
  EXPECT_THAT(report, HasSubstr("e4m3      -0 "));
  EXPECT_THAT(report, HasSubstr("e4m3fnuz  NaN"));
  EXPECT_THAT(report, HasSubstr("int8      -128"));
  EXPECT_THAT(text(options("0x3c00")), HasSubstr("f16       1 "));
  EXPECT_THAT(text(options("0x3c00")), Not(HasSubstr("e4m3")));
  const std::string pattern = text(options("0x7fc00123"));  // 32 bits: what it is, and what casts make of it
  EXPECT_THAT(pattern, HasSubstr("i32       2143289635"));
  EXPECT_THAT(pattern, HasSubstr("f32 0x7fc00123 (NaN) in every format"));
  EXPECT_THAT(pattern, HasSubstr("e4m3      0x7f        NaN"));
}

TEST(BitsReport, ValueWithoutFormatIsCastToEveryFormat) {
  EXPECT_EQ(json(options("430"))["results"].size(), std::size_t{kFormatCount});
  const std::string report = text(options("nan"));
  EXPECT_THAT(report,
              HasSubstr("e2m1      0x7         6                       -            NaN became a number: laundered"));
  EXPECT_THAT(report, HasSubstr("e4m3      0x7f        NaN"));
}

TEST(BitsReport, EightHexDigitsReachANarrowFormatAsAnF32) {
  const auto result = json(options("0x7fc00123", "e4m3"))["results"][0];
  EXPECT_EQ(result["rounding"]["source_f32"], "0x7fc00123");
  EXPECT_EQ(result["code"], "0x7f");
  EXPECT_EQ(result["value"], nullptr);
  EXPECT_EQ(result["decimal"], "nan");
  EXPECT_THAT(text(options("0x43d70000", "e4m3")), HasSubstr("f32 0x43d70000 (430) as e4m3"));
  EXPECT_EQ(json(options("0x00000041", "e4m3"))["kind"], "f32_bits");  // it would fit, but eight digits are an f32
  EXPECT_EQ(json(options("0x41", "e4m3"))["kind"], "code");
}

TEST(BitsReport, OverflowModeAndInfinities) {
  BitsOptions o = options("1000", "e4m3");
  o.overflow = Overflow::overflow;
  EXPECT_THAT(text(o), StartsWith("1000 as e4m3, not saturating: stored as NaN (0x7f), beyond the range: became NaN"));
  o.format = "e5m2";
  o.input = "1e9";
  EXPECT_THAT(text(o), HasSubstr("became Inf"));
  EXPECT_THAT(text(options("-inf", "e4m3")), HasSubstr("stored as -448 (0xfe), Inf clipped"));
  EXPECT_THAT(text(options("-1e-30", "e4m3")), HasSubstr("flushed to zero, 100 % lost"));
}

/// CUDA's conversions to 8 bits are satfinite; IEEE 754 has Inf beyond the range of f16.
TEST(BitsReport, WiderFormatsOverflowUnlessTheyAreToSaturate) {
  BitsOptions o = options("70000", "f16");
  EXPECT_THAT(text(o),
              StartsWith("70000 as f16, not saturating: stored as Inf (0x7c00), beyond the range: became Inf"));
  o.overflow = Overflow::saturate;
  EXPECT_THAT(text(o), StartsWith("70000 as f16, saturating: stored as 65504 (0x7bff), clipped"));
  for (const Format format : {Format::f32, Format::f16, Format::bf16})
    EXPECT_EQ(usual_overflow(format), Overflow::overflow) << name(format);
  for (const Format format : {Format::e4m3, Format::e5m2, Format::e2m1, Format::int8, Format::i32})
    EXPECT_EQ(usual_overflow(format), Overflow::saturate) << name(format);
}

TEST(BitsReport, SubnormalsAreFlushedOnRequest) {
  BitsOptions o = options("-1e-40", "f32");
  EXPECT_EQ(json(o)["results"][0]["code"], "0x800116c2");
  o.ftz = true;
  EXPECT_EQ(json(o)["results"][0]["code"], "0x80000000");
  EXPECT_EQ(json(o)["results"][0]["rounding"]["flushed"], true);
  EXPECT_EQ(json(o)["results"][0]["rounding"]["relative_loss"], 1);
  o.input = "1e-7";  // subnormal in f16, normal in f32
  o.format = "f16";
  EXPECT_EQ(json(o)["results"][0]["code"], "0x0002");
  o.input = "1e-30";  // the quotient is subnormal
  o.format = "f32";
  o.scale = 1e10;
  EXPECT_EQ(json(o)["results"][0]["code"], "0x00000000");
}

/// Codes by hand: 5 / 0.025 = 200 is the middle of 192 (mantissa 100) and 208 (101), and goes to the even one.
TEST(BitsReport, SeveralValuesAreATableUnderOneScale) {
  BitsOptions o = options("", "e4m3");
  o.scale = 0.025;
  const std::vector<std::string> values = {"5", "11.2", "15", "0x7e", "50"};
  EXPECT_EQ(bits_values_text(o, values).value(),
            R"(5 values as e4m3, saturating, scale 0.025

  value  / scale  code  stored  back  result
  5      200      0x74  192     4.8   4 % lost
  11.2   448      0x7e  448     11.2  exact
  15     600      0x7e  448     11.2  clipped, 25.3 % lost
  0x7e   448      0x7e  448     11.2  the code as given
  50     2000     0x7e  448     11.2  clipped, 77.6 % lost

4 distinct values became 2
)");
  const auto document = nlohmann::json::parse(bits_values_json(o, values).value());
  EXPECT_EQ(document["kind"], "values");
  EXPECT_EQ(document["distinct"]["stored"], 2);
  EXPECT_EQ(document["results"][4]["input"], "50");
  EXPECT_EQ(document["results"][4]["rounding"]["clipped"], true);
  o.format.clear();
  EXPECT_THAT(bits_values_text(o, values).error().message, HasSubstr("several values need a format"));
  o.format = "e4m3";
  EXPECT_THAT(bits_values_json(o, std::vector<std::string>{"1", "zwei"}).error().message, HasSubstr("'zwei'"));
}

/// jax-ml/ml_dtypes #400. Codes as torch 2.15.0 and ml_dtypes 0.6.0 gave them.
TEST(BitsReport, SaysWhichStackStoresWhat) {
  EXPECT_THAT(text(options("500", "e4m3")),
              HasSubstr("  stacks     NaN (0x7f) by ml_dtypes (JAX, numpy), torch before 2.13\n"
                        "             448 (0x7e) by torch from 2.13 on a CPU, CUDA's satfinite"));
  EXPECT_THAT(text(options("-inf", "e4m3")), HasSubstr("-448 (0xfe) by torch from 2.13"));
  EXPECT_THAT(text(options("61440", "e5m2")), HasSubstr("Inf (0x7c) by ml_dtypes (JAX, numpy), torch\n"));
  for (const char* alike : {"464", "nan", "1"}) EXPECT_THAT(text(options(alike, "e4m3")), Not(HasSubstr("stacks")));
  EXPECT_THAT(text(options("500", "e4m3fnuz")), Not(HasSubstr("stacks")));
  const auto stacks = json(options("465", "e4m3"))["results"][0]["stacks"];
  ASSERT_EQ(stacks.size(), 4U);
  EXPECT_EQ(stacks[0]["code"], "0x7f");
  EXPECT_EQ(stacks[2]["code"], "0x7e");
  EXPECT_EQ(stacks[2]["decimal"], "448");
}

TEST(BitsReport, TablesShowEveryValueOfASmallFormat) {
  BitsOptions o = options("e4m3");
  o.table = true;
  const std::string table = text(o);
  for (const char* value : {"0.001953125", "0.015625", " 1.875 ", " 416 ", " 448 ", "NaN"}) {
    EXPECT_THAT(table, HasSubstr(value));
  }
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 2 + 1 + 16 + 2);
  EXPECT_EQ(json(o)["results"].size(), 256u);
}

TEST(BitsReport, TablesOfWideFormatsAreSummarised) {
  BitsOptions o = options("bf16");
  o.table = true;
  const std::string summary = text(o);
  EXPECT_LT(std::count(summary.begin(), summary.end(), '\n'), 60);
  o.all_codes = true;
  const std::string list = text(o);
  EXPECT_EQ(std::count(list.begin(), list.end(), '\n'), 65536 + 2);
  EXPECT_THAT(list, HasSubstr("0x7f80  0_11111111_0000000  inf        Inf"));
  o.input = "f32";
  EXPECT_FALSE(bits_text(o));
  o.all_codes = false;
  EXPECT_TRUE(bits_text(o));
  EXPECT_FALSE(bits_json(o));
}

TEST(BitsReport, JsonHoldsTheAnatomyAndTheCast) {
  const auto document = json(options("430", "e4m3"));
  EXPECT_EQ(document["schema"], "nanscope.bits/1");
  EXPECT_EQ(document["kind"], "value");
  const auto& r = document["results"][0];
  EXPECT_EQ(r["format"], "e4m3");
  EXPECT_EQ(r["code"], "0x7d");
  EXPECT_EQ(r["bits"], "0_1111_101");
  EXPECT_EQ(r["class"], "normal");
  EXPECT_EQ(r["exponent"], 8);
  EXPECT_EQ(r["index"], 252);
  EXPECT_EQ(r["up"]["code"], "0x7e");
  EXPECT_EQ(r["down"]["gap"], 32.0);
  EXPECT_EQ(r["rounding"]["midpoint"], 432.0);
  EXPECT_EQ(r["rounding"]["absolute_loss"], 14.0);
}

TEST(BitsReport, BadInputIsOneClearLine) {
  struct Row {
    BitsOptions options;
    const char* says;
  };
  BitsOptions zero_scale = options("1", "e4m3");
  zero_scale.scale = 0;
  BitsOptions tiny_scale = options("1", "e4m3");
  tiny_scale.scale = 1e-60;
  BitsOptions no_table = options("");
  no_table.table = true;
  const Row rows[] = {
      {options(""), "no number given"},
      {options("abc", "e4m3"), "'abc' is no number"},
      {options("12x"), "'12x' is no number"},
      {options("--3"), "'--3' is no number"},
      {options("0xzz"), "'0xzz' is no code"},
      {options("0x"), "'0x' is no code"},
      {options("0x1ff", "e4m3"), "code 0x1ff does not fit the 8 bits of e4m3; its largest code is 0xff"},
      {options("0x10", "e2m1"), "does not fit the 4 bits"},
      {options("0x123456789"), "more than 32 bits"},
      {options("1e400"), "outside the range of a double"},
      {options("3", "e9m9"), "unknown format 'e9m9'; known: f32 f16"},
      {options(std::string(1000, '1')), "at most 400"},
      {zero_scale, "scale 0 is not a positive f32"},
      {tiny_scale, "is not a positive f32"},
      {no_table, "--table needs a format"}};
  for (const Row& row : rows) {
    for (const auto& report : {bits_text(row.options), bits_json(row.options)}) {
      ASSERT_FALSE(report) << row.says;
      EXPECT_THAT(report.error().message, HasSubstr(row.says));
      EXPECT_EQ(report.error().message.find('\n'), std::string::npos);
    }
  }
}

TEST(BitsReport, NoInputBreaksIt) {
  std::mt19937 random(7);
  const std::string alphabet = "0123456789abcdefxXpPnNiI._+-eb ";
  for (int i = 0; i < 20000; ++i) {
    BitsOptions o;
    const std::size_t length = random() % 12;
    for (std::size_t k = 0; k < length; ++k) o.input += alphabet[random() % alphabet.size()];
    if (random() % 2 == 0) o.format = formats()[random() % formats().size()].name;
    const auto report = bits_text(o);
    if (report) {
      ASSERT_THAT(*report, Not(HasSubstr("nan,"))) << o.input;
      ASSERT_EQ(report->back(), '\n');
    } else {
      ASSERT_FALSE(report.error().message.empty());
    }
  }
}

TEST(BitsReport, EveryCodeOfEveryNarrowFormatCanBeShown) {
  for (const FormatInfo& f : formats()) {
    if (f.bits > 8) continue;
    for (std::uint32_t code = 0; code < (1u << f.bits); ++code) {
      std::ostringstream typed;
      typed << "0x" << std::hex << code;
      const std::string report = text(options(typed.str(), std::string(f.name)));
      std::istringstream lines(report);
      for (std::string line; std::getline(lines, line);)
        ASSERT_FALSE(line.ends_with(' ')) << f.name << " " << typed.str();
    }
  }
}

}  // namespace
}  // namespace nanscope
