// Runs whose attention goes over blocks of keys: recorded, replayed, done again and walked back like any other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/run/find_place.h"
#include "core/run/recording_view.h"
#include "instrument/diagnosis/facts.h"
#include "instrument/diagnosis/why.h"
#include "instrument/policies/operands.h"
#include "instrument/recompute/kernel_arithmetic.h"
#include "instrument/recompute/recompute.h"
#include "scenarios/analysis.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"
#include "scenarios/scenario.h"

namespace nanscope::scenarios {
namespace {

using ::testing::HasSubstr;

Workbench& split_bench() {
  static const std::unique_ptr<Workbench> made = *Workbench::open("cpu", 2);
  return *made;
}

/// A random model of two layers on a prompt of more than two blocks.
RunSpec split_spec(const std::vector<std::string>& settings) {
  const auto scenario = load_scenario(NANSCOPE_SOURCE_DIR "/scenarios/leaky-mxfp4-values.toml");
  EXPECT_TRUE(scenario) << scenario.error().message;
  RunSpec spec = *resolve(*scenario);
  std::vector<std::string> all{"attention.blocks_q=", "attention.blocks_k=", "attention.blocks_v=",
                               "attention.blocks_p=", "attention.split=32",  "model.kv_heads=1"};
  all.insert(all.end(), settings.begin(), settings.end());
  const Status set = apply_settings(spec.config, all);
  EXPECT_TRUE(set) << set.error().message;
  return spec;
}

Recorded recorded(const std::vector<std::string>& settings, const RunControl& control = {}) {
  RecordOptions options;
  options.capture = "all";
  options.control = control;
  auto made = record(split_bench(), split_spec(settings), options);
  EXPECT_TRUE(made) << made.error().message;
  return *std::move(made);
}

const std::vector<std::vector<std::string>> kSettings{{},
                                                      {"attention.mask=additive"},
                                                      {"attention.mask=multiply"},
                                                      {"model.window=40"},
                                                      {"kv.format=e4m3", "kv.policy=per_token"},
                                                      {"kv.format=e4m3", "attention.fused=true"},
                                                      {"activation.format=bf16"},
                                                      {"engine.batch=2", "engine.chunk=19"}};

TEST(SplitAttentionRun, ReplaysBitForBit) {
  for (const auto& settings : kSettings) {
    const Recorded run = recorded(settings);
    const auto report = replay(split_bench(), run.recording);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->same()) << report->divergence->place;
    EXPECT_EQ(report->verified, report->tensors);
  }
}

/// Each op of the blocks comes out of its inputs, within the bounds of recompute, and nothing is found.
TEST(SplitAttentionRun, IsDoneAgainAndClean) {
  for (const auto& settings : kSettings) {
    const Recorded run = recorded(settings);
    RecordingTensors tensors(run.recording);
    const auto found = analyse(run.recording, tensors, "x");
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_TRUE(found->diagnosis.healthy()) << (settings.empty() ? "" : settings.front());
    RecordingRun rows(run.recording);
    RecordingView view(rows, tensors);
    Facts facts(view);
    KernelArithmetic arithmetic;
    Recomputer again(facts, arithmetic);
    std::vector<StepId> steps;
    for (const Step& step : view.steps()) steps.push_back(step.id);
    again.run(steps);
    std::int64_t of_blocks = 0;
    for (const Recomputed& one : again.results()) {
      const OpKind kind = view.op(one.op)->kind;
      const bool own = kind == OpKind::softmax_partials || kind == OpKind::mix_partials ||
                       kind == OpKind::combine_partials || kind == OpKind::softmax;
      if (!own) continue;
      ++of_blocks;
      EXPECT_EQ(one.share(), 1.0) << view.op(one.op)->name << " " << view.tensor(one.tensor)->role << " "
                                  << one.worst.actual << " instead of " << one.worst.expected;
      EXPECT_GT(one.elements, 0);
    }
    EXPECT_GE(of_blocks, 2 * 5 * 4) << "five outputs in each of two layers and four steps";
  }
}

std::vector<std::string> tensors_of(const WhyPath& path) {
  std::vector<std::string> found;
  for (const Hop& hop : path.hops) found.push_back(hop.where.op + "." + hop.where.role);
  return found;
}

/// Token 40 of the prompt becomes NaN. What it makes of a later row is walked back by way of the block that it is in.
TEST(SplitAttentionRun, ANanIsWalkedBackThroughItsBlock) {
  RunControl control;
  control.edit_embedding = [](kernels::Device& device, const kernels::TensorView& view, const StepRow&) -> Status {
    if (view.rows <= 40) return {};
    const std::vector<float> nan(static_cast<std::size_t>(view.columns), std::numeric_limits<float>::quiet_NaN());
    return device.upload(static_cast<float*>(view.data) + 40 * view.stride, std::as_bytes(std::span(nan)));
  };
  const Recorded run = recorded({}, control);
  RecordingTensors tensors(run.recording);
  RecordingRun rows(run.recording);
  RecordingView view(rows, tensors);
  const auto place = find_place(view, "0/0/0/attn_mix.out[60]");
  ASSERT_TRUE(place) << place.error().message;
  const auto path = why(view, {place->tensor->id, 60, 3});
  ASSERT_TRUE(path) << path.error().message;
  const std::vector<std::string> way = tensors_of(*path);
  EXPECT_THAT(way, ::testing::IsSupersetOf({"attn_mix.out", "mix_partials.partials", "softmax.probs",
                                            "softmax_partials.sum", "scores.out"}));
  const auto sum = std::find(way.begin(), way.end(), "softmax_partials.sum") - way.begin();
  EXPECT_THAT(path->hops[static_cast<std::size_t>(sum - 1)].text, HasSubstr("the sum of block 1 of"));
  const auto scores = find_place(view, "0/0/0/scores.out[60]");
  ASSERT_TRUE(scores) << scores.error().message;
  const Where& score = path->hops[static_cast<std::size_t>(sum + 1)].where;
  ASSERT_TRUE(score.channels.has_value());
  EXPECT_EQ(score.channels->first % (scores->tensor->channels / 2), 40) << "the key";
  // A healthy row goes to the block and the key that weigh most.
  const auto healthy = why(view, {place->tensor->id, 20, 3});
  ASSERT_TRUE(healthy) << healthy.error().message;
  EXPECT_FALSE(healthy->origin.has_value());
  EXPECT_THAT(healthy->hops.front().text, HasSubstr("most of block 0"));
}

/// What KV policies are tried on: values of each span, read block by block, and the attention's own output.
TEST(SplitAttentionRun, PoliciesFindItsOperands) {
  const Recorded run = recorded({"engine.batch=2", "engine.chunk=19"});
  RecordingTensors tensors(run.recording);
  RecordingRun rows(run.recording);
  RecordingView view(rows, tensors);
  const Step& step = view.steps().back();
  const AttentionOps ops = attention_ops(view, step, 1);
  ASSERT_NE(ops.mix, nullptr);
  EXPECT_EQ(ops.mix->kind, OpKind::combine_partials);
  ASSERT_EQ(ops.partial_mixes.size(), step.spans.size());
  const AttentionOperand v = find_operand(view, ops, step, 0, "v");
  ASSERT_NE(v.cached, nullptr);
  EXPECT_EQ(v.cached->role, "v_read");
  EXPECT_EQ(view.result(*ops.mix)->channels, 64);
}

/// Attention's poisoned tail is found as before: recycled-block-bits, its attention in blocks.
TEST(SplitAttentionRun, DetectorsSeeThroughBlocks) {
  const auto scenario = load_scenario(NANSCOPE_SOURCE_DIR "/scenarios/recycled-block-bits.toml");
  ASSERT_TRUE(scenario) << scenario.error().message;
  RunSpec spec = *resolve(*scenario);
  ASSERT_TRUE(apply_settings(spec.config, std::vector<std::string>{"attention.split=32"}));
  RecordOptions options;
  options.capture = "all";
  const auto made = record(split_bench(), spec, options);
  ASSERT_TRUE(made) << made.error().message;
  RecordingTensors tensors(made->recording);
  const auto found = analyse(made->recording, tensors, "x");
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_TRUE(found->diagnosis.root_cause.has_value());
  EXPECT_EQ(found->diagnosis.faults[*found->diagnosis.root_cause].fault_class, "masked-tail-poison");
}

}  // namespace
}  // namespace nanscope::scenarios
