#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

/// The most that a span of a run says; -1 without any.
std::int64_t largest_of(DumpRun& run) {
  std::int64_t largest = -1;
  for (const Step& step : run.steps()) {
    for (const Span& span : step.spans) largest = std::max({largest, span.rows, span.first_token, span.context});
  }
  return largest;
}

bool notes(DumpRun& run, const std::string& tensor) {
  const auto all = run.notes();
  return std::any_of(all.begin(), all.end(), [&](const RunNote& note) { return note.tensor == tensor; });
}

TEST(DamagedDump, LengthsThatNoSequenceHasPlaceNothing) {
  for (const double length : {0x1p40, 0x1p60, -0x1p62}) {
    MemoryDump dump;
    dump.add("model.layers.0.input_layernorm.output", "f32", {16, 8});
    dump.add("seq_lens", "i64", {16}, std::vector<double>(16, length));
    const auto run = dump.run();
    EXPECT_EQ(largest_of(*run), 16) << length;
    EXPECT_TRUE(notes(*run, "seq_lens")) << length;
  }
}

TEST(DamagedDump, PositionsThatNoSequenceHasPlaceNothing) {
  MemoryDump dump;
  dump.add("model.layers.0.input_layernorm.output", "f32", {2, 8});
  dump.add("positions", "i64", {2}, {0, 0x1p50});
  const auto run = dump.run();
  EXPECT_EQ(largest_of(*run), 2);
  EXPECT_TRUE(notes(*run, "positions"));
}

TEST(DamagedDump, AFolderThatCountsSecondsIsNoPosition) {
  MemoryDump dump;
  dump.add("step_0/model.layers.0.input_layernorm.output", "f32", {6, 8});
  dump.add("step_1700000000/model.layers.0.input_layernorm.output", "f32", {1, 8});
  const auto run = dump.run();
  ASSERT_EQ(run->steps().size(), 2U);
  EXPECT_EQ(largest_of(*run), 6);
  EXPECT_TRUE(notes(*run, "step_1700000000/model.layers.0.input_layernorm.output"));
}

TEST(DamagedDump, KeysThatStatisticsStateAreNoContext) {
  MemoryDump dump;
  dump.add("model.layers.0.input_layernorm.output", "f32", {1, 8});
  dump.add("model.layers.0.self_attn.scores", "f32", {2, 1, 6});
  dump.last().stated = true;
  dump.last().shape.back() = std::int64_t{1} << 50;
  const auto run = dump.run();
  EXPECT_EQ(largest_of(*run), 1);
}

void read_all(DumpRun& run) {
  for (const Step& step : run.steps()) {
    for (const Tensor& tensor : run.content(step.id).tensors) {
      run.rows(tensor);
      run.values(tensor);
    }
  }
}

constexpr std::int64_t kHuge = std::int64_t{1} << 57;

/// No byte bears out an extent beside a 0.
TEST(DamagedDump, ExtentsOfEmptyTensorsAreNoRows) {
  for (const char* name : {"lm_head.output", "model.layers.0.self_attn.probs", "model.layers.0.self_attn.q"}) {
    MemoryDump dump;
    dump.add(name, "f32", {kHuge, 0});
    const auto run = dump.run();
    for (const Step& step : run->steps()) EXPECT_EQ(step.rows, 0) << name;
    read_all(*run);
  }
}

TEST(DamagedDump, ABatchIsNotEmpty) {
  MemoryDump dump;
  dump.add("input_ids", "i64", {0, 4});
  dump.add("lm_head.output", "f32", {0, 3, 5});
  const auto run = dump.run();
  for (const Step& step : run->steps()) EXPECT_EQ(step.batch, 1);
}

TEST(DamagedDump, ExpertsThatStatisticsStateAreNotLookedFor) {
  MemoryDump dump;
  const std::string at = "model.layers.0.mlp.";
  dump.add(at + "gate.output", "f32", {1, 4});
  dump.last().shape.back() = std::int64_t{1} << 40;
  dump.last().stated = true;
  dump.add(at + "experts.output", "f32", {1, 8});
  const auto run = dump.run();
  EXPECT_NE(find_tensor(*run, at + "experts.output"), nullptr);
}

/// What is behind a projection of one layer, by its name without the step; null where there is none in the last step.
const Tensor* in_last_step(DumpRun& run, const std::string& name) {
  for (const Tensor& tensor : run.content(run.steps().back().id).tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

TEST(DamagedDump, TensorsOfOneNameInTwoFilesAreTwo) {
  const std::string at = "model.layers.0.self_attn.";
  MemoryDump dump;
  for (const std::string step : {"step_1/", "step_2/"}) {
    std::vector<double> made(48, 1);
    made[0] = 7;
    std::vector<double> called = made;
    if (step == "step_1/") std::swap(called[0], called[5]);
    dump.add(step + at + "k_proj.output", "f32", {6, 8}, made);
    dump.last().name = at + "k_proj.output";
    dump.add(step + at + "attn.k", "f32", {6, 8}, called);
    dump.last().name = at + "attn.k";
  }
  const auto run = dump.run();
  ASSERT_EQ(run->steps().size(), 2U);
  const Tensor* k = in_last_step(*run, at + "attn.k");
  ASSERT_NE(k, nullptr);
  EXPECT_EQ(run->maker(*k)->kind, OpKind::copy);
}

TEST(DamagedDump, AnInfinityIsNotEveryNumberOfAnotherFormat) {
  const std::string at = "model.layers.0.self_attn.";
  MemoryDump dump;
  std::vector<double> values(48, 1);
  values[0] = std::numeric_limits<double>::infinity();
  dump.add(at + "k_proj.output", "f32", {6, 8}, values);
  values[0] = 5;
  dump.add(at + "attn.k", "bf16", {6, 8}, values);
  const auto run = dump.run();
  EXPECT_EQ(run->maker(*find_tensor(*run, at + "attn.k"))->kind, OpKind::rope);
}

}  // namespace
}  // namespace nanscope
