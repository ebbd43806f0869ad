#include "instrument/diagnosis/server_settings.h"

#include <gtest/gtest.h>

namespace nanscope {
namespace {

TEST(ServerSettings, OfACacheAndOfAllThatABlockIsSharedWith) {
  const auto locked = server_settings("kv-scale-locked", OpKind::kv_store);
  ASSERT_EQ(locked.size(), 3U);
  EXPECT_EQ(locked[0].server, "vLLM");
  EXPECT_EQ(locked[0].setting, "--kv-cache-dtype auto");
  EXPECT_EQ(server_settings("prefix-cache-poison", OpKind::attention)[1].setting, "--disable-radix-cache");
}

TEST(ServerSettings, AScaleOfAProductHasNone) {
  EXPECT_EQ(server_settings("scale-misapplied", OpKind::kv_read).size(), 3U);
  EXPECT_TRUE(server_settings("scale-misapplied", OpKind::gemm).empty());
  EXPECT_TRUE(server_settings("wrong-result", OpKind::kv_read).empty());
}

}  // namespace
}  // namespace nanscope
