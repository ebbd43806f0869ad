// What splitting a long context into blocks of keys is worth in a decode step, counted on executed PTX: warps that run
// at once, and instructions of one warp after another that nothing can shorten.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops/attention_mix.h"
#include "kernels/ops/combine_partials.h"
#include "kernels/ops/softmax_partials.h"
#include "tests/ptx/ptx_device.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::ptx {
namespace {

using kernels::blocks_of;
using kernels::cases::CaseMemory;
using kernels::cases::Fill;
using kernels::cases::OpCase;

constexpr std::int64_t kContext = 32768;
constexpr std::int64_t kHeads = 32;
constexpr std::int64_t kKvHeads = 8;
constexpr std::int64_t kWidth = 128;

/// A launch of the step: how many warps, and what the one that takes longest executes.
struct Step {
  std::string op;
  std::int64_t warps = 0;
  std::uint64_t longest = 0;
};

/// One head of keys is run, whose warps are as long as those of all heads; the context ends where its blocks do, so
/// that all warps of a launch are alike.
class PtxSplit : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto made = PtxDevice::create(NANSCOPE_OPS_PTX);
    ASSERT_TRUE(made) << made.error().message;
    device_ = std::move(*made);
  }
  static void TearDownTestSuite() { device_.reset(); }

  static kernels::TensorView ordinary(CaseMemory& memory, std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
    return memory.input(Format::f32, rows, columns, fill(Fill::ordinary, Format::f32, rows, columns, seed));
  }

  /// `warps` are those of the whole step, `run` those of what is run.
  template <class Build>
  static Step executed(const std::string& op, std::int64_t warps, std::int64_t run, const Build& build) {
    device_->machine().forget_counts();
    const auto ran = kernels::cases::run_case({op, kernels::OpId::Softmax, build}, *device_);
    EXPECT_TRUE(ran) << op << ": " << ran.error().message;
    const std::uint64_t all = device_->machine().counts().warp_instructions;
    EXPECT_EQ(all % static_cast<std::uint64_t>(run), 0U) << op << ": its warps are not alike";
    return {op, warps, all / static_cast<std::uint64_t>(run)};
  }

  /// split 0: in one piece.
  static std::vector<Step> decode_step(std::int64_t split) {
    const std::int64_t blocks = blocks_of(kContext, split);
    const std::int64_t group = kHeads / kKvHeads;
    std::vector<Step> steps;
    if (split > 0) {
      steps.push_back(executed("softmax_partials", kHeads * blocks, blocks, [=](CaseMemory& memory) {
        kernels::SoftmaxPartialsArgs args;
        args.scores = ordinary(memory, 1, kContext, 1);
        args.max = memory.output("max", Format::f32, 1, blocks);
        args.sum = memory.output("sum", Format::f32, 1, blocks);
        args.split = split;
        args.first_position = kContext - 1;
        args.mask = kernels::MaskMode::select;
        memory.launch(args);
      }));
    }
    steps.push_back(executed("softmax", kHeads * blocks, blocks, [=](CaseMemory& memory) {
      kernels::SoftmaxArgs args;
      args.scores = ordinary(memory, 1, kContext, 2);
      args.out = memory.output("out", Format::f32, 1, kContext);
      args.first_position = kContext - 1;
      args.mask = kernels::MaskMode::select;
      args.split = split;
      if (split > 0) {
        args.max = ordinary(memory, 1, blocks, 3);
        args.sum = ordinary(memory, 1, blocks, 4);
      }
      memory.launch(args);
    }));
    const std::int64_t channel_blocks = kWidth / 32;
    steps.push_back(executed("attention_mix", kKvHeads * blocks * channel_blocks, blocks, [=](CaseMemory& memory) {
      kernels::AttentionMixArgs args;
      args.p = ordinary(memory, 1, group * kContext, 5);
      args.v = ordinary(memory, kContext, 32, 6);
      args.out = memory.output("out", Format::f32, 1, group * blocks * 32);
      args.heads = group;
      args.first_position = kContext - 1;
      args.visible_only = true;
      args.split = split;
      memory.launch(args);
    }));
    if (split > 0) {
      steps.push_back(executed("combine_partials", kHeads * channel_blocks, channel_blocks, [=](CaseMemory& memory) {
        kernels::CombinePartialsArgs args;
        args.partials = ordinary(memory, 1, blocks * kWidth, 7);
        args.out = memory.output("out", Format::f32, 1, kWidth);
        args.blocks = blocks;
        memory.launch(args);
      }));
    }
    return steps;
  }

  static std::uint64_t told(std::int64_t split, const std::vector<Step>& steps) {
    std::uint64_t path = 0;
    std::string line;
    for (const Step& step : steps) {
      path += step.longest;
      line += fmt::format("; {} {} warps of {}", step.op, step.warps, step.longest);
    }
    fmt::print("split {}: {} instructions one after another{}\n", split, path, line);
    return path;
  }

  static std::unique_ptr<PtxDevice> device_;
};
std::unique_ptr<PtxDevice> PtxSplit::device_;

/// docs/measurements-gpu.md has the table.
TEST_F(PtxSplit, ADecodeStepOfALongContextHasWarpsToRunAndAShortPath) {
  const std::uint64_t whole = told(0, decode_step(0));
  std::uint64_t best = whole;
  for (const std::int64_t split : {128, 256, 512, 1024}) {
    const std::vector<Step> steps = decode_step(split);
    best = std::min(best, told(split, steps));
    EXPECT_EQ(steps[0].warps, kHeads * kContext / split);
  }
  EXPECT_GE(whole, 50 * best);
}

}  // namespace
}  // namespace nanscope::ptx
