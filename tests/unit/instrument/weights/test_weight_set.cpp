#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/files/output_file.h"
#include "instrument/weights/weight_set.h"
#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

class WeightSets : public testing::Test {
 protected:
  TemporaryFolder folder_;
  const std::filesystem::path& directory_ = folder_.path();
};

TEST_F(WeightSets, AreSavedAndOpened) {
  WeightSet set;
  ASSERT_TRUE(set.add("w", 2, 3, {1, 2, 3, 4, 5, 6}).has_value());
  ASSERT_TRUE(set.add("bias", 1, 2, {7, 8}).has_value());
  EXPECT_FALSE(set.add("w", 1, 1, {0}).has_value());
  EXPECT_FALSE(set.add("odd", 2, 2, {0}).has_value());
  const auto path = directory_ / "model.safetensors";
  ASSERT_TRUE(set.save(path).has_value());
  const auto opened = WeightSet::open(path);
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  EXPECT_EQ(opened->names(), (std::vector<std::string>{"bias", "w"}));
  EXPECT_EQ(opened->values("w", 2, 3).value(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(opened->values("w", 3, 2).error().message, "weight 'w' is 2x3, expected 3x2");
  EXPECT_EQ(opened->values("v", 3, 2).error().message, "weight 'v' is missing, expected 3x2");
}

TEST_F(WeightSets, DecodeTheFormatTheyAreStoredIn) {
  const std::vector<std::uint16_t> bf16 = {0x3F80, 0xC020};  // 1, -2.5
  const std::vector<std::uint8_t> e4m3 = {0x7E, 0x38};       // 448, 1
  const auto bytes = encode_safetensors({{"b", "BF16", {2}, std::as_bytes(std::span(bf16))},
                                         {"e", "F8_E4M3", {2, 1, 1}, std::as_bytes(std::span(e4m3))}});
  const auto path = directory_ / "model.safetensors";
  ASSERT_TRUE(write_output(path, *bytes, {.replace = true}).has_value());
  const auto set = WeightSet::open(path);
  ASSERT_TRUE(set.has_value()) << set.error().message;
  EXPECT_EQ(set->find("b")->format, Format::bf16);
  EXPECT_EQ(set->values("b", 1, 2).value(), (std::vector<float>{1.0F, -2.5F}));
  EXPECT_EQ(set->values("e", 2, 1).value(), (std::vector<float>{448.0F, 1.0F}));
}

TEST_F(WeightSets, RefuseOtherDtypes) {
  const std::vector<double> values = {1};
  const auto bytes = encode_safetensors({{"d", "F64", {1}, std::as_bytes(std::span(values))}});
  const auto path = directory_ / "model.safetensors";
  ASSERT_TRUE(write_output(path, *bytes, {.replace = true}).has_value());
  EXPECT_EQ(WeightSet::open(path).error().message,
            path.string() + ": weight 'd' has dtype F64, expected a float format of at most 32 bits, I32 or I8");
}

}  // namespace
}  // namespace nanscope
