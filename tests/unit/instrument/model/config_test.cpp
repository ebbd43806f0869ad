// config.json files: defaults where keys are missing, both spellings of rotary settings, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "instrument/model/model_spec.h"

namespace nanscope::config_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A config.json of a Llama with other members behind the needed ones.
std::string llama(const std::string& members = "") {
  return R"({"model_type": "llama", "vocab_size": 32, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
             "num_attention_heads": 4)" +
         (members.empty() ? "" : ", " + members) + "}";
}

ModelSpec spec_of(const std::string& json) {
  const Result<ModelSpec> spec = parse_model_spec(json, "config.json");
  EXPECT_TRUE(spec) << (spec ? "" : spec.error().message);
  return spec.value_or(ModelSpec{});
}

std::string refusal(const std::string& json) {
  const Result<ModelSpec> spec = parse_model_spec(json, "config.json");
  EXPECT_FALSE(spec);
  return spec ? "" : spec.error().message;
}

TEST(ModelConfigFile, MissingKeysHaveTheDefaultsOfTheFamily) {
  const ModelSpec llama2 = spec_of(llama());
  EXPECT_EQ(llama2.model.kv_heads, 4);
  EXPECT_EQ(llama2.model.head_dim, 16);
  EXPECT_EQ(llama2.model.window, 0);
  EXPECT_FLOAT_EQ(llama2.norm_eps, 1e-6F);
  EXPECT_EQ(llama2.model.rope_base, 10000);
  EXPECT_EQ(llama2.format, Format::f32);
  std::string mistral = llama();
  mistral.replace(mistral.find("llama"), 5, "mistral");
  EXPECT_EQ(spec_of(mistral).model.window, 4096) << "a missing window is not a null one";
  mistral.replace(mistral.find("\"vocab_size"), 0, R"("sliding_window": null, "num_key_value_heads": 2, )");
  EXPECT_EQ(spec_of(mistral).model.window, 0);
  std::string qwen3 = llama();
  qwen3.replace(qwen3.find("llama"), 5, "qwen3");
  EXPECT_EQ(spec_of(qwen3).model.head_dim, 128);
}

TEST(ModelConfigFile, RotarySettingsAreReadInBothSpellings) {
  const std::string settings =
      R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192)";
  const ModelSpec older =
      spec_of(llama(R"("rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", )" + settings + "}"));
  const ModelSpec newer =
      spec_of(llama(R"("rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", )" + settings + "}"));
  for (const ModelSpec& spec : {older, newer}) {
    EXPECT_EQ(spec.model.rope_base, 500000);
    EXPECT_EQ(spec.rope.scaling, RopeScaling::llama3);
    EXPECT_EQ(spec.rope.factor, 8);
    EXPECT_EQ(spec.rope.trained, 8192);
  }
  const ModelSpec oldest = spec_of(llama(R"("rope_scaling": {"type": "linear", "factor": 2.0})"));
  EXPECT_EQ(oldest.rope.scaling, RopeScaling::linear);
}

TEST(ModelConfigFile, WindowsOfGemmaAlternate) {
  const std::string shapes =
      R"("vocab_size": 32, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 7, "num_attention_heads": 4})";
  const ModelSpec gemma2 = spec_of(R"({"model_type": "gemma2", )" + shapes);
  EXPECT_THAT(gemma2.model.full_layers, ElementsAre(1, 3, 5));
  EXPECT_EQ(gemma2.model.attention_softcap, 50);
  EXPECT_EQ(gemma2.model.embedding_scale, 8);
  EXPECT_TRUE(gemma2.model.tied_head);
  const ModelSpec gemma3 = spec_of(R"({"model_type": "gemma3_text", "rope_local_base_freq": 20000.0, )" + shapes);
  EXPECT_THAT(gemma3.model.full_layers, ElementsAre(5));
  EXPECT_EQ(gemma3.model.rope_base, 1e6);
  EXPECT_EQ(gemma3.model.local_rope_base, 20000);
  EXPECT_EQ(gemma3.model.attention_softcap, 0);
}

/// Values of keys that files leave out, as the configuration classes of transformers 5.24 have them.
TEST(ModelConfigFile, OlderFilesLeaveOutWhatTheirFamilyHas) {
  const auto bare = [](const std::string& type, const std::string& more = "") {
    return spec_of(R"({"model_type": ")" + type +
                   R"(", "vocab_size": 32, "hidden_size": 64, "intermediate_size": 96,)" +
                   R"("num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 4)" + more + "}");
  };
  EXPECT_EQ(bare("stablelm").model.rotated, 4);
  EXPECT_EQ(bare("glm4_moe").model.rotated, 8);
  EXPECT_THAT(bare("smollm3").model.unrotated_layers, ElementsAre(3, 7));
  EXPECT_THAT(bare("olmo3").model.full_layers, ElementsAre(3, 7));
  EXPECT_EQ(bare("olmo3").model.local_rope_base, 500000);
  EXPECT_THAT(bare("exaone4").model.full_layers, ElementsAre(3, 7));
  EXPECT_THAT(bare("exaone4").model.unrotated_layers, ElementsAre(3, 7));
  EXPECT_THAT(bare("exaone4", R"(, "sliding_window": null)").model.unrotated_layers, ElementsAre());
  EXPECT_THAT(bare("dots1", R"(, "max_window_layers": 3)").model.full_layers, ElementsAre(0, 1, 2));
  EXPECT_EQ(bare("dots1").moe.normalise, false);
  EXPECT_EQ(bare("glm4_moe").moe.normalise, true);
  EXPECT_EQ(bare("glm4_moe", R"(, "num_nextn_predict_layers": 1)").model.mtp_layers, 1);
  EXPECT_EQ(bare("gemma").model.embedding_scale, 8);
  EXPECT_EQ(bare("granite").model.attention_scale, 1) << "not 1 / sqrt(head_dim)";
  EXPECT_EQ(bare("helium").model.head_dim, 128);
  EXPECT_EQ(bare("helium").model.rope_base, 100000);
  EXPECT_FLOAT_EQ(bare("helium").norm_eps, 1e-8F);
  EXPECT_EQ(bare("nemotron").model.rotated, 8);
  EXPECT_EQ(bare("arcee").model.mlp, kernels::ActivationKind::relu_squared);
}

std::string with(std::string json, const std::string& from, const std::string& to) {
  return json.replace(json.find(from), from.size(), to);
}

/// Qwen3-Next-80B-A3B's own file, as its repository has it, with fewer layers.
TEST(ModelConfigFile, Qwen3NextIsReadAsItsFilesHaveIt) {
  const std::string file = R"({"model_type": "qwen3_next", "attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "full_attention_interval": 4,
      "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5120,
      "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
      "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 262144,
      "mlp_only_layers": [], "moe_intermediate_size": 512, "norm_topk_prob": true, "num_attention_heads": 16,
      "num_experts": 512, "num_experts_per_tok": 10, "num_hidden_layers": 8, "num_key_value_heads": 2,
      "output_router_logits": false, "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06, "rope_scaling": null,
      "rope_theta": 10000000, "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 151936})";
  const ModelConfig model = spec_of(file).model;
  EXPECT_THAT(model.recurrent_layers, ElementsAre(0, 1, 2, 4, 5, 6));
  EXPECT_EQ(model.delta_key_heads, 16);
  EXPECT_EQ(model.delta_value_heads, 32);
  EXPECT_EQ(model.rotated, 64);
  EXPECT_TRUE(model.attention_gate && model.qk_norm && model.shared_expert_gate);
  EXPECT_EQ(model.experts, 512);
  // 3 rows of 16 x 128 queries, as many keys, 32 x 128 values; 32 states of 128 x 128.
  EXPECT_EQ(state_width(model), 3 * 8192 + 524288);
  EXPECT_THAT(refusal(with(file, R"("linear_num_value_heads": 32)", R"("linear_num_value_heads": 24)")),
              HasSubstr("linear_num_value_heads: 24 is no multiple"));
  EXPECT_THAT(refusal(with(file, R"("full_attention_interval": 4)", R"("full_attention_interval": 9)")),
              HasSubstr("full_attention"));
}

/// Qwen3.5's text models leave out what their class has.
TEST(ModelConfigFile, Qwen35IsReadWithItsDefaults) {
  const std::string shapes = R"("vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 4,
      "num_attention_heads": 4, "rope_parameters": {"rope_type": "default", "rope_theta": 1e7,
      "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10], "mrope_interleaved": true})";
  const ModelConfig dense = spec_of(R"({"model_type": "qwen3_5_text", "intermediate_size": 96, )" + shapes + "}").model;
  EXPECT_EQ(dense.experts, 0);
  EXPECT_EQ(dense.kv_heads, 4);
  EXPECT_EQ(dense.head_dim, 256);
  EXPECT_THAT(dense.recurrent_layers, ElementsAre(0, 1, 2));
  const ModelConfig mixture =
      spec_of(R"({"model_type": "qwen3_5_moe_text", "num_key_value_heads": 2, )" + shapes + "}").model;
  EXPECT_EQ(mixture.experts, 256);
  EXPECT_EQ(mixture.experts_per_token, 8);
  EXPECT_THAT(mixture.dense_layers, ElementsAre());
  EXPECT_THAT(
      refusal(R"({"model_type": "qwen3_5_text", "intermediate_size": 96, "attn_output_gate": false, )" + shapes + "}"),
      HasSubstr("attn_output_gate"));
}

/// Attention and MLP that read the same.
TEST(ModelConfigFile, BranchesStandSideBySide) {
  const std::string shapes = R"("vocab_size": 32, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 8,
      "num_attention_heads": 4)";
  const auto read = [&](const std::string& type, const std::string& more = "") {
    return spec_of(R"({"model_type": ")" + type + R"(", )" + shapes + more + "}").model;
  };
  EXPECT_TRUE(read("cohere").parallel && read("cohere").shared_norm);
  EXPECT_FALSE(read("cohere").norm_bias);
  EXPECT_EQ(read("cohere").logit_scale, 0.0625);
  EXPECT_EQ(read("cohere").rope_base, 500000);
  EXPECT_THAT(read("cohere2").unrotated_layers, ElementsAre(3, 7));
  EXPECT_THAT(read("cohere2").full_layers, ElementsAre(3, 7));
  EXPECT_EQ(read("cohere2").window, 4096);
  EXPECT_EQ(read("phi").rotated, 8);
  EXPECT_TRUE(read("phi").head_bias);
  EXPECT_EQ(read("gpt_neox").rotated, 4) << "a quarter, which Pythia's files call rotary_pct";
  EXPECT_TRUE(read("gpt_neox").parallel && !read("gpt_neox").shared_norm);
  EXPECT_FALSE(read("gpt_neox", R"(, "use_parallel_residual": false)").parallel);
  EXPECT_THAT(refusal(R"({"model_type": "cohere", "use_qk_norm": true, )" + shapes + "}"), HasSubstr("use_qk_norm"));
  EXPECT_THAT(refusal(R"({"model_type": "gpt_neox", "hidden_act": "relu", )" + shapes + "}"), HasSubstr("hidden_act"));
  const std::string gptj = R"({"model_type": "gptj", "vocab_size": 32, "n_embd": 64, "n_layer": 2, "n_head": 4)";
  EXPECT_EQ(spec_of(gptj + R"(, "rotary_dim": 8})").model.rotated, 8);
  EXPECT_EQ(spec_of(gptj + R"(, "rotary_dim": null})").model.rotated, 0);
  EXPECT_EQ(spec_of(gptj + R"(, "rotary_dim": 8})").model.mlp_width, 256);
  EXPECT_THAT(refusal(gptj + R"(, "rotary_dim": 7})"), HasSubstr("rotary_dim"));
}

/// Falcon-7B, -40B and -RW, whose files differ in these keys.
TEST(ModelConfigFile, FalconHasThreeFormsOfALayer) {
  const std::string shapes = R"({"model_type": "falcon", "vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 8)";
  const ModelConfig single = spec_of(shapes + R"(, "multi_query": true, "parallel_attn": true})").model;
  EXPECT_EQ(single.kv_heads, 1);
  EXPECT_TRUE(single.parallel && single.shared_norm);
  EXPECT_EQ(single.mlp_width, 256);
  const ModelConfig grouped = spec_of(shapes + R"(, "new_decoder_architecture": true, "num_kv_heads": 2})").model;
  EXPECT_EQ(grouped.kv_heads, 2);
  EXPECT_TRUE(grouped.parallel && !grouped.shared_norm);
  const ModelConfig serial =
      spec_of(shapes + R"(, "multi_query": false, "parallel_attn": false, "bias": true, "alibi": false})").model;
  EXPECT_EQ(serial.kv_heads, 8);
  EXPECT_FALSE(serial.parallel);
  EXPECT_TRUE(serial.bias);
  EXPECT_THAT(refusal(shapes + R"(, "alibi": true})"), HasSubstr("alibi"));
}

/// Granite 3.1's factors, as its files have them.
TEST(ModelConfigFile, FactorsOfGranite) {
  const std::string shapes = R"("vocab_size": 32, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
      "num_attention_heads": 4, "embedding_multiplier": 12.0, "attention_multiplier": 0.0078125,
      "residual_multiplier": 0.22, "logits_scaling": 16.0)";
  const ModelSpec granite = spec_of(R"({"model_type": "granite", )" + shapes + "}");
  EXPECT_EQ(granite.model.embedding_scale, 12);
  EXPECT_EQ(granite.model.attention_scale, 0.0078125);
  EXPECT_EQ(granite.model.residual_scale, 0.22);
  EXPECT_EQ(granite.model.logit_scale, 0.0625) << "logits are divided by it";
  const ModelSpec moe =
      spec_of(R"({"model_type": "granitemoe", "num_local_experts": 40, "num_experts_per_tok": 8, )" + shapes + "}");
  EXPECT_EQ(moe.moe.score, kernels::RouterScore::softmax_of_chosen);
  EXPECT_EQ(moe.model.experts, 40);
  EXPECT_THAT(refusal(R"({"model_type": "granite", "hidden_act": "gelu", )" + shapes + "}"), HasSubstr("hidden_act"));
}

/// DeepSeek-V3's own file, as its repository has it, with fewer layers.
constexpr const char* kDeepseekV3 = R"({"model_type": "deepseek_v3", "attention_bias": false, "aux_loss_alpha": 0.001,
    "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168, "intermediate_size": 18432,
    "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 2048, "moe_layer_freq": 1,
    "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 5, "num_key_value_heads": 128, "num_nextn_predict_layers": 1,
    "pretraining_tp": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
    "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000, "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 4,
    "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 129280, "quantization_config":
    {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}})";

TEST(ModelConfigFile, DeepseekIsReadAsItsFilesHaveIt) {
  const ModelSpec v3 = spec_of(kDeepseekV3);
  EXPECT_EQ(v3.model.head_dim, 192);
  EXPECT_EQ(v3.model.rotated, 64);
  EXPECT_EQ(v3.model.rotated_from, 128);
  EXPECT_EQ(v3.model.value_dim, 128);
  EXPECT_EQ(v3.model.kv_rank, 512);
  EXPECT_EQ(v3.model.q_rank, 1536);
  EXPECT_EQ(v3.model.rope_pairs, RopePairs::neighbours);
  EXPECT_EQ(v3.rope.amplitude, 1) << "mscale over mscale_all_dim";
  // (0.1 ln 40 + 1)^2 / sqrt(192)
  EXPECT_NEAR(v3.model.attention_scale, 0.13523377, 1e-8);
  EXPECT_EQ(v3.moe.groups, 8);
  EXPECT_EQ(v3.moe.top_groups, 4);
  EXPECT_EQ(v3.moe.score, kernels::RouterScore::sigmoid);
  EXPECT_THAT(v3.model.dense_layers, ElementsAre(0, 1, 2));
  EXPECT_EQ(v3.model.mtp_layers, 1);
  EXPECT_TRUE(v3.quantized);
  const ModelSpec kimi =
      spec_of(with(with(with(kDeepseekV3, "deepseek_v3", "kimi_k2"), R"("n_group": 8)", R"("n_group": 1)"),
                   R"("topk_group": 4)", R"("topk_group": 1)"));
  EXPECT_EQ(kimi.model.family, "deepseek_v3");
  EXPECT_EQ(kimi.moe.groups, 1);
  EXPECT_EQ(spec_of(with(kDeepseekV3, R"("q_lora_rank": 1536)", R"("q_lora_rank": null)")).model.q_rank, 0);
  EXPECT_THAT(refusal(with(kDeepseekV3, R"("topk_group": 4)", R"("topk_group": 9)")), HasSubstr("topk_group: 9 of 8"));
  EXPECT_THAT(refusal(with(kDeepseekV3, R"("n_group": 8)", R"("n_group": 7)")),
              HasSubstr("n_group: 7 does not divide"));
  EXPECT_THAT(refusal(with(kDeepseekV3, "noaux_tc", "greedy")), HasSubstr("topk_method: 'greedy'"));
  EXPECT_THAT(refusal(with(kDeepseekV3, R"("num_key_value_heads": 128)", R"("num_key_value_heads": 8)")),
              HasSubstr("num_key_value_heads: expected"));
}

/// DeepSeek-V2-Lite's keys where they differ, and GLM-4.7-Flash's defaults in transformers 5.24.
TEST(ModelConfigFile, DescendantsOfDeepseekDiffer) {
  const std::string shapes = R"("vocab_size": 32, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
      "num_attention_heads": 4, )";
  const std::string v2 =
      R"({"model_type": "deepseek_v2", )" + shapes + R"("num_experts_per_tok": 6, "q_lora_rank": null,
      "scoring_func": "softmax", "norm_topk_prob": false, )";
  const ModelSpec lite = spec_of(v2 + R"("topk_method": "greedy", "n_group": 1, "topk_group": 1})");
  EXPECT_EQ(lite.moe.score, kernels::RouterScore::softmax);
  EXPECT_FALSE(lite.moe.bias || lite.moe.normalise);
  EXPECT_EQ(lite.moe.groups, 1);
  EXPECT_EQ(lite.model.shared_expert_width, 2 * 1407);
  const ModelSpec whole = spec_of(v2 + R"("topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 3})");
  EXPECT_EQ(whole.moe.groups, 8);
  EXPECT_EQ(whole.moe.group_score, kernels::GroupScore::best);
  EXPECT_THAT(refusal(v2 + R"("topk_method": "noaux_tc"})"), HasSubstr("topk_method"));
  EXPECT_THAT(refusal(v2 + R"("rope_interleave": false})"), HasSubstr("rope_interleave"));
  const std::string glm = R"({"model_type": "glm4_moe_lite", )" + shapes + R"("num_key_value_heads": 4)";
  EXPECT_EQ(spec_of(glm + "}").model.head_dim, 256);
  EXPECT_FLOAT_EQ(spec_of(glm + "}").norm_eps, 1e-5F);
  EXPECT_EQ(spec_of(glm + "}").model.latent_norm_eps, 1e-6);
  EXPECT_THAT(spec_of(glm + "}").model.dense_layers, ElementsAre(0));
  EXPECT_THAT(spec_of(glm + R"(, "mlp_layer_types": ["sparse", "dense", "sparse", "dense"]})").model.dense_layers,
              ElementsAre(1, 3));
  EXPECT_THAT(refusal(glm + R"(, "mlp_layer_types": ["sparse"]})"), HasSubstr("mlp_layer_types: 1 names for 4 layers"));
}

TEST(ModelConfigFile, GptOssIsReadAsItsFilesHaveIt) {
  const std::string shapes =
      R"("vocab_size": 32, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 8)";
  const ModelSpec bare = spec_of(R"({"model_type": "gpt_oss", )" + shapes + "}");
  EXPECT_THAT(bare.model.full_layers, ElementsAre(1, 3));
  EXPECT_EQ(bare.model.window, 128);
  EXPECT_EQ(bare.model.head_dim, 64);
  EXPECT_EQ(bare.model.rope_base, 150000);
  EXPECT_EQ(bare.rope.scaling, RopeScaling::yarn);
  EXPECT_FALSE(bare.rope.truncate);
  EXPECT_EQ(bare.model.swiglu_limit, 7);
  EXPECT_TRUE(bare.model.attention_sinks && bare.model.router_bias && bare.model.mlp_bias && bare.model.qkv_bias);
  // As openai/gpt-oss-20b states it.
  const std::string stated = R"(, "experts_per_token": 4, "num_experts_per_tok": 4, "initial_context_length": 4096,
      "num_local_experts": 32, "rope_theta": 150000, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
      "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false}, "swiglu_limit": 5.0,
      "quantization_config": {"modules_to_not_convert": ["lm_head"], "quant_method": "mxfp4"}})";
  const ModelSpec full = spec_of(R"({"model_type": "gpt_oss", )" + shapes + stated);
  EXPECT_EQ(full.model.experts, 32);
  EXPECT_EQ(full.rope.factor, 32);
  EXPECT_EQ(full.model.swiglu_limit, 5);
  EXPECT_TRUE(full.quantized);
  EXPECT_THAT(refusal(R"({"model_type": "gpt_oss", )" + shapes + R"(, "experts_per_token": 2})"),
              HasSubstr("experts_per_token: another number than num_experts_per_tok"));
}

TEST(ModelConfigFile, DtypesAndEndTokens) {
  EXPECT_EQ(spec_of(llama(R"("torch_dtype": "bfloat16")")).format, Format::bf16);
  EXPECT_EQ(spec_of(llama(R"("dtype": "float16")")).format, Format::f16);
  EXPECT_THAT(spec_of(llama(R"("eos_token_id": 7)")).model.end_tokens, ElementsAre(7));
  EXPECT_THAT(spec_of(llama(R"("eos_token_id": [7, 9])")).model.end_tokens, ElementsAre(7, 9));
}

TEST(ModelConfigFile, WhatTheEngineDoesNotDoIsRefusedByName) {
  EXPECT_THAT(refusal(llama(R"("hidden_act": "relu")")), HasSubstr("config.json: hidden_act: 'relu' is not supported"));
  EXPECT_THAT(refusal(llama(R"("some_new_trick": true)")), HasSubstr("not supported: some_new_trick"));
  EXPECT_THAT(refusal(llama(R"("quantization_config": {"quant_method": "aqlm"})")),
              HasSubstr("quantization_config: weights of the quant_method 'aqlm' are not decoded"));
  EXPECT_THAT(refusal(llama(R"("rope_scaling": {"rope_type": "proportional"})")), HasSubstr("'proportional'"));
  EXPECT_THAT(refusal(llama(R"("rope_scaling": {"type": "linear", "factor": 2.0, "twist": 1})")), HasSubstr("twist"));
  EXPECT_THAT(refusal(llama(R"("torch_dtype": "float8_e4m3fn")")), HasSubstr("float8_e4m3fn"));
  EXPECT_THAT(refusal(R"({"model_type": "mamba"})"), HasSubstr("'mamba' is no family"));
}

TEST(ModelConfigFile, BadInputIsOneLine) {
  for (const std::string& json :
       {std::string("[1, 2]"), std::string("{"), std::string("{}"), llama(R"("rms_norm_eps": NaN)"),
        llama(R"("rms_norm_eps": "small")"), llama(R"("rms_norm_eps": 1e999)"), llama(R"("num_key_value_heads": 1.5)"),
        llama(R"("num_key_value_heads": -2)"), llama(R"("num_key_value_heads": 18446744073709551615)"),
        llama(R"("num_hidden_layers": 1000000)"), llama(R"("eos_token_id": ["a"])"), llama(R"("rope_parameters": [])"),
        llama(R"("rope_scaling": {"rope_type": 3})"), std::string(100000, '['),
        R"({"model_type": "llama\u001b[31m\n"})" + std::string()}) {
    const std::string said = refusal(json);
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    EXPECT_EQ(said.find('\x1b'), std::string::npos) << said;
    EXPECT_TRUE(said.starts_with("config.json")) << said;
    EXPECT_LT(said.size(), 600U) << said;
  }
}

}  // namespace
}  // namespace nanscope::config_test
