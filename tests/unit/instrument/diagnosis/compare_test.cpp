#include "instrument/diagnosis/compare.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

namespace nanscope {
namespace {

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

TensorData f32(const std::vector<std::uint32_t>& codes) {
  TensorData data{Format::f32, 1, static_cast<std::int64_t>(codes.size()), {}};
  for (const std::uint32_t code : codes) {
    for (int i = 0; i < 4; ++i) data.bytes.push_back(static_cast<std::byte>((code >> (8 * i)) & 0xffU));
  }
  return data;
}

constexpr std::uint32_t kFullNan = 0x7fffffff;
constexpr std::uint32_t kQuietNan = 0x7fc00000;
constexpr std::uint32_t kNegativeNan = 0xffc00000;
constexpr std::uint32_t kInfCode = 0x7f800000;
constexpr std::uint32_t kMinusInf = 0xff800000;
constexpr std::uint32_t kMinusZero = 0x80000000;

TEST(Compare, ANaNEqualsItsOwnBitsAndNothingElse) {
  EXPECT_EQ(relation(Format::f32, kFullNan, kFullNan), Relation::same_bits);
  EXPECT_EQ(relation(Format::f32, kFullNan, kQuietNan), Relation::both_nan);
  EXPECT_EQ(relation(Format::f32, kQuietNan, kNegativeNan), Relation::both_nan);
  EXPECT_EQ(relation(Format::f32, kFullNan, bits(1)), Relation::nan_against);
  EXPECT_EQ(relation(Format::f32, bits(1), kFullNan), Relation::nan_against);
  EXPECT_EQ(relation(Format::f32, kInfCode, kFullNan), Relation::nan_against);
  EXPECT_EQ(relation(Format::f32, kFullNan, kMinusInf), Relation::nan_against);
}

TEST(Compare, InfinitiesHaveSigns) {
  EXPECT_EQ(relation(Format::f32, kInfCode, kInfCode), Relation::same_bits);
  EXPECT_EQ(relation(Format::f32, kInfCode, kMinusInf), Relation::infinity_against);
  EXPECT_EQ(relation(Format::f32, bits(3.4e38F), kInfCode), Relation::infinity_against);
  EXPECT_EQ(ulp_distance(Format::f32, kInfCode, kMinusInf), std::nullopt);
  EXPECT_EQ(ulp_distance(Format::f32, kInfCode, bits(1)), std::nullopt);
  EXPECT_EQ(ulp_distance(Format::f32, kFullNan, kFullNan), std::nullopt);
}

TEST(Compare, ZerosDifferInSignByNoDistance) {
  EXPECT_EQ(relation(Format::f32, 0, kMinusZero), Relation::signed_zero);
  EXPECT_EQ(ulp_distance(Format::f32, 0, kMinusZero), 0U);
}

TEST(Compare, UlpsCountRepresentableValues) {
  EXPECT_EQ(ulp_distance(Format::f32, bits(1.0F), bits(1.0F) + 1), 1U);
  EXPECT_EQ(ulp_distance(Format::f32, bits(1.0F), bits(2.0F)), 1U << 23);
  EXPECT_EQ(ulp_distance(Format::f32, 1, kMinusZero + 1), 2U);  // over zero, from one subnormal to the other
  EXPECT_EQ(ulp_distance(Format::f32, bits(-3.4028235e38F), bits(3.4028235e38F)), 2ULL * 0x7f7fffff);
  EXPECT_EQ(ulp_distance(Format::e4m3, 0x7E, 0xFE), 2U * 0x7E);
  EXPECT_EQ(ulp_distance(Format::e4m3, 0x7E, 0x7F), std::nullopt);      // 448 against NaN
  EXPECT_EQ(ulp_distance(Format::e4m3fnuz, 0x01, 0x80), std::nullopt);  // 0x80 is its NaN
  EXPECT_EQ(ulp_distance(Format::f16, 0x3c00, 0x3c02), 2U);
  EXPECT_EQ(ulp_distance(Format::int8, 0xff, 0x01), 2U);  // -1 and 1
  EXPECT_EQ(ulp_distance(Format::i32, 0xffffffff, 5), 6U);
  EXPECT_EQ(ulp_distance(Format::e8m0, 0x7f, 0x81), 2U);
  EXPECT_EQ(ulp_distance(Format::e8m0, 0xff, 0x81), std::nullopt);
}

TEST(Compare, FindsTheFirstAndCountsAll) {
  const TensorData a = f32({bits(1), bits(2), kFullNan, 0, bits(5)});
  const TensorData b = f32({bits(1), bits(2) + 3, kFullNan, kMinusZero, kFullNan});
  const TensorComparison found = compare(a, b);
  EXPECT_TRUE(found.comparable);
  EXPECT_EQ(found.compared, 5U);
  EXPECT_EQ(found.differing, 3U);
  EXPECT_EQ(found.max_ulps, 3U);
  ASSERT_TRUE(found.first.has_value());
  EXPECT_EQ(found.first->index, 1);
  EXPECT_EQ(found.first->ulps, 3U);
  EXPECT_EQ(found.first->code_b, bits(2) + 3);
  EXPECT_EQ(found.first->relation, Relation::finite);
}

TEST(Compare, ANaNOnOneSideAloneIsADifferenceBothWays) {
  const TensorData healthy = f32({bits(1)});
  const TensorData sick = f32({kFullNan});
  EXPECT_EQ(compare(healthy, sick).differing, 1U);
  EXPECT_EQ(compare(sick, healthy).differing, 1U);
  EXPECT_EQ(compare(sick, sick).differing, 0U);
  EXPECT_EQ(compare(sick, f32({kQuietNan})).differing, 1U);
}

TEST(Compare, LengthsAndFormatsMustAgree) {
  EXPECT_FALSE(compare(f32({1, 2}), f32({1})).comparable);
  TensorData half = f32({1});
  half.format = Format::f16;
  EXPECT_FALSE(compare(f32({1}), half).comparable);
  TensorData tall = f32({1, 2});
  tall.tokens = 2;
  tall.channels = 1;
  EXPECT_FALSE(compare(f32({1, 2}), tall).comparable);
  TensorData torn = f32({1, 2});
  torn.bytes.pop_back();
  EXPECT_FALSE(compare(torn, torn).comparable);
}

TEST(Compare, EmptyTensorsAreEqual) {
  const TensorComparison found = compare(f32({}), f32({}));
  EXPECT_TRUE(found.comparable);
  EXPECT_EQ(found.compared, 0U);
  EXPECT_FALSE(found.first.has_value());
}

}  // namespace
}  // namespace nanscope
