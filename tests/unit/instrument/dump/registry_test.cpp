#include <gtest/gtest.h>

#include <string>

#include "instrument/dump/container.h"
#include "instrument/files/file.h"

namespace nanscope {
namespace {

std::string kind(const std::string& name, std::string_view head) {
  const ContainerKind* found = container_kind_of(name, std::as_bytes(std::span(head)));
  return found == nullptr ? "" : std::string(found->name);
}

constexpr std::string_view kNpy("\x93NUMPY\x01\x00\x76\x00{'descr", 16);
constexpr std::string_view kSafetensors("\x40\0\0\0\0\0\0\0{\"__meta", 16);

TEST(ContainerKinds, AreKnownByTheirFirstBytes) {
  EXPECT_EQ(kind("dump", kNpy), "npy");
  EXPECT_EQ(kind("dump.bin", kSafetensors), "safetensors");
  EXPECT_EQ(kind("wrong.safetensors", kNpy), "npy");
  // npz and pt are both zip: their names decide, and torch is the better guess.
  EXPECT_EQ(kind("dump.npz", "PK\x03\x04 and more"), "npz");
  EXPECT_EQ(kind("pytorch_model.bin", "PK\x03\x04 and more"), "pt");
  EXPECT_EQ(kind("__0_0.distcp", "PK\x03\x04 and more"), "dcp");
  EXPECT_EQ(kind("old.bin", "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."), "pt");
  EXPECT_EQ(kind("logits.bin", "0123456789abcdef"), "");
  EXPECT_EQ(kind("notes.txt", "0123456789abcdef"), "");
}

TEST(ContainerKinds, ShardsOfDistributedCheckpointsAreRefusedWithTheWayToConvertThem) {
  const auto opened = container_kind_of("__0_0.distcp", {})->open("folder/__0_0.distcp");
  ASSERT_FALSE(opened);
  EXPECT_TRUE(opened.error().message.starts_with("folder/__0_0.distcp: a shard of torch.distributed.checkpoint"));
  EXPECT_NE(opened.error().message.find("dcp_to_torch"), std::string::npos);
}

/// What is damaged must be refused by its reader, not overlooked.
TEST(ContainerKinds, AreKnownByTheirNameWhenTheBytesAreDamaged) {
  EXPECT_EQ(kind("a.npy", ""), "npy");
  EXPECT_EQ(kind("a.safetensors", "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"), "safetensors");
  EXPECT_EQ(kind("folder/model.safetensors.index.json", "{\n"), "safetensors-index");
  EXPECT_EQ(kind("config.json", "{\n"), "");
}

TEST(ContainerKinds, HaveNamesOfTheirOwn) {
  for (const ContainerKind& one : container_kinds()) {
    for (const ContainerKind& other : container_kinds()) {
      EXPECT_TRUE(&one == &other || one.name != other.name) << one.name;
    }
  }
}

}  // namespace
}  // namespace nanscope
