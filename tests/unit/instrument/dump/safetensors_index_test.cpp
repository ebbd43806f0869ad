#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/files/output_file.h"
#include "instrument/dump/container.h"
#include "instrument/files/file.h"
#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

using testing::HasSubstr;

class ShardedFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy(std::filesystem::path(NANSCOPE_SOURCE_DIR) / "tests/golden/dumps/sharded", folder_.path());
  }

  void write_index(const std::string& text) {
    ASSERT_TRUE(write_output(index_, std::as_bytes(std::span(text)), {.replace = true}).has_value());
  }

  Result<std::unique_ptr<Container>> open() { return container_kind_of(index_, {})->open(index_); }

  std::string refusal(const std::string& text) {
    write_index(text);
    const auto container = open();
    return container ? "" : container.error().message.substr(index_.string().size());
  }

  TemporaryFolder folder_;
  const std::filesystem::path index_ = folder_ / "model.safetensors.index.json";
};

TEST_F(ShardedFiles, NameTheirShards) {
  const auto container = open();
  ASSERT_TRUE(container.has_value()) << container.error().message;
  EXPECT_EQ((*container)->tensors().size(), 3U);
  EXPECT_THAT((*container)->parts(), testing::ElementsAre(folder_ / "model-00001-of-00002.safetensors",
                                                          folder_ / "model-00002-of-00002.safetensors"));
}

TEST_F(ShardedFiles, MissingOnesAreSaid) {
  std::filesystem::remove(folder_ / "model-00001-of-00002.safetensors");
  const auto container = open();
  ASSERT_TRUE(container.has_value()) << container.error().message;
  EXPECT_EQ((*container)->tensors().size(), 1U);
  ASSERT_EQ((*container)->skipped().size(), 2U);
  EXPECT_EQ((*container)->skipped()[0].reason, "its shard model-00001-of-00002.safetensors is missing");
}

TEST_F(ShardedFiles, DamagedOnesCostTheirTensorsAlone) {
  const auto shard = folder_ / "model-00001-of-00002.safetensors";
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
  const auto container = open();
  ASSERT_TRUE(container.has_value()) << container.error().message;
  EXPECT_EQ((*container)->tensors().size(), 1U);
  ASSERT_EQ((*container)->skipped().size(), 2U);
  EXPECT_THAT((*container)->skipped()[0].reason,
              testing::AllOf(HasSubstr("its shard model-00001-of-00002.safetensors cannot be read: "),
                             HasSubstr(shard.string()), HasSubstr("(truncated?)")));
  EXPECT_EQ((*container)->skipped()[1].reason, "its shard model-00001-of-00002.safetensors cannot be read");
}

TEST_F(ShardedFiles, TensorsThatAShardLacksAreSaid) {
  write_index(R"({"weight_map":{"a":"model-00002-of-00002.safetensors"}})");
  const auto container = open();
  ASSERT_TRUE(container.has_value()) << container.error().message;
  ASSERT_EQ((*container)->skipped().size(), 2U);
  EXPECT_EQ((*container)->skipped()[0].key, "a");
  EXPECT_EQ((*container)->skipped()[0].reason,
            "the index puts it in model-00002-of-00002.safetensors, which does not hold it");
  EXPECT_EQ((*container)->skipped()[1].reason,
            "model-00002-of-00002.safetensors holds it and the index does not list it");
}

TEST_F(ShardedFiles, IndexIsChecked) {
  EXPECT_THAT(refusal(R"({"weight_map":{"a":"../x.safetensors"}})"),
              HasSubstr(": offset 0: weight_map: the shard '../x.safetensors' of 'a' leaves its folder"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a":"/etc/passwd"}})"), HasSubstr("is absolute"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a":"b\\..\\c"}})"), HasSubstr("holds a backslash"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a":7}})"), HasSubstr("'a' is no text"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a":"b","a":"c"}})"), HasSubstr("names 'a' twice"));
  EXPECT_THAT(refusal(R"({"weights":{}})"), HasSubstr("no object weight_map"));
  EXPECT_THAT(refusal(R"([])"), HasSubstr("no object weight_map"));
  EXPECT_THAT(refusal(R"({"weight_map":)"), HasSubstr(": offset 14: not JSON here"));
  EXPECT_THAT(refusal(R"({"a":NaN})"), HasSubstr(": offset 5: not JSON here"));
  EXPECT_THAT(refusal(R"({"a":1e999})"), HasSubstr("beyond the range"));
  EXPECT_THAT(refusal(std::string(100'000, '[')), HasSubstr("nested too deeply"));
}

}  // namespace
}  // namespace nanscope
