/// Qwen3-MoE (transformers/models/qwen3_moe): Qwen3 with experts by softmax.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_qwen3_moe(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.kv_heads = 4});
  spec.model.qk_norm = true;
  read_attention_bias(config, spec);
  read_optional_window(config, spec);
  spec.model.full_layers.clear();  // the window, if any, is of all layers
  read_experts(config, spec, 8, false);
  const std::int64_t experts = config.integer("num_experts", 128, 0, 256);
  spec.model.experts = config.integer("num_local_experts", experts, 0, 256);
  spec.model.expert_width = config.integer("moe_intermediate_size", 768, 1);
  config.only_text("hidden_act", "silu");
  return config.status();
}

}  // namespace

extern const ModelFamily family_qwen3_moe;
const ModelFamily family_qwen3_moe{.name = "qwen3_moe",
                                   .model_types = "qwen3_moe",
                                   .read = read_qwen3_moe,
                                   .layers = "model.layers.",
                                   .base = "model.",
                                   .globals = kDecoderGlobals,
                                   .parts = kMixtureParts};

}  // namespace nanscope
