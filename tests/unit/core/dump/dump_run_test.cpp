#include "core/dump/dump_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tests/unit/core/dump/memory_dump.h"

/// A dump as a run: which op made a tensor, and what it was made of.
namespace nanscope {
namespace {

using testing::find_tensor;
using testing::inputs;
using ::testing::IsSupersetOf;
using testing::kind;
using testing::MemoryDump;

/// One layer of a llama of width 8, two heads of 4, six tokens, all outputs and weights.
MemoryDump llama(std::vector<std::string> without = {}) {
  MemoryDump dump;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    if (std::find(without.begin(), without.end(), name) == without.end())
      dump.add("model.layers.0." + name, "f32", std::move(shape));
  };
  add("input_layernorm.input", {6, 8});
  add("input_layernorm.output", {6, 8});
  add("input_layernorm.weight", {8});
  for (const std::string part : {"q", "k", "v"}) {
    add("self_attn." + part + "_proj.output", {6, 8});
    add("self_attn." + part + "_proj.weight", {8, 8});
  }
  add("self_attn.scores", {2, 6, 6});
  add("self_attn.probs", {2, 6, 6});
  add("self_attn.o_proj.input", {6, 8});
  add("self_attn.o_proj.output", {6, 8});
  add("self_attn.o_proj.weight", {8, 8});
  add("post_attention_layernorm.input", {6, 8});
  add("post_attention_layernorm.output", {6, 8});
  add("mlp.gate_proj.output", {6, 16});
  add("mlp.up_proj.output", {6, 16});
  add("mlp.down_proj.input", {6, 16});
  add("mlp.down_proj.output", {6, 8});
  add("output", {6, 8});
  return dump;
}

TEST(DumpRun, ALayerIsAGraph) {
  MemoryDump dump = llama();
  const auto run = dump.run();
  const std::string layer = "model.layers.0.";
  EXPECT_EQ(kind(*run, layer + "input_layernorm.output"), OpKind::layer_norm);
  EXPECT_THAT(inputs(*run, layer + "input_layernorm.output"),
              IsSupersetOf({"x=" + layer + "input_layernorm.input", "weight=" + layer + "input_layernorm.weight"}));
  EXPECT_THAT(inputs(*run, layer + "self_attn.k_proj.output"),
              IsSupersetOf({"x=" + layer + "input_layernorm.output", "weight=" + layer + "self_attn.k_proj.weight"}));
  EXPECT_EQ(kind(*run, layer + "self_attn.scores"), OpKind::attention_scores);
  EXPECT_THAT(inputs(*run, layer + "self_attn.probs"), IsSupersetOf({"scores=" + layer + "self_attn.scores"}));
  EXPECT_EQ(kind(*run, layer + "self_attn.o_proj.input"), OpKind::attention_mix);
  EXPECT_THAT(inputs(*run, layer + "self_attn.o_proj.input"), IsSupersetOf({"probs=" + layer + "self_attn.probs"}));
  EXPECT_EQ(kind(*run, layer + "post_attention_layernorm.input"), OpKind::residual_add);
  EXPECT_THAT(inputs(*run, layer + "post_attention_layernorm.input"),
              IsSupersetOf({"a=" + layer + "input_layernorm.input", "b=" + layer + "self_attn.o_proj.output"}));
  EXPECT_EQ(kind(*run, layer + "mlp.down_proj.input"), OpKind::activation);
  EXPECT_THAT(inputs(*run, layer + "output"),
              IsSupersetOf({"a=" + layer + "post_attention_layernorm.input", "b=" + layer + "mlp.down_proj.output"}));
}

TEST(DumpRun, WhatWasNotDumpedStandsInTheGraph) {
  MemoryDump dump = llama({"self_attn.scores", "mlp.gate_proj.output"});
  const auto run = dump.run();
  EXPECT_THAT(inputs(*run, "model.layers.0.self_attn.probs"), ::testing::Contains("scores=?"));
}

TEST(DumpRun, LogitsOnTheirWayToASampler) {
  MemoryDump dump = llama();
  dump.add("lm_head.output", "f32", {3, 5}, std::vector<double>(15, 1));
  dump.add("logits_pre_softcap", "f32", {3, 5}, std::vector<double>(15, 2));
  dump.add("sampling_logits", "f32", {3, 5});
  dump.add("sampling_probs", "f32", {3, 5});
  const auto run = dump.run();
  EXPECT_EQ(kind(*run, "logits_pre_softcap"), OpKind::gemm);
  EXPECT_THAT(inputs(*run, "lm_head.output"), ::testing::ElementsAre("x=logits_pre_softcap"));
  EXPECT_THAT(inputs(*run, "sampling_logits"), ::testing::ElementsAre("x=lm_head.output"));
  EXPECT_THAT(inputs(*run, "sampling_probs"), ::testing::ElementsAre("logits=sampling_logits"));
}

TEST(DumpRun, AttentionSinksAreAParameter) {
  MemoryDump dump = llama();
  dump.add("model.layers.0.self_attn.sinks", "f32", {2});
  const auto run = dump.run();
  EXPECT_THAT(inputs(*run, "model.layers.0.self_attn.probs"),
              ::testing::Contains("sinks=model.layers.0.self_attn.sinks"));
}

TEST(DumpRun, ElementsAreReadInTheOrderOfTheMatrix) {
  MemoryDump dump;
  dump.add("model.layers.0.input_layernorm.output", "f32", {3, 8});
  dump.add("model.layers.0.self_attn.q_proj.output", "f32", {3, 8});
  std::vector<double> counted(24);
  std::iota(counted.begin(), counted.end(), 1.0);
  dump.add("model.layers.0.self_attn.attn.q", "bf16", {2, 3, 4}, counted);  // heads first
  const auto run = dump.run();
  const Tensor* q = find_tensor(*run, "model.layers.0.self_attn.attn.q");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->tokens, 3);
  EXPECT_EQ(q->heads, 2);
  const auto row = run->row_values(*q, 1);
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(*row, (std::vector<float>{5, 6, 7, 8, 17, 18, 19, 20}));
  EXPECT_EQ(run->rows(*q).size(), 3U);
  EXPECT_EQ(run->rows(*q)[1].max, 20.0F);
}

TEST(DumpRun, PassesOfRanksAndRequestsAreStepsOfTheirOwn) {
  MemoryDump dump;
  for (const std::string pass : {"request_3/step_000/rank0/", "request_3/step_000/rank1/", "request_3/step_001/rank0/"})
    dump.add(pass + "model.layers.0.input_layernorm.output", "f32", {2, 8});
  const auto run = dump.run();
  ASSERT_EQ(run->steps().size(), 3U);
  EXPECT_EQ(run->steps()[0].rank, 0);
  EXPECT_EQ(run->steps()[1].rank, 1);
  EXPECT_EQ(run->steps()[0].request(), run->steps()[1].request());
  EXPECT_EQ(run->steps()[2].index(), 1);
}

TEST(DumpRun, NamesThatNobodyKnowsAreTold) {
  MemoryDump dump = llama();
  dump.add("zzz.weird_thing", "f32", {3, 5, 7});
  const auto run = dump.run();
  const auto notes = run->notes();
  const bool told =
      std::any_of(notes.begin(), notes.end(), [](const RunNote& note) { return note.tensor == "zzz.weird_thing"; });
  EXPECT_TRUE(told);
}

TEST(DumpRun, NotesOfItsFilesAreTold) {
  MemoryDump elements;
  Dump dump;
  dump.notes = {{"a.h5", "is of no kind that nanscope reads"}};
  const auto notes = DumpRun(dump, elements).notes();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes.front().tensor, "a.h5");
}

/// Between layers of attention, which have projections that this one does not.
TEST(DumpRun, ARecurrenceStandsWhereAttentionDoes) {
  MemoryDump dump;
  for (const std::string layer : {"layers.0.", "layers.2."}) {
    for (const char* module : {"input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp"})
      dump.add(layer + module + ".output", "f32", {3, 8});
  }
  for (const char* module : {"input_layernorm", "recurrent_in", "recurrent", "recurrent_out", "mlp"})
    dump.add(std::string("layers.1.") + module + ".output", "f32", {3, 8});
  const auto run = dump.run();
  EXPECT_EQ(kind(*run, "layers.1.recurrent.output"), OpKind::recurrent_scan);
  EXPECT_EQ(kind(*run, "layers.1.recurrent_out.output"), OpKind::gemm);
  using ::testing::ElementsAre;
  EXPECT_THAT(inputs(*run, "layers.1.recurrent_in.output"), ElementsAre("x=layers.1.input_layernorm.output"));
  EXPECT_THAT(inputs(*run, "layers.1.recurrent.output"), ElementsAre("x=layers.1.recurrent_in.output"));
  EXPECT_THAT(inputs(*run, "layers.1.recurrent_out.output"), ElementsAre("x=layers.1.recurrent.output"));
  const Tensor* out = find_tensor(*run, "layers.1.recurrent_out.output");
  const Op* sum = run->find_op(out->step, 1, "attn_residual");
  ASSERT_NE(sum, nullptr);
  EXPECT_EQ(sum->input("b"), out->id);
  EXPECT_EQ(run->find_op(out->step, 1, "attention"), nullptr);
}

/// A generator's state is bytes, one row of them, next to every pass.
TEST(DumpRun, ARankReadsItsOwnWeights) {
  MemoryDump dump;
  for (const std::string rank : {"rank0/", "rank1/"}) {
    dump.add(rank + "model.layers.0.mlp.down_proj.weight", "f32", {8, 8});
    dump.add(rank + "step_000/model.layers.0.mlp.down_proj.input", "f32", {2, 8});
    dump.add(rank + "step_000/model.layers.0.mlp.down_proj.output", "f32", {2, 8});
  }
  const auto run = dump.run();
  EXPECT_THAT(inputs(*run, "rank1/step_000/model.layers.0.mlp.down_proj.output"),
              ::testing::Contains("weight=rank1/model.layers.0.mlp.down_proj.weight"));
}

TEST(DumpRun, ACheckpointInAFolderServesEveryPass) {
  MemoryDump dump;
  dump.add("checkpoint/model.layers.0.mlp.down_proj.weight", "f32", {8, 8});
  dump.add("step_000/model.layers.0.mlp.down_proj.input", "f32", {2, 8});
  dump.add("step_000/model.layers.0.mlp.down_proj.output", "f32", {2, 8});
  const auto run = dump.run();
  EXPECT_THAT(inputs(*run, "step_000/model.layers.0.mlp.down_proj.output"),
              ::testing::Contains("weight=checkpoint/model.layers.0.mlp.down_proj.weight"));
}

TEST(DumpRun, QueriesThatAreNotTheProjectionsAreBehindTheRotation) {
  const std::string at = "model.layers.0.self_attn.";
  MemoryDump dump = llama();
  dump.add(at + "attn.q", "f32", {6, 8});
  const auto run = dump.run();
  EXPECT_EQ(kind(*run, at + "attn.q"), OpKind::rope);
  EXPECT_THAT(inputs(*run, at + "scores"), ::testing::Contains("q=" + at + "attn.q"));
}

TEST(DumpRun, AFolderOfAPrefillSaysNothingOfTheRotation) {
  const std::string at = "prefill/model.layers.0.self_attn.";
  for (const std::string name : {"attn.q", "attn.q_pre_rope"}) {
    MemoryDump dump;
    for (const std::string& each : {std::string("q_proj.output"), name, std::string("attn.output")})
      dump.add(at + each, "f32", {6, 8});
    const auto run = dump.run();
    EXPECT_EQ(kind(*run, at + name) == OpKind::rope, name == "attn.q") << name;
    EXPECT_THAT(inputs(*run, at + name), ::testing::Contains("x=" + at + "q_proj.output")) << name;
  }
}

/// Keys and values that attention is called with, beside a fused projection of two query heads and one of each other.
std::unique_ptr<DumpRun> behind_a_fused_projection(bool rotated, const char* format = "f32") {
  const std::string at = "model.layers.0.self_attn.";
  MemoryDump dump;
  std::vector<double> fused(6 * 16);
  std::iota(fused.begin(), fused.end(), 1.0);
  const auto columns = [&](std::size_t first, std::size_t count, double factor) {
    std::vector<double> part;
    for (std::size_t row = 0; row < 6; ++row) {
      for (std::size_t c = first; c < first + count; ++c) part.push_back(fused[row * 16 + c] * (row > 0 ? factor : 1));
    }
    return part;
  };
  const double factor = rotated ? -1 : 1;
  dump.add(at + "qkv_proj.output", "f32", {6, 16}, fused);
  dump.add(at + "attn.q", format, {6, 2, 4}, columns(0, 8, factor));
  dump.add(at + "attn.k", "f32", {6, 1, 4}, columns(8, 4, factor));
  dump.add(at + "attn.v", "f32", {6, 1, 4}, columns(12, 4, 1));
  if (rotated) dump.add(at + "attn.k_pre_rope", "f32", {6, 1, 4}, columns(4, 4, -1));
  dump.add(at + "attn.output", "f32", {6, 8});
  return dump.run();
}

TEST(DumpRun, QueriesBehindAFusedProjectionAreItsColumnsOrBehindTheRotation) {
  const std::string at = "model.layers.0.self_attn.";
  const auto turned = behind_a_fused_projection(true);
  EXPECT_EQ(kind(*turned, at + "attn.q"), OpKind::rope);
  EXPECT_EQ(kind(*turned, at + "attn.k"), OpKind::rope);
  EXPECT_EQ(kind(*turned, at + "attn.v"), OpKind::split);
  // Its name says where it stands, whatever it holds.
  EXPECT_EQ(kind(*turned, at + "attn.k_pre_rope"), OpKind::split);
  // 96 whole numbers, which e5m2 rounds: those are still the columns.
  EXPECT_EQ(kind(*behind_a_fused_projection(false, "e5m2"), at + "attn.q"), OpKind::split);
  const auto plain = behind_a_fused_projection(false);
  for (const char* letter : {"q", "k", "v"}) EXPECT_EQ(kind(*plain, at + "attn." + letter), OpKind::split) << letter;
}

/// Two heads of four own channels and two shared ones, values of three, a latent of five; six tokens. vLLM rotates the
/// rotary parts alone, and pads values to the width of keys for its attention.
TEST(DumpRun, KeysOfALatentAreJoinedOfTheirOwnAndTheSharedPart) {
  const std::string at = "model.layers.0.self_attn.";
  MemoryDump dump;
  dump.add(at + "q_proj.output", "f32", {6, 12});
  dump.add(at + "kv_a_proj_with_mqa.output", "f32", {6, 7});
  dump.add(at + "kv_a_layernorm.input", "f32", {6, 5});
  dump.add(at + "kv_a_layernorm.output", "f32", {6, 5});
  dump.add(at + "kv_b_proj.output", "f32", {6, 14});
  dump.add(at + "attn.q", "f32", {6, 2, 6});
  dump.add(at + "attn.k", "f32", {6, 2, 6});
  dump.add(at + "attn.v", "f32", {6, 2, 6});
  dump.add(at + "attn.output", "f32", {6, 12});
  dump.add(at + "o_proj.input", "f32", {6, 6});
  Geometry known;
  known.heads = known.kv_heads = 2;
  known.width = 6;
  known.shared = 2;
  const auto run = dump.run(known);
  EXPECT_EQ(kind(*run, at + "attn.q"), OpKind::rope);
  EXPECT_EQ(kind(*run, at + "attn.k"), OpKind::join);
  EXPECT_THAT(inputs(*run, at + "attn.k"), ::testing::Contains("x=" + at + "kv_b_proj.output"));
  EXPECT_THAT(inputs(*run, at + "kv_b_proj.output"), ::testing::Contains("x=" + at + "kv_a_layernorm.output"));
  EXPECT_EQ(kind(*run, at + "o_proj.input"), OpKind::attention);
  EXPECT_THAT(inputs(*run, at + "o_proj.input"), IsSupersetOf({"q=" + at + "attn.q", "k=" + at + "attn.k"}));
  EXPECT_NE(kind(*run, at + "attn.v"), OpKind::split) << "padded";
  // Without a configuration nobody knows how the channels of the latent are divided.
  EXPECT_EQ(kind(*dump.run(), at + "kv_b_proj.output"), OpKind::gemm);
  EXPECT_NE(kind(*dump.run(), at + "attn.k"), OpKind::join);
}

TEST(DumpRun, ProbabilitiesAreOfTheScoresThatTheirCodesGiveBack) {
  const std::string at = "model.layers.0.self_attn.";
  MemoryDump dump = llama();
  dump.add(at + "score_scale", "f32", {1}, {0.5});
  dump.add(at + "scores_codes", "e4m3", {2, 6, 6});
  const auto run = dump.run();
  EXPECT_THAT(inputs(*run, at + "scores_codes"), IsSupersetOf({"x=" + at + "scores", "scale=" + at + "score_scale"}));
  EXPECT_THAT(inputs(*run, at + "probs"), ::testing::Contains("scores=?"));
}

TEST(DumpRun, ScalesOfACastWhoseCodesWereNotDumpedAreRead) {
  const std::string at = "model.layers.0.mlp.down_proj.";
  MemoryDump dump = llama();
  dump.add(at + "input_scale", "f32", {6, 2});
  const auto run = dump.run();
  EXPECT_THAT(inputs(*run, at + "output"), ::testing::Contains("x_scale=" + at + "input_scale"));
}

/// One layer of a mixture of three experts, two a token, as transformers' modules give it.
MemoryDump mixture() {
  MemoryDump dump;
  const std::string at = "step_00000/model.layers.0.mlp.";
  dump.add(at + "input", "f32", {6, 8});
  dump.add(at + "gate.output", "f32", {6, 3});
  dump.add(at + "gate.output.1", "f32", {6, 2});
  dump.add(at + "gate.output.2", "i64", {6, 2}, {0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2, 0});
  dump.add(at + "experts.output", "f32", {6, 8});
  dump.add(at + "output", "f32", {6, 8});
  for (const std::string norm : {"input_layernorm", "post_attention_layernorm"})
    dump.add("checkpoint/model.layers.0." + norm + ".weight", "f32", {8});
  return dump;
}

TEST(DumpRun, WhatARouterGivesBesideItsLogitsGoesIntoTheMixture) {
  const std::string at = "step_00000/model.layers.0.mlp.";
  const std::string weights = "checkpoint/model.layers.0.mlp.experts.";
  MemoryDump fused = mixture();
  fused.add(weights + "gate_up_proj", "f32", {3, 8, 8});
  fused.add(weights + "down_proj", "f32", {3, 8, 4});
  const auto run = fused.run();
  EXPECT_EQ(kind(*run, at + "gate.output.1"), OpKind::route);
  EXPECT_EQ(kind(*run, at + "gate.output.2"), OpKind::route);
  EXPECT_THAT(
      inputs(*run, at + "experts.output"),
      IsSupersetOf({"weights=" + at + "gate.output.1", "ids=" + at + "gate.output.2", "logits=" + at + "gate.output",
                    "expert_gate_up=" + weights + "gate_up_proj", "expert_down=" + weights + "down_proj"}));
}

/// Layers before the first mixture are dense (DeepSeek-V3), and so is what one layer of a Qwen2-MoE has.
TEST(DumpRun, ALayerOfAMixtureMayBeDense) {
  MemoryDump dump = mixture();
  const std::string at = "step_00000/model.layers.1.mlp.";
  for (const char* name : {"gate_proj.output", "up_proj.output", "down_proj.input"}) dump.add(at + name, "f32", {6, 4});
  for (const char* name : {"input", "down_proj.output", "output"}) dump.add(at + name, "f32", {6, 8});
  const auto run = dump.run();
  EXPECT_EQ(kind(*run, at + "down_proj.input"), OpKind::activation);
  EXPECT_EQ(kind(*run, at + "down_proj.output"), OpKind::gemm);
  EXPECT_EQ(kind(*run, "step_00000/model.layers.0.mlp.experts.output"), OpKind::expert_mix);
}

TEST(DumpRun, ExpertsInOneTensorEachAreAllGivenOrNone) {
  const std::string out = "step_00000/model.layers.0.mlp.experts.output";
  for (const std::int64_t there : {3, 2}) {
    MemoryDump apart = mixture();
    for (std::int64_t e = 0; e < there; ++e) {
      const std::string of = "checkpoint/model.layers.0.block_sparse_moe.experts." + std::to_string(e);
      for (const char* part : {".w1.weight", ".w3.weight"}) apart.add(of + part, "f32", {4, 8});
      apart.add(of + ".w2.weight", "f32", {8, 4});
    }
    const auto run = apart.run();
    const std::vector<std::string> given = inputs(*run, out);
    EXPECT_EQ(
        std::count_if(given.begin(), given.end(), [](const auto& one) { return one.starts_with("expert_down="); }),
        there == 3 ? 3 : 0);
  }
}

/// A sum whose residual was left out holds what its branch does, and is the sum all the same.
TEST(DumpRun, ANormBehindASumReadsTheSumAlthoughItHoldsTheBranch) {
  std::vector<double> branch(48);
  std::iota(branch.begin(), branch.end(), 1.0);
  const std::string at = "model.layers.0.";
  MemoryDump dump = llama({"self_attn.o_proj.output", "post_attention_layernorm.input"});
  dump.add(at + "self_attn.o_proj.output", "f32", {6, 8}, branch);
  dump.add(at + "post_attention_layernorm.input", "f32", {6, 8}, branch);
  const auto run = dump.run();
  EXPECT_EQ(kind(*run, at + "post_attention_layernorm.input"), OpKind::residual_add);
}

TEST(DumpRun, BytesOfAGeneratorAreNoTokens) {
  MemoryDump dump = llama();
  for (const char* name : {"rng_state", "cuda_rng_state", "model.rng_state"}) dump.add(name, "u8", {64});
  const auto run = dump.run();
  for (const char* name : {"rng_state", "cuda_rng_state", "model.rng_state"}) {
    const Tensor* state = find_tensor(*run, name);
    if (state == nullptr) continue;
    for (const Step& step : run->steps()) {
      for (const Op& op : run->content(step.id).ops) EXPECT_NE(op.input("tokens"), state->id) << name;
    }
  }
  ASSERT_EQ(run->steps().size(), 1U);
  EXPECT_EQ(run->steps()[0].tokens(), 6);
}

TEST(DumpRun, AHostileShapeIsNoCrash) {
  MemoryDump dump;
  dump.add("model.layers.0.self_attn.attn.k_cache", "f32", {0, 16, 2, 8});
  dump.add("model.layers.0.input_layernorm.output", "f32", {0, 8});
  dump.add("block_table", "i32", {1, 0});
  dump.add("slot_mapping", "i64", {0});
  dump.add("lm_head.output", "f32", {});
  const auto run = dump.run();
  for (const Step& step : run->steps()) {
    for (const Tensor& tensor : run->content(step.id).tensors) {
      run->rows(tensor);
      run->values(tensor);
    }
  }
}

TEST(DumpRun, AnActivationWithoutAGateReadsItsOwnInput) {
  MemoryDump dump;
  const std::string at = "transformer.h.0.mlp.";
  dump.add(at + "act.input", "f32", {6, 16});
  dump.add(at + "act.output", "f32", {6, 16});
  dump.add(at + "c_proj.output", "f32", {6, 8});
  const auto run = dump.run();
  EXPECT_THAT(inputs(*run, at + "act.output"), ::testing::Contains("x=" + at + "act.input"));
}

TEST(DumpRun, KeysThatWereReadBackStandBehindTheCache) {
  const std::string at = "model.layers.0.self_attn.attn.";
  MemoryDump dump = llama();
  dump.add(at + "k_cache", "e4m3", {6, 2, 4});
  dump.add(at + "k_dequant", "f32", {6, 2, 4});
  const auto run = dump.run();
  EXPECT_EQ(kind(*run, at + "k_dequant"), OpKind::kv_read);
  EXPECT_THAT(inputs(*run, at + "k_dequant"), ::testing::Contains("k_cache=" + at + "k_cache"));
}

TEST(DumpRun, WhatWasSummedBeforeTheFirstLayerIsWhatItReads) {
  MemoryDump dump;
  dump.add("hidden_states_0", "f32", {6, 8});
  dump.add("model.layers.0.input_layernorm.output", "f32", {6, 8});
  dump.add("model.layers.0.self_attn.q_proj.output", "f32", {6, 8});
  const auto run = dump.run();
  EXPECT_THAT(inputs(*run, "model.layers.0.input_layernorm.output"), ::testing::Contains("x=hidden_states_0"));
}

TEST(DumpRun, BranchesSideBySideReadTheSameStream) {
  const std::string at = "gpt_neox.layers.0.";
  MemoryDump dump;
  dump.add(at + "input_layernorm.input", "f32", {6, 8});
  dump.add(at + "attention.dense.output", "f32", {6, 8});
  dump.add(at + "post_attention_layernorm.output", "f32", {6, 8});
  dump.add(at + "mlp.dense_4h_to_h.output", "f32", {6, 8});
  dump.add(at + "branch_sum", "f32", {6, 8});
  const auto run = dump.run();
  EXPECT_THAT(inputs(*run, at + "post_attention_layernorm.output"),
              ::testing::Contains("x=" + at + "input_layernorm.input"));
}

/// A pass of one layer as vLLM's hooks give it: rows of requests one behind the other, in blocks of 4 slots.
struct Pass {
  std::vector<double> starts;            ///< of the requests' rows, and behind the last
  std::vector<double> lengths;           ///< of their sequences
  std::vector<std::vector<int>> blocks;  ///< of each request
};

void add_pass(MemoryDump& dump, int step, const Pass& pass, const std::vector<double>& ids = {},
              const std::string& rank = "") {
  const std::string at = rank + "step_" + std::to_string(step) + "/";
  const auto rows = static_cast<std::int64_t>(pass.starts.back());
  const auto requests = static_cast<std::int64_t>(pass.lengths.size());
  const auto integers = [&](const std::string& name, std::vector<std::int64_t> shape, std::vector<double> values) {
    dump.add(at + name, "i64", std::move(shape), std::move(values));
  };
  std::vector<double> slots;
  std::vector<double> table;
  for (std::size_t r = 0; r < pass.lengths.size(); ++r) {
    const auto own = static_cast<int>(pass.starts[r + 1] - pass.starts[r]);
    for (int position = static_cast<int>(pass.lengths[r]) - own; position < static_cast<int>(pass.lengths[r]);
         ++position)
      slots.push_back(4 * pass.blocks[r][static_cast<std::size_t>(position / 4)] + position % 4);
    for (std::size_t b = 0; b < 3; ++b) table.push_back(b < pass.blocks[r].size() ? pass.blocks[r][b] : 0);
  }
  integers("query_start_loc", {requests + 1}, pass.starts);
  integers("seq_lens", {requests}, pass.lengths);
  integers("slot_mapping", {rows}, std::move(slots));
  integers("block_table", {requests, 3}, std::move(table));
  if (!ids.empty()) integers("request_ids", {requests}, ids);
  dump.add(at + "model.layers.0.self_attn.qkv_proj.output", "f16", {rows, 16});
  dump.add(at + "model.layers.0.self_attn.attn.output", "f16", {rows, 8});
}

std::vector<std::vector<std::int64_t>> requests_of(DumpRun& run) {
  std::vector<std::vector<std::int64_t>> found;
  for (const Step& step : run.steps()) {
    found.emplace_back();
    for (const Span& span : step.spans) found.back().push_back(span.request);
  }
  return found;
}

using Requests = std::vector<std::vector<std::int64_t>>;

TEST(DumpRun, RowsOfABatchAreOfTheRequestThatHoldsTheirBlocks) {
  MemoryDump dump;
  add_pass(dump, 0, {{0, 6}, {6}, {{1, 2}}});
  add_pass(dump, 1, {{0, 1, 6}, {7, 5}, {{1, 2}, {3, 4}}});
  add_pass(dump, 2, {{0, 1}, {6}, {{3, 4}}});             // the first is done
  add_pass(dump, 3, {{0, 1, 4}, {7, 3}, {{3, 4}, {5}}});  // a new one stands second
  EXPECT_EQ(requests_of(*dump.run()), (Requests{{0}, {0, 1}, {1}, {1, 2}}));
}

TEST(DumpRun, RanksHaveTheSameRequests) {
  MemoryDump dump;
  for (const std::string rank : {"rank0/", "rank1/"}) {
    add_pass(dump, 0, {{0, 6}, {6}, {{1, 2}}}, {}, rank);
    add_pass(dump, 1, {{0, 1, 6}, {7, 5}, {{1, 2}, {3, 4}}}, {}, rank);
    add_pass(dump, 2, {{0, 3}, {3}, {{5}}}, {}, rank);
    add_pass(dump, 3, {{0, 1}, {6}, {{3, 4}}}, {}, rank);
  }
  const auto run = dump.run();
  std::map<std::int64_t, Requests> found;
  for (const Step& step : run->steps()) {
    found[step.rank].emplace_back();
    for (const Span& span : step.spans) found[step.rank].back().push_back(span.request);
  }
  EXPECT_EQ(found[0], (Requests{{0}, {0, 1}, {2}, {1}}));
  EXPECT_EQ(found[1], found[0]);
}

TEST(DumpRun, BlocksThatARequestHeldAreNotGivenToItAgain) {
  MemoryDump dump;
  add_pass(dump, 0, {{0, 6}, {6}, {{1, 2}}});
  dump.add("step_0/model.layers.0.self_attn.k_cache", "f8_e4m3", {6, 4, 8});
  add_pass(dump, 1, {{0, 3}, {9}, {{1, 2, 3}}});
  dump.add("step_1/model.layers.0.self_attn.k_cache", "f8_e4m3", {6, 4, 8});
  const auto run = dump.run();
  std::vector<std::pair<std::int64_t, std::int64_t>> given;  // step and block
  for (const KvRow& row : run->kv_history()) {
    if (row.action == KvAction::allocated) given.emplace_back(row.step, row.block);
  }
  EXPECT_THAT(given, ::testing::UnorderedElementsAre(std::pair{1, 1}, std::pair{1, 2}, std::pair{2, 3}));
}

TEST(DumpRun, IdsOfRequestsAreBelievedBeforeBlocks) {
  MemoryDump dump;
  add_pass(dump, 0, {{0, 6, 11}, {6, 5}, {{1, 2}, {3, 4}}}, {7, 9});
  add_pass(dump, 1, {{0, 1}, {6}, {{5, 6}}}, {9});
  EXPECT_EQ(requests_of(*dump.run()), (Requests{{0, 1}, {1}}));
}

TEST(DumpRun, ASequenceThatSharesAPrefixIsANewRequest) {
  MemoryDump dump;
  add_pass(dump, 0, {{0, 6}, {6}, {{1, 2}}});
  add_pass(dump, 1, {{0, 3}, {7}, {{1, 3}}});  // its first block was there
  add_pass(dump, 2, {{0, 1}, {8}, {{1, 3}}});
  add_pass(dump, 3, {{0, 2}, {6}, {{1, 4}}});  // and again: the first wrote it, not the second
  const auto run = dump.run();
  EXPECT_EQ(requests_of(*run), (Requests{{0}, {1}, {1}, {2}}));
  EXPECT_EQ(run->steps()[3].spans[0].prefix_of, 0);
  EXPECT_EQ(run->steps()[0].spans[0].prefix_of, -1);
  EXPECT_EQ(run->steps()[1].spans[0].prefix_of, 0);
  EXPECT_EQ(run->steps()[2].spans[0].prefix_of, 0);
}

TEST(DumpRun, AJumpOfPositionsInItsBlocksStaysTheSameRequest) {
  MemoryDump dump;
  add_pass(dump, 0, {{0, 6}, {6}, {{1, 2}}});
  add_pass(dump, 1, {{0, 1}, {8}, {{1, 2}}});
  EXPECT_EQ(requests_of(*dump.run()), (Requests{{0}, {0}}));
}

TEST(DumpRun, IntegersThatAModuleIsGivenAreNoOutputs) {
  MemoryDump dump = llama();
  dump.add("model.layers.0.input", "i64", {6}, {0, 1, 2, 3, 4, 5});
  const auto run = dump.run();
  EXPECT_EQ(kind(*run, "model.layers.0.input"), OpKind::parameter);
}

TEST(DumpRun, ScalesOfScoresAloneMakeNoScores) {
  MemoryDump dump;
  dump.add("model.layers.0.self_attn.qkv_proj.output", "f16", {6, 16});
  for (const std::string name : {"_q_scale", "_k_scale", "_v_scale", "_prob_scale"})
    dump.add("model.layers.0.self_attn.attn." + name, "f32", {}, {1});
  dump.add("model.layers.0.self_attn.attn.output", "f16", {6, 8});
  const auto run = dump.run();
  EXPECT_EQ(kind(*run, "model.layers.0.self_attn.attn.output"), OpKind::attention);
  EXPECT_EQ(kind(*run, "model.layers.0.self_attn.attn._k_scale"), OpKind::parameter);
}

TEST(DumpRun, AttentionReadsTheCodesThatWereWritten) {
  MemoryDump dump;
  dump.add("model.layers.0.self_attn.qkv_proj.output", "f16", {6, 16});
  dump.add("model.layers.0.self_attn.attn._k_scale", "f32", {}, {1});
  dump.add("model.layers.0.self_attn.attn.k_cache_write", "f8_e4m3", {6, 4});
  dump.add("model.layers.0.self_attn.attn.output", "f16", {6, 8});
  const auto run = dump.run();
  EXPECT_THAT(inputs(*run, "model.layers.0.self_attn.attn.output"),
              IsSupersetOf(
                  {"k=model.layers.0.self_attn.attn.k_cache_write", "k_scale=model.layers.0.self_attn.attn._k_scale"}));
}

TEST(DumpRun, TheHeadIsGivenTheRowsOfALogitsProcessor) {
  MemoryDump dump = llama();
  dump.add("query_start_loc", "i64", {3}, {0, 4, 6});
  dump.add("model.norm.output", "f32", {6, 8});
  dump.add("lm_head.weight", "f32", {10, 8});
  dump.add("logits_processor.input", "f32", {2, 8});
  dump.add("logits_processor.output", "f32", {2, 10});
  const auto run = dump.run();
  EXPECT_THAT(inputs(*run, "logits_processor.input"), IsSupersetOf({"x=model.norm.output"}));
  EXPECT_THAT(inputs(*run, "logits_processor.output"),
              IsSupersetOf({"x=logits_processor.input", "weight=lm_head.weight"}));
}

TEST(DumpRun, AModuleThatHoldsOthersIsNoActivation) {
  MemoryDump dump = llama();
  dump.add("model.layers.0.extra.input", "f32", {6, 8});
  dump.add("model.layers.0.extra.inner.input", "f32", {6, 8});
  dump.add("model.layers.0.extra.inner.output", "f32", {6, 8});
  dump.add("model.layers.0.extra.output", "f32", {6, 8});
  const auto run = dump.run();
  EXPECT_EQ(kind(*run, "model.layers.0.extra.output"), OpKind::block);
  EXPECT_EQ(kind(*run, "model.layers.0.extra.inner.output"), OpKind::activation);
}

}  // namespace
}  // namespace nanscope
