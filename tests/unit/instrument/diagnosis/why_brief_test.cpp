#include "instrument/diagnosis/why_brief.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace nanscope::why_brief_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Hop element(float value, Format format = Format::f32) {
  Hop hop;
  hop.format = format;
  hop.value = value;
  hop.bad = !(value - value == 0);
  return hop;
}

/// Of which health alone is known.
Hop without_bits(bool bad) {
  Hop hop;
  hop.bad = bad;
  return hop;
}

Hop of_kind(HopKind kind) {
  Hop hop;
  hop.kind = kind;
  hop.bad = true;
  return hop;
}

WhyPath path(std::vector<Hop> hops, std::optional<std::size_t> origin = {}) {
  WhyPath made;
  made.hops = std::move(hops);
  made.origin = origin;
  return made;
}

TEST(WhyBrief, KeepsBothEndsAndTheOrigin) {
  const WhyPath walk = path({element(kNan), element(kNan), element(kNan), element(kNan), element(kNan)}, 2);
  EXPECT_THAT(hops_that_matter(walk), ElementsAre(0, 2, 4));
  EXPECT_THAT(hops_that_matter(path({element(1)})), ElementsAre(0));
  EXPECT_THAT(hops_that_matter({}), IsEmpty());
}

TEST(WhyBrief, KeepsWhatIsNoElement) {
  const WhyPath walk = path({element(kNan), element(kNan), of_kind(HopKind::slot), element(kNan), element(kNan),
                             of_kind(HopKind::weight), element(kNan), of_kind(HopKind::scale), element(kNan)});
  EXPECT_THAT(hops_that_matter(walk), ElementsAre(0, 2, 5, 7, 8));
}

TEST(WhyBrief, KeepsWhereAValueTurns) {
  const WhyPath walk =
      path({element(kNan), element(kNan), element(kInf), element(-kInf), element(2), element(3), element(4)});
  EXPECT_THAT(hops_that_matter(walk), ElementsAre(0, 2, 4, 6)) << "of two infinities the sign is no matter";
}

TEST(WhyBrief, WithoutBitsHealthDecides) {
  const WhyPath walk =
      path({element(kNan), without_bits(true), without_bits(true), without_bits(false), element(1), element(1)});
  EXPECT_THAT(hops_that_matter(walk), ElementsAre(0, 3, 5));
}

TEST(WhyBrief, CastsMatterBehindTheOrigin) {
  const std::vector<Hop> hops{
      element(kNan, Format::bf16), element(kNan), element(kNan), element(40), element(40), element(448, Format::e4m3),
      element(448, Format::e4m3)};
  EXPECT_THAT(hops_that_matter(path(hops, 2)), ElementsAre(0, 2, 3, 5, 6));
}

TEST(WhyBrief, WhatLiesBetweenTwoElementsHidesNoChange) {
  const std::vector<Hop> hops{element(kNan), element(40), of_kind(HopKind::slot), element(448, Format::e4m3),
                              of_kind(HopKind::scale)};
  EXPECT_THAT(hops_that_matter(path(hops, 0)), ElementsAre(0, 1, 2, 3, 4));
}

TEST(WhyBrief, JsonNumbersTheHopsOfTheWholeWalk) {
  const auto json = to_brief_json(path({element(kNan), element(kNan), element(kNan), element(1), element(1)}, 2));
  EXPECT_EQ(json["schema"], "nanscope.why/1");
  EXPECT_EQ(json["hops_in_all"], 5);
  EXPECT_EQ(json["origin"], 1);
  ASSERT_EQ(json["hops"].size(), 4U);
  EXPECT_EQ(json["hops"][1]["number"], 2);
  EXPECT_EQ(json["hops"][3]["number"], 4);
  EXPECT_TRUE(to_brief_json(path({element(1)}))["origin"].is_null());
}

}  // namespace
}  // namespace nanscope::why_brief_test
