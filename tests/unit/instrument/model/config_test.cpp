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
    EXPECT_LT(said.size(), 400U) << said;
  }
}

}  // namespace
}  // namespace nanscope::config_test
