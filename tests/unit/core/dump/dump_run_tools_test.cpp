#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/dump/dump_run.h"
#include "tests/unit/core/dump/memory_dump.h"

/// Names that tools give: which op made a tensor, and what it was made of.
namespace nanscope {
namespace {

using testing::inputs;
using ::testing::IsSupersetOf;
using testing::kind;
using testing::MemoryDump;

/// Logits are not made of embeddings, nor a layer's input of the layer before the last.
TEST(DumpRunOfTools, LayersThatWereNotDumpedLeaveTheStreamUnknown) {
  MemoryDump dump;
  dump.add("model.embed_tokens.output", "f32", {6, 8});
  dump.add("logits", "f32", {6, 16});
  EXPECT_THAT(inputs(*dump.run(), "logits"), ::testing::Contains("x=?"));
  dump.add("model.layers.0.input", "f32", {6, 8});
  dump.add("model.layers.0.output", "f32", {6, 8});
  EXPECT_THAT(inputs(*dump.run(), "logits"), ::testing::Contains("x=model.layers.0.output"));
  dump.add("model.layers.2.input", "f32", {6, 8}, std::vector<double>(48, 3));
  EXPECT_EQ(kind(*dump.run(), "model.layers.2.input"), OpKind::block) << "what the layer between gave";
}

/// As many as layers and one more: transformers has the output of the final norm behind the last layer's input.
TEST(DumpRunOfTools, TheLastStateIsBehindTheFinalNorm) {
  MemoryDump dump;
  for (int i = 0; i < 4; ++i)
    dump.add("hidden_states." + std::to_string(i), "f32", {6, 8}, std::vector<double>(48, i + 1));
  dump.add("logits", "f32", {6, 16});
  const auto run = dump.run();
  EXPECT_THAT(inputs(*run, "hidden_states.3"), ::testing::Not(::testing::Contains("a=hidden_states.2")));
  EXPECT_EQ(kind(*run, "hidden_states.3"), OpKind::dumped);
}

/// A bias is added behind the product: the module gave the sum.
TEST(DumpRunOfTools, AnExportedProductBeforeItsBiasIsNoOutput) {
  MemoryDump dump;
  dump.add("/model/layers.0/mlp/up_proj/MatMul_output_0", "f32", {6, 16});
  EXPECT_EQ(kind(*dump.run(), "/model/layers.0/mlp/up_proj/MatMul_output_0"), OpKind::gemm);
  dump.add("/model/layers.0/mlp/up_proj/Add_output_0", "f32", {6, 16});
  EXPECT_NE(kind(*dump.run(), "/model/layers.0/mlp/up_proj/MatMul_output_0"), OpKind::gemm);
}

TEST(DumpRunOfTools, OfAGatedMlpTransformerLensCallsTheGatePre) {
  MemoryDump dump;
  dump.add("blocks.0.ln2.hook_normalized", "f32", {6, 8});
  dump.add("blocks.0.mlp.hook_pre", "f32", {6, 16});
  dump.add("blocks.0.mlp.hook_pre_linear", "f32", {6, 16}, std::vector<double>(96, 2));
  dump.add("blocks.0.mlp.hook_post", "f32", {6, 16}, std::vector<double>(96, 3));
  EXPECT_THAT(inputs(*dump.run(), "blocks.0.mlp.hook_post"),
              IsSupersetOf({"x=blocks.0.mlp.hook_pre", "maybe_up=blocks.0.mlp.hook_pre_linear"}));
}

/// BERT's module "attention" ends with the norm behind the sum, and so is no branch of it. Sums are not known after a
/// scan that leaves them out.
TEST(DumpRunOfTools, AttentionThatEndsWithItsNorm) {
  MemoryDump dump;
  dump.add("bert.embeddings.position_embeddings.output", "f32", {1, 4, 8});
  const std::string at = "bert.encoder.layer.0.";
  const std::vector<double> normed = {1, 2, 3, 4, 5, 6, 7, 9};
  std::vector<double> all;
  for (int row = 0; row < 4; ++row) all.insert(all.end(), normed.begin(), normed.end());
  const auto add = [&](const std::string& name, const std::vector<double>& values = {}) {
    dump.add(at + name, "f32", {1, 4, 8}, values);
    dump.last().health.sum = dump.last().health.sum_sq = std::nan("");
  };
  add("input");
  for (const std::string name : {"query", "key", "value"}) add("attention.self." + name + ".output");
  dump.add(at + "attention.self.scores", "f32", {1, 2, 4, 4});
  add("attention.output.dense.output");
  add("attention.output.LayerNorm.input");
  add("attention.output.LayerNorm.output", all);
  add("attention.output", all);
  add("output.dense.output");
  const auto run = dump.run();
  EXPECT_THAT(inputs(*run, at + "attention.output.LayerNorm.input"),
              ::testing::Contains("b=" + at + "attention.output.dense.output"));
  // Positions are learned, and not rotated in.
  EXPECT_THAT(inputs(*run, at + "attention.self.scores"),
              ::testing::Contains("q=" + at + "attention.self.query.output"));
}

/// The block of a mixture: what its router and its experts gave, and what it gave.
MemoryDump block() {
  MemoryDump dump;
  const std::string at = "step_00000/model.layers.0.mlp.";
  dump.add(at + "input", "f32", {6, 8});
  dump.add(at + "gate.output", "f32", {6, 3});
  dump.add(at + "experts.output", "f32", {6, 8});
  dump.add(at + "output", "f32", {6, 8});
  return dump;
}

/// An expert that every token has, behind a gate in Qwen's models: the block is the sum of both.
TEST(SharedExpert, AnExpertOfEveryTokenIsAddedToTheChosenOnes) {
  const std::string at = "step_00000/model.layers.0.mlp.";
  for (const bool gated : {false, true}) {
    MemoryDump dump = block();
    const std::string shared = gated ? "shared_expert" : "shared_experts";
    for (const char* part : {".input", ".down_proj.output", ".output"}) dump.add(at + shared + part, "f32", {6, 8});
    if (gated) dump.add(at + "shared_expert_gate.output", "f32", {6, 1});
    const auto run = dump.run();
    EXPECT_EQ(kind(*run, at + "output"), gated ? OpKind::gated_add : OpKind::residual_add);
    std::vector<std::string> terms{"a=" + at + "experts.output", "b=" + at + shared + ".output"};
    if (gated) terms.push_back("gate=" + at + "shared_expert_gate.output");
    EXPECT_EQ(inputs(*run, at + "output"), terms);
  }
}

/// Of several outputs, as vLLM's experts have them, it is not known which is which.
TEST(SharedExpert, ASumOfExpertsWithSeveralOutputsIsNotGuessed) {
  const std::string at = "step_00000/model.layers.0.mlp.";
  MemoryDump dump = block();
  for (const char* name : {"shared_experts.output", "experts.output.1"}) dump.add(at + name, "f32", {6, 8});
  EXPECT_EQ(kind(*dump.run(), at + "output"), OpKind::block);
}

}  // namespace
}  // namespace nanscope
