#include "instrument/moments/moments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace nanscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> values(const std::vector<std::string>& words) { return parse_moments_values(words).value(); }

/// The only entry of a report with one form and one order.
Moments one(const std::vector<std::string>& words, MomentsOptions options) {
  const MomentsReport report = compute_moments(values(words), options).value();
  EXPECT_EQ(report.forms.size(), 1U);
  return report.forms.front();
}

TEST(MomentsValues, ACountRepeatsTheValueBeforeIt) {
  EXPECT_THAT(values({"1", "2", "x", "3", "-4"}), ElementsAre(1, 2, 2, 2, -4));
  EXPECT_THAT(values({"1", "x2", "nan"}), ElementsAre(1, 1, ::testing::IsNan()));
}

TEST(MomentsValues, WhatIsNoNumberOrCountIsNamed) {
  const auto error = [](const std::vector<std::string>& words) {
    const auto read = parse_moments_values(words);
    return read ? std::string("no error") : read.error().message;
  };
  EXPECT_THAT(error({}), HasSubstr("no value given"));
  EXPECT_THAT(error({"1", "zwei"}), HasSubstr("'zwei' is no number"));
  EXPECT_THAT(error({"x", "3"}), HasSubstr("'3' is no count"));
  EXPECT_THAT(error({"1", "x", "0"}), HasSubstr("'0' is no count"));
  EXPECT_THAT(error({"1", "x"}), HasSubstr("expected VALUE x COUNT"));
  EXPECT_THAT(error({"1", "x", "9999999"}), HasSubstr("9999999 values are more than 1048576"));
}

/// n copies of 11.2f: published multiples of 2^-17, as in the tests of the kernel.
TEST(MomentsForms, EqualValuesHaveThePublishedVariances) {
  EXPECT_EQ(one({"11.2", "x8"}, {.form = "one-pass", .order = "sequential"}).variance, 3 * 0x1p-17F);
  EXPECT_EQ(one({"11.2", "x1024"}, {.form = "one-pass", .order = "sequential"}).variance, -452 * 0x1p-17F);
  EXPECT_EQ(one({"11.2", "x1024"}, {.form = "one-pass", .order = "warp"}).variance, -11 * 0x1p-17F);
  EXPECT_EQ(one({"11.2", "x1024"}, {.form = "one-pass", .order = "pairwise"}).variance, 0);
  EXPECT_NEAR(one({"11.2", "x8"}, {.form = "one-pass-fused", .order = "pairwise"}).variance, -9.155e-7, 1e-10);
  EXPECT_EQ(one({"11.2", "x8"}, {.form = "welford", .order = "sequential"}).variance, 0);
}

TEST(MomentsForms, ANegativeVariancePlusEpsHasNoRoot) {
  EXPECT_TRUE(std::isnan(one({"11.2", "x1024"}, {.form = "one-pass", .order = "sequential"}).inverse));
  EXPECT_FALSE(std::isnan(one({"11.2", "x1024"}, {.eps = 1, .form = "one-pass", .order = "sequential"}).inverse));
}

TEST(MomentsForms, ValuesAreRoundedToTheirFormatFirst) {
  const MomentsReport report = compute_moments(values({"11.2", "1e5"}), {.format = Format::f16}).value();
  EXPECT_THAT(report.values, ElementsAre(11.203125F, INFINITY));
  const MomentsReport known = compute_moments(values({"1", "2", "3", "4"}), {.eps = 0.75F}).value();
  EXPECT_EQ(known.exact.mean, 2.5);
  EXPECT_EQ(known.exact.variance, 1.25);
  EXPECT_EQ(known.exact.inverse, 1 / std::sqrt(2.0));
  EXPECT_EQ(known.forms.size(), moments_forms().size() * sum_orders().size());
  for (const Moments& form : known.forms) EXPECT_EQ(form.variance, 1.25F);
}

TEST(MomentsForms, UnknownNamesAndEpsAreRefused) {
  const auto error = [](const MomentsOptions& options) {
    const auto made = compute_moments({{1.0}}, options);
    return made ? std::string("no error") : made.error().message;
  };
  EXPECT_THAT(error({.form = "three-pass"}), HasSubstr("unknown form 'three-pass'; known: one-pass,"));
  EXPECT_THAT(error({.order = "random"}), HasSubstr("unknown order 'random'"));
  EXPECT_THAT(error({.eps = -1}), HasSubstr("eps -1"));
}

}  // namespace
}  // namespace nanscope
