#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/core/dump/memory_dump.h"

/// Dumps whose names, extents or metadata are not what a server writes.
namespace nanscope {
namespace {

using testing::find_tensor;
using testing::MemoryDump;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(DamagedDump, ParametersOfEveryFormHaveANameOfTheirOwn) {
  MemoryDump dump;
  dump.add("h.0.attn.masked_bias", "f32", {8});
  const auto run = dump.run();
  const Tensor* bias = find_tensor(*run, "h.0.attn.masked_bias");
  ASSERT_NE(bias, nullptr);
  EXPECT_TRUE(run->maker(*bias)->name.ends_with("_masked")) << run->maker(*bias)->name;
}

/// A decode step: one row of a fused projection, q and k and v of 8 channels each.
MemoryDump fused_decode(double value) {
  MemoryDump dump;
  const std::string at = "model.layers.0.";
  std::vector<double> qkv(24, 1);
  qkv[10] = value;
  dump.add(at + "input_layernorm.output", "f32", {1, 8});
  dump.add(at + "self_attn.qkv_proj.output", "f32", {1, 24}, qkv);
  dump.add(at + "self_attn.o_proj.output", "f32", {1, 8});
  return dump;
}

TEST(DamagedDump, AOneRowPartOfAFusedProjectionKeepsItsNaN) {
  MemoryDump dump = fused_decode(kNaN);
  const auto run = dump.run();
  const Op* op = run->find_op(run->steps().front().id, 0, "k_proj");
  ASSERT_NE(op, nullptr);
  const Tensor* k = run->result(*op);
  EXPECT_EQ(k->health.nan, 1U);
  ASSERT_EQ(run->rows(*k).size(), 1U);
  EXPECT_EQ(run->rows(*k)[0].nan, 1U);
}

TEST(DamagedDump, AOneRowHalfOfACacheKeepsItsNaN) {
  MemoryDump dump = fused_decode(1);
  std::vector<double> cache(16, 1);
  cache[9] = kNaN;
  dump.add("model.layers.0.self_attn.kv_cache", "f32", {2, 1, 2, 4}, cache);
  const auto run = dump.run();
  const Op* store = run->find_op(run->steps().front().id, 0, "kv_store");
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(run->output(*store, "k_cache")->health.nan, 0U);
  EXPECT_EQ(run->output(*store, "v_cache")->health.nan, 1U);
}

/// Of what was measured without elements nobody knows which part holds the NaN.
TEST(DamagedDump, APartOfStatisticsIsNotHealthy) {
  MemoryDump dump;
  dump.add("model.layers.0.input_layernorm.output", "f32", {6, 8});
  dump.add("model.layers.0.self_attn.qkv_proj.output", "f32", {6, 24});
  dump.last().stated = true;
  dump.last().health.nan = 1;
  dump.add("model.layers.0.self_attn.o_proj.output", "f32", {6, 8});
  const auto run = dump.run();
  const Op* op = run->find_op(run->steps().front().id, 0, "k_proj");
  ASSERT_NE(op, nullptr);
  EXPECT_FALSE(run->result(*op)->known);
}

}  // namespace
}  // namespace nanscope
