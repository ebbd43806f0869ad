#include "core/dump/tensor_name.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/dump/name_words.h"
#include "core/dump/natural_order.h"

namespace nanscope {
namespace {

struct Named {
  std::string name;
  std::string op;
  std::string role;
  std::int64_t layer;
  Port port;
};

/// Names as `named_modules()` of the families' published code gives them.
TEST(TensorName, KnowsTheFamiliesModules) {
  const std::vector<Named> cases = {
      {"model.layers.3.self_attn.k_proj.output", "k_proj", "k", 3, Port::output},
      {"model.layers.3.self_attn.k_proj.input", "k_proj", "x", 3, Port::input},
      {"model.layers.3.self_attn.k_proj.weight", "k_proj", "weight", 3, Port::state},
      {"model.layers.3.self_attn.k_proj.weight_scale", "k_proj", "weight", 3, Port::state},
      {"model.layers.0.input_layernorm.output", "attn_norm", "norm_out", 0, Port::output},
      {"model.layers.0.post_attention_layernorm.input", "post_attention_norm", "resid", 0, Port::input},
      {"model.layers.11.mlp.gate_proj.output", "gate_proj", "gate", 11, Port::output},
      {"model.layers.11.mlp.gate.output", "router", "router_logits", 11, Port::output},
      {"model.layers.11.mlp.down_proj.output.0", "down_proj", "mlp_out", 11, Port::output},
      {"model.layers.11.output", "layer", "resid", 11, Port::output},
      {"model.layers.2.self_attn.attn.k_cache", "k_cache", "k_cache", 2, Port::state},
      {"model.layers.2.self_attn.k_scale", "k", "k", 2, Port::state},
      {"model.layers.2.self_attn.probs", "probs", "probs", 2, Port::output},
      {"model.layers.2.self_attn.softmax.input", "softmax", "scores", 2, Port::input},
      {"transformer.h.7.attn.c_attn.output", "qkv_proj", "qkv", 7, Port::output},
      {"transformer.h.7.attn.c_proj.input", "o_proj", "attn_out", 7, Port::input},
      {"transformer.h.7.mlp.c_proj.output", "down_proj", "mlp_out", 7, Port::output},
      {"transformer.h.7.ln_2.output", "mlp_norm", "norm_out", 7, Port::output},
      {"model.layers.5.self_attn.kv_a_proj_with_mqa.output", "kv_a_proj", "kv_a", 5, Port::output},
      {"blk.4.attn_q.weight", "q_proj", "weight", 4, Port::state},
      {"Qcur-6", "q_proj", "q", 6, Port::output},
      {"kq_soft_max-6", "softmax", "probs", 6, Port::output},
  };
  for (const Named& expected : cases) {
    const TensorName found = parse_tensor_name(expected.name);
    EXPECT_TRUE(found.known) << expected.name;
    EXPECT_EQ(found.op, expected.op) << expected.name;
    EXPECT_EQ(found.role, expected.role) << expected.name;
    EXPECT_EQ(found.layer.value_or(-1), expected.layer) << expected.name;
    EXPECT_EQ(found.port, expected.port) << expected.name;
  }
}

/// One of each module that a family has beyond those of Llama, as its published code names them.
TEST(TensorName, KnowsWhatFamiliesAdd) {
  const std::vector<Named> cases = {
      // Qwen 3, Qwen 2 and 3 MoE, Mixtral
      {"model.layers.4.self_attn.q_norm.output", "q_norm", "norm_out", 4, Port::output},
      {"model.layers.4.mlp.experts.7.down_proj.output", "down_proj", "mlp_out", 4, Port::output},
      {"model.layers.4.mlp.shared_expert.gate_proj.output", "gate_proj", "gate", 4, Port::output},
      {"model.layers.4.mlp.shared_expert_gate.output", "shared_expert_gate", "shared_gate", 4, Port::output},
      {"model.layers.4.mlp.topk.output.0", "topk", "router_weights", 4, Port::output},
      {"model.layers.4.block_sparse_moe.gate.output", "router", "router_logits", 4, Port::output},
      {"model.layers.4.block_sparse_moe.experts.3.w2.output", "down_proj", "mlp_out", 4, Port::output},
      // DeepSeek V2 and V3, and its prediction of more tokens
      {"model.layers.4.self_attn.q_a_proj.output", "q_a_proj", "q_a", 4, Port::output},
      {"model.layers.3.mlp.experts.gate_up_proj_bias", "gate_up_proj", "bias", 3, Port::state},
      {"model.layers.3.self_attn.sinks", "sinks", "sinks", 3, Port::state},
      {"model.layer_norm.output", "final_norm", "norm_out", -1, Port::output},
      {"model.layers.4.self_attn.q_a_layernorm.input", "q_a_norm", "q_a", 4, Port::input},
      {"model.layers.4.self_attn.kv_b_proj.output", "kv_b_proj", "kv", 4, Port::output},
      {"model.layers.4.self_attn.fused_qkv_a_proj_with_mqa.output", "qkv_proj", "qkv", 4, Port::output},
      {"model.layers.4.self_attn.attn_mqa.output", "attention", "attn_out", 4, Port::output},
      {"model.layers.4.mlp.gate.e_score_correction_bias", "router_bias", "router_bias", 4, Port::state},
      {"model.layers.4.mlp.shared_experts.down_proj.output", "down_proj", "mlp_out", 4, Port::output},
      {"model.layers.61.enorm.output", "mtp_embed_norm", "norm_out", 61, Port::output},
      {"model.layers.61.hnorm.input", "mtp_hidden_norm", "resid", 61, Port::input},
      {"model.layers.61.eh_proj.output", "mtp_proj", "resid", 61, Port::output},
      // Qwen3-Next: gated delta rule
      {"model.layers.2.linear_attn.in_proj_qkvz.output", "gdn_qkv_proj", "qkv", 2, Port::output},
      {"model.layers.2.linear_attn.in_proj_ba.output", "gdn_gate_proj", "gdn_gates", 2, Port::output},
      {"model.layers.2.linear_attn.in_proj_z.output", "gdn_z_proj", "gdn_z", 2, Port::output},
      {"model.layers.2.linear_attn.in_proj_a.output", "gdn_a_proj", "gdn_a", 2, Port::output},
      {"model.layers.2.linear_attn.in_proj_b.output", "gdn_b_proj", "gdn_b", 2, Port::output},
      {"model.layers.2.self_attn.dense.output", "o_proj", "out", 2, Port::output},
      {"model.layers.2.linear_attn.conv1d.output", "gdn_conv", "gdn_conv", 2, Port::output},
      {"model.layers.2.linear_attn.norm.output", "inner_norm", "norm_out", 2, Port::output},
      {"model.layers.2.linear_attn.out_proj.output", "o_proj", "out", 2, Port::output},
      {"model.layers.2.linear_attn.conv_state", "state", "state", 2, Port::state},
      {"model.layers.2.linear_attn.A_log", "self_attn", "weight", 2, Port::state},
      {"model.layers.2.linear_attn.dt_bias", "self_attn", "bias", 2, Port::state},
      // ViT, CLIP, SigLIP, Qwen2.5-VL
      {"vit.encoder.layer.3.attention.attention.query.output", "q_proj", "q", 3, Port::output},
      {"vit.encoder.layer.3.attention.output.dense.output", "o_proj", "out", 3, Port::output},
      {"vit.encoder.layer.3.intermediate.dense.output", "up_proj", "up", 3, Port::output},
      {"vit.encoder.layer.3.intermediate.intermediate_act_fn.output", "act", "act", 3, Port::output},
      {"vit.encoder.layer.3.output.dense.output", "down_proj", "mlp_out", 3, Port::output},
      {"vision_model.encoder.layers.3.self_attn.out_proj.output", "o_proj", "out", 3, Port::output},
      {"vision_model.encoder.layers.3.mlp.fc1.output", "up_proj", "up", 3, Port::output},
      {"vision_model.encoder.layers.3.mlp.activation_fn.output", "act", "act", 3, Port::output},
      {"visual.blocks.3.attn.qkv.output", "qkv_proj", "qkv", 3, Port::output},
      {"visual.blocks.3.attn.proj.output", "o_proj", "out", 3, Port::output},
      {"visual.blocks.3.norm2.output", "mlp_norm", "norm_out", 3, Port::output},
      // Megatron and TransformerEngine
      {"layers.3.self_attention.layernorm_qkv.output", "qkv_proj", "qkv", 3, Port::output},
      {"layers.3.mlp.linear_fc2.output", "down_proj", "mlp_out", 3, Port::output},
      // T5
      {"decoder.block.3.layer.0.SelfAttention.k.output", "k_proj", "k", 3, Port::output},
      {"decoder.block.3.layer.2.DenseReluDense.wo.output", "down_proj", "mlp_out", 3, Port::output},
      // TransformerLens' hook points
      {"blocks.3.hook_resid_pre", "layer", "resid", 3, Port::input},
      {"blocks.3.attn.hook_q", "q", "q", 3, Port::output},
      {"blocks.3.attn.hook_pattern", "probs", "probs", 3, Port::output},
      {"blocks.3.mlp.hook_pre", "up_proj", "up", 3, Port::output},
      {"blocks.3.hook_mlp_out", "down_proj", "mlp_out", 3, Port::output},
      // Flax's intermediates
      {"layers_3/mlp/up_proj/__call__", "up_proj", "up", 3, Port::output},
      {"norm/__call__", "final_norm", "norm_out", -1, Port::output},
      {"intermediates/layers_3/mlp/up_proj/__call__/0", "up_proj", "up", 3, Port::output},
      {"['intermediates']['layers_3']['mlp']['up_proj']['__call__'][0]", "up_proj", "up", 3, Port::output},
      // ONNX graphs that PyTorch exported
      {"/model/layers.3/mlp/up_proj/MatMul_output_0", "up_proj", "up", 3, Port::output},
      {"step_1//m/model/layers.3/self_attn/o_proj/Gemm_output_0", "o_proj", "out", 3, Port::output},
      {"/lm_head/MatMul_output_0", "lm_head", "logits", -1, Port::output},
      // transformers' outputs
      {"hidden_states.3", "layer", "resid", 3, Port::input},
      {"hidden_states_3", "layer", "resid", 3, Port::input},
      {"outputs.hidden_states.3", "layer", "resid", 3, Port::input},
      {"attentions.3", "probs", "probs", 3, Port::output},
      // a list of what a module of each layer gave
      {"mlp.3", "mlp", "mlp_out", 3, Port::output},
      // outside of the layers
      {"model.rotary_emb.output.0", "rope", "rope", -1, Port::output},
      {"model.output", "model", "out", -1, Port::output},
      {"vision_model.embeddings.position_embedding.output", "pos_embed", "embed", -1, Port::output},
      {"vision_model.pre_layrnorm.output", "pre_norm", "norm_out", -1, Port::output},
      {"vit.embeddings.patch_embeddings.projection.output", "patch_embed", "embed", -1, Port::output},
      {"visual.merger.ln_q.output", "projector_norm", "norm_out", -1, Port::output},
      {"visual.merger.mlp.2.output", "projector_down", "out", -1, Port::output},
      {"multi_modal_projector.linear_1.output", "projector_up", "up", -1, Port::output},
      {"mtp.fc.output", "mtp_proj", "resid", -1, Port::output},
  };
  for (const Named& expected : cases) {
    const TensorName found = parse_tensor_name(expected.name);
    EXPECT_TRUE(found.known) << expected.name;
    EXPECT_EQ(found.op, expected.op) << expected.name;
    EXPECT_EQ(found.role, expected.role) << expected.name;
    EXPECT_EQ(found.layer.value_or(-1), expected.layer) << expected.name;
    EXPECT_EQ(found.port, expected.port) << expected.name;
  }
  EXPECT_EQ(parse_tensor_name("mtp.layers.0.mlp.output").tower, "mtp");
  // Other operators are none of the module's outputs, and of the same pass.
  EXPECT_FALSE(parse_tensor_name("/model/layers.3/input_layernorm/Mul_1_output_0").known);
  EXPECT_EQ(parse_tensor_name("/model/layers.3/input_layernorm/Mul_1_output_0").layer, 3);
  EXPECT_EQ(parse_tensor_name("/model/layers.3/mlp/Mul_output_0").pass(), "");
  // What generate() returns is a list of steps of such lists.
  EXPECT_EQ(parse_tensor_name("hidden_states.2.3").step, 2);
  EXPECT_EQ(parse_tensor_name("hidden_states.2.3").layer, 3);
  EXPECT_EQ(parse_tensor_name("attentions.2.3").role, "probs");
  EXPECT_EQ(parse_tensor_name("logits.2").step, 2);
  EXPECT_EQ(parse_tensor_name("logits.2").role, "logits");
  EXPECT_EQ(parse_tensor_name("hidden_states_0").role, "resid") << "the sum before the layers";
  EXPECT_EQ(parse_tensor_name("audio_tower.layers.0.fc1.output").tower, "audio");
}

struct Formed {
  std::string name;
  std::string role;
  Form form;
};

/// The same tensor in another form keeps its role.
TEST(TensorName, WordsBesideARoleSayInWhichForm) {
  const std::vector<Formed> cases = {
      {"model.layers.3.self_attn.k_proj.weight_scale", "weight", Form::scale},
      {"model.layers.3.self_attn.k_proj.weight_scale_2", "weight", Form::second_scale},
      {"model.layers.2.self_attn.k_scale", "k", Form::scale},
      {"model.layers.2.self_attn.attn.k_codes", "k", Form::codes},
      {"model.layers.2.self_attn.attn.k_dequant", "k_read", Form::value},
      {"model.layers.2.self_attn.attn.amax_history", "", Form::amax_history},
      {"model.layers.2.mlp.down_proj.input_scale", "", Form::scale},
      {"model.layers.2.self_attn.attn.k_cache", "k_cache", Form::value},
  };
  for (const Formed& expected : cases) {
    const TensorName found = parse_tensor_name(expected.name);
    EXPECT_EQ(static_cast<int>(found.form), static_cast<int>(expected.form)) << expected.name;
    if (!expected.role.empty()) {
      EXPECT_EQ(found.role, expected.role) << expected.name;
    }
  }
}

TEST(TensorName, KnowsWhatStandsOutsideTheLayers) {
  EXPECT_EQ(parse_tensor_name("model.embed_tokens.output").role, "embed");
  EXPECT_EQ(parse_tensor_name("model.norm.output").op, "final_norm");
  EXPECT_EQ(parse_tensor_name("lm_head.output").role, "logits");
  EXPECT_EQ(parse_tensor_name("next_token").role, "sampled");
  EXPECT_EQ(parse_tensor_name("vision_tower.blocks.2.attn.qkv.output").tower, "vision");
}

TEST(TensorName, ReadsStepsRanksAndRequestsFromFolders) {
  const TensorName name = parse_tensor_name("good/step_003/rank1/request_12/model.layers.0.mlp.output");
  EXPECT_EQ(name.run, "good");
  EXPECT_EQ(name.step, 3);
  EXPECT_EQ(name.rank, 1);
  EXPECT_EQ(name.request, 12);
  EXPECT_EQ(parse_tensor_name("prefill/x").step, 0);
  EXPECT_EQ(parse_tensor_name("decode_0/x").step, 1);
}

TEST(TensorName, LeavesOutWhatItDoesNotKnow) {
  const TensorName name = parse_tensor_name("my_model.weird_thing.output");
  EXPECT_FALSE(name.known);
  EXPECT_EQ(name.op, "weird_thing");
  EXPECT_EQ(name.role, "out");
  for (const char* odd :
       {"", "/", ".", "..", "a//b", "-3", "layers.", "layers.99999999999999999999.x", "x.output.output"}) {
    parse_tensor_name(odd);
  }
}

struct Repeated {
  std::string name;
  std::string module;
  Port port;
  int index;
};

/// What a module gives when it is called again in a step is not what it gave at first.
TEST(TensorName, TakesAPartOfAModuleForNoneOfTheLayersOwn) {
  EXPECT_EQ(parse_tensor_name("model.layers.3.mlp.output").op, "mlp");
  EXPECT_FALSE(parse_tensor_name("model.layers.3.adapter.mlp.output").known);
  EXPECT_FALSE(parse_tensor_name("model.layers.3.probe.self_attn.output").known);
}

TEST(TensorName, TakesALaterCallOfAModuleForAnother) {
  const std::vector<Repeated> cases = {
      {"model.layers.3.mlp.output_again2", "model.layers.3.mlp_again2", Port::output, 0},
      {"model.layers.3.mlp.up_proj.input_again12.1", "model.layers.3.mlp.up_proj_again12", Port::input, 1},
      {"model.layers.3.mlp.output_again", "model.layers.3.mlp_again", Port::output, 0},
      {"model.layers.3.mlp.output_again_again", "model.layers.3.mlp_again_again", Port::output, 0},
      {"model.layers.3.mlp.input.1_again", "model.layers.3.mlp_again", Port::input, 1},
      {"model.layers.3.output_again2", "model.layers.3.again2", Port::output, 0},
  };
  for (const Repeated& expected : cases) {
    const TensorName found = parse_tensor_name("step_00001/" + expected.name);
    EXPECT_FALSE(found.known) << expected.name;
    EXPECT_EQ(found.layer, 3) << expected.name;
    EXPECT_EQ(found.step, 1) << expected.name;
    EXPECT_EQ(found.module, expected.module) << expected.name;
    EXPECT_EQ(found.port, expected.port) << expected.name;
    EXPECT_EQ(found.index, expected.index) << expected.name;
  }
  for (const char* odd :
       {"_again", "_again2", ".output_again", "output_again2.x", "x.output_again2.", "a_again_b.output",
        "x.output.99999999999999999999_again", "x.output_again99999999999999999999.1"}) {
    parse_tensor_name(odd);
  }
}

TEST(TensorName, NumbersCompareAsNumbers) {
  EXPECT_TRUE(natural_less("step_2", "step_10"));
  EXPECT_FALSE(natural_less("step_10", "step_2"));
  EXPECT_TRUE(natural_less("prefill", "decode_0"));
  EXPECT_FALSE(natural_less("step_01", "step_1"));
  EXPECT_FALSE(natural_less("step_1", "step_01"));
}

TEST(NaturalOrder, IsAnOrder) {
  const std::vector<std::string> names = {"prefill", "decode",    "logits",   "prefer",  "decoy",
                                          "data",    "decode_2",  "x",        "decoder", "decode_10",
                                          "step_2",  "prefill_3", "a/prefill"};
  EXPECT_TRUE(natural_less("prefill", "decode"));
  EXPECT_TRUE(natural_less("a/prefill_10", "a/decode_2"));
  for (const std::string& a : names) {
    for (const std::string& b : names) {
      EXPECT_FALSE(natural_less(a, b) && natural_less(b, a)) << a << ' ' << b;
      for (const std::string& c : names) {
        EXPECT_TRUE(!natural_less(a, b) || !natural_less(b, c) || natural_less(a, c)) << a << ' ' << b << ' ' << c;
      }
    }
  }
}

TEST(TensorName, AFilesNameMaySayTheStepAnywhere) {
  EXPECT_EQ(step_in("acts_step0"), 0);
  EXPECT_EQ(step_in("iter_0000100_acts"), 100);
  EXPECT_EQ(step_in("dump.pass-3"), 3);
  EXPECT_FALSE(step_in("layer_3"));
  EXPECT_FALSE(step_in("model-00001-of-00002"));
}

}  // namespace
}  // namespace nanscope
