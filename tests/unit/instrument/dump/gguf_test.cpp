// GGUF files among dumps: weights under the names of the checkpoint, decoded where they are blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "instrument/dump/container.h"
#include "tests/temporary_folder.h"
#include "tests/unit/instrument/gguf/gguf_builder.h"

namespace nanscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_gguf::Builder;

Result<std::unique_ptr<Container>> opened(const TemporaryFolder& folder, const Builder& file) {
  const std::vector<std::byte> bytes = file.build();
  const auto path = folder / "m.gguf";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  const ContainerKind* kind = container_kind_of("m.bin", std::span(bytes).first(16));
  EXPECT_NE(kind, nullptr);
  EXPECT_EQ(kind->name, "gguf");
  return kind->open(path);
}

std::vector<float> values_of(const Container& container, std::size_t tensor) {
  const auto bytes = container.bytes(tensor);
  EXPECT_TRUE(bytes);
  std::vector<float> values(bytes->bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes->bytes.data(), bytes->bytes.size());
  return values;
}

/// A block of Q8_0 under a scale of 2 or 4, whose codes count from 0.
std::vector<std::byte> counted_block(int scale) {
  std::vector<std::byte> block = {std::byte{0}, scale == 2 ? std::byte{0x40} : std::byte{0x44}};
  for (int i = 0; i < 32; ++i) block.push_back(static_cast<std::byte>(i));
  return block;
}

TEST(GgufContainers, HoldWeightsUnderTheirOriginalNames) {
  const TemporaryFolder folder;
  Builder file;
  file.text("general.architecture", "llama").u32("llama.attention.head_count", 1).u32("llama.block_count", 1);
  file.floats("blk.0.attn_k.weight", {1, 4}, {0, 2, 1, 3}).floats("blk.0.attn_v.weight", {1, 4}, {0, 2, 1, 3});
  file.tensors.push_back({"blk.0.ffn_up.weight", {32}, 8, counted_block(2)});
  file.tensors.push_back({"blk.1.ffn_up.weight", {32}, 8, counted_block(4)});
  file.tensors.push_back({"other", {4}, 41, std::vector<std::byte>(4)});
  const auto container = opened(folder, file);
  ASSERT_TRUE(container) << container.error().message;
  const auto tensors = (*container)->tensors();
  ASSERT_EQ(tensors.size(), 4U);
  EXPECT_EQ(tensors[0].key, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_FALSE(tensors[0].decoded);
  EXPECT_THAT(values_of(**container, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(values_of(**container, 1), ElementsAre(0, 2, 1, 3));
  EXPECT_EQ(tensors[2].key, "model.layers.0.mlp.up_proj.weight");
  EXPECT_TRUE(tensors[2].decoded);
  EXPECT_EQ(tensors[2].dtype->name, "f32");
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(values_of(**container, 2)[31], 62);
    EXPECT_EQ(values_of(**container, 3)[31], 124);
  }
  // What was decoded is kept: a product asks for its weight once a row.
  const auto first = (*container)->bytes(2);
  const auto between = (*container)->bytes(3);
  EXPECT_EQ(first->bytes.data(), (*container)->bytes(2)->bytes.data());
  ASSERT_EQ((*container)->skipped().size(), 1U);
  EXPECT_EQ((*container)->skipped()[0].reason, "type 41 is not decoded");
  EXPECT_EQ((*container)->metadata().at("general.architecture"), "llama");
  EXPECT_TRUE((*container)->check());
}

TEST(GgufContainers, OfUnknownModelsKeepTheirNames) {
  const TemporaryFolder folder;
  Builder file;
  file.text("general.architecture", "clip").floats("v.blk.0.attn_q.weight", {1, 4}, {0, 2, 1, 3});
  const auto container = opened(folder, file);
  ASSERT_TRUE(container) << container.error().message;
  EXPECT_EQ((*container)->tensors()[0].key, "v.blk.0.attn_q.weight");
  EXPECT_THAT(values_of(**container, 0), ElementsAre(0, 2, 1, 3));
}

TEST(GgufContainers, AreRefusedWhereTheyAreDamaged) {
  const TemporaryFolder folder;
  Builder file;
  file.version = 1;
  const auto container = opened(folder, file);
  ASSERT_FALSE(container);
  EXPECT_THAT(container.error().message, HasSubstr("m.gguf: offset 4: version 1"));
}

}  // namespace
}  // namespace nanscope
