#include "scenarios/report/moments_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace nanscope::report {
namespace {

using ::testing::HasSubstr;

TEST(MomentsReports, TextAndJsonHoldTheSame) {
  MomentsOptions options;
  options.form = "one-pass";
  const std::vector<double> values(1024, 11.2);
  const MomentsReport made = compute_moments(values, options).value();
  EXPECT_THAT(moments_text(made, {}), HasSubstr("one-pass  sequential  11.200113   -0.0034484863"));
  EXPECT_THAT(moments_text(made, {}), HasSubstr("NaN: variance + eps is negative"));
  const auto json = nlohmann::json::parse(moments_json(made));
  EXPECT_EQ(json["forms"].size(), 3U);
  EXPECT_EQ(json["forms"][0]["variance"], -452 * 0x1p-17);
  EXPECT_EQ(json["forms"][0]["inverse"], "nan");
  EXPECT_EQ(json["forms"][2]["inverse"], static_cast<double>(made.forms[2].inverse));
}

}  // namespace
}  // namespace nanscope::report
