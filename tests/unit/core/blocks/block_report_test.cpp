#include "core/blocks/block_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace nanscope {
namespace {

using ::testing::HasSubstr;

BlockReportOptions block(std::string preset, std::vector<std::string> values) {
  BlockReportOptions options;
  options.preset = std::move(preset);
  options.values = std::move(values);
  return options;
}

TEST(BlockReport, ShowsTheScaleTheElementsAndWhatOthersWouldMake) {
  const Result<std::string> text = block_text(block("mxfp4", {"0.1", "3", "-0.5", "6.2"}));
  ASSERT_TRUE(text);
  EXPECT_EQ(text->substr(0, text->find("\nWhat others")),
            R"(mxfp4: 1 x 32 e2m1 under e8m0 (OCP MX 1.0, E2M1 elements)

scale 0x7f = 1, set by element 3 (6.2): 2^(floor(log2 6.2) - 2)
     E  E  E  E  E E E E
  ┌──────────────────────┐
  │  0  1  1  1  1 1 1 1 │  0x7f = 0b01111111
  └──────────────────────┘
    128 64 32 16 8 4 2 1

     #         given       scaled  code                  value     read back
     0           0.1          0.1   0x0 0_00_0               0             0  0.1 lost (100 %), flushed to 0
     1             3            3   0x5 0_10_1               3             3  exact
     2          -0.5         -0.5   0x9 1_00_1            -0.5          -0.5  exact
     3           6.2          6.2   0x7 0_11_1               6             6  0.2 lost (3.23 %), clipped, set the scale

4 of 32 elements; 1 clipped, 1 flushed to 0, rms lost 0.111803; ties go to even

Other rules for the scale
  scale                 clipped flushed    rms lost  who
> 0x7f     1                  1       1    0.111803  floor even
  0x80     2                  0       2    0.273861  ceil rceil
)");
  EXPECT_THAT(*text, HasSubstr("mxfp4-rceil mxfp4-torchao-rceil"));
}

TEST(BlockReport, IsTheSameInJson) {
  BlockReportOptions options = block("nvfp4-modelopt", {"1", "0.1", "nan"});
  options.second = 0.01;
  const Result<std::string> text = block_json(options);
  ASSERT_TRUE(text);
  const auto json = nlohmann::json::parse(*text);
  EXPECT_EQ(json["schema"], "nanscope.bits.block/1");
  EXPECT_EQ(json["scale"]["code"], "0x7f") << "a NaN in the block";
  EXPECT_EQ(json["scale"]["set_by"], 2);
  EXPECT_FLOAT_EQ(json["second"].get<float>(), 0.01F);
  EXPECT_TRUE(json["elements"][0]["read"].is_null());
  // 1 / 6 is 0.1667, in e4m3 0.171875: 1 is 5.8 of it, 6 in e2m1, and read as 1.03125.
  const Result<std::string> healthy = block_json(block("nvfp4-gguf", {"1", "0.1"}));
  EXPECT_FLOAT_EQ(nlohmann::json::parse(*healthy)["elements"][0]["read"].get<float>(), 1.03125F);
}

TEST(BlockReport, ListsWhoWritesWhat) {
  EXPECT_THAT(block_list(), HasSubstr("q8_0                     1 x 32 int8 under f16       gguf 0.19.0\n"));
}

TEST(BlockReport, RefusesWhatIsNoBlock) {
  const auto error = [](const BlockReportOptions& options) {
    const Result<std::string> text = block_text(options);
    return text ? std::string() : text.error().message;
  };
  EXPECT_THAT(error(block("mxfp5", {"1"})), HasSubstr("unknown block format 'mxfp5'; bits --block list"));
  EXPECT_THAT(error(block("mxfp4", {"1", "x"})), HasSubstr("'x' is no number"));
  EXPECT_THAT(error(block("mxfp4", {})), HasSubstr("which values"));
  EXPECT_EQ(error(block("nvfp4", std::vector<std::string>(17, "1"))),
            "a block of nvfp4 has 16 elements; 17 were given");
  BlockReportOptions negative = block("nvfp4", {"1"});
  negative.second = -1;
  EXPECT_THAT(error(negative), HasSubstr("finite and positive"));
}

}  // namespace
}  // namespace nanscope
