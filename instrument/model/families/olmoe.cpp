/// OLMoE (transformers/models/olmoe): norms on the whole of Q and K, experts by softmax.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_olmoe(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.norm_eps = 1e-5});
  spec.model.qk_norm = true;
  spec.model.qk_norm_over = QkNormOver::projection;
  read_attention_bias(config, spec);
  if (config.has("clip_qkv")) config.reject("clip_qkv", "queries, keys and values that are clipped are not supported");
  read_experts(config, spec, 8, false);
  spec.model.experts = config.integer("num_local_experts", config.integer("num_experts", 64, 1, 256), 1, 256);
  spec.model.expert_width = spec.model.mlp_width;
  config.only_text("hidden_act", "silu");
  return config.status();
}

}  // namespace

extern const ModelFamily family_olmoe;
const ModelFamily family_olmoe{.name = "olmoe",
                               .model_types = "olmoe",
                               .read = read_olmoe,
                               .layers = "model.layers.",
                               .base = "model.",
                               .globals = kDecoderGlobals,
                               .parts = kMixtureParts};

}  // namespace nanscope
