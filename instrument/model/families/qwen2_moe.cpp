/// Qwen1.5-MoE and Qwen2-MoE (transformers/models/qwen2_moe): a gated expert that every token has beside the chosen
/// ones.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_qwen2_moe(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.kv_heads = 16});
  spec.model.qkv_bias = config.flag("qkv_bias", true);
  read_optional_window(config, spec);
  read_experts(config, spec, 4, false);
  const std::int64_t experts = config.integer("num_experts", 60, 0, 256);
  spec.model.experts = config.integer("num_local_experts", experts, 0, 256);
  spec.model.expert_width = config.integer("moe_intermediate_size", 1408, 1);
  spec.model.shared_expert_width = config.integer("shared_expert_intermediate_size", 5632, 1);
  config.only_text("hidden_act", "silu");
  return config.status();
}

constexpr auto kQwen2MoeParts = joined(kNormsBefore, kAttention, kMlp, kExperts, kStackedExperts, kSharedExpert);

}  // namespace

extern const ModelFamily family_qwen2_moe;
const ModelFamily family_qwen2_moe{.name = "qwen2_moe",
                                   .model_types = "qwen2_moe",
                                   .read = read_qwen2_moe,
                                   .layers = "model.layers.",
                                   .base = "model.",
                                   .globals = kDecoderGlobals,
                                   .parts = kQwen2MoeParts};

}  // namespace nanscope
