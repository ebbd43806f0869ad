/// GLM-4.5 (transformers/models/glm4_moe): a partial rotation, dense layers first, experts by sigmoid whose choice has
/// a bias, and a shared expert that is added.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_glm4_moe(ConfigReader& config, ModelSpec& spec) {
  ModelConfig& model = spec.model;
  read_decoder(config, spec, {.norm_eps = 1e-5, .kv_heads = 8, .partial_rotary = 0.5});
  model.qk_norm = config.flag("use_qk_norm", false);
  model.qkv_bias = config.flag("attention_bias", false);
  read_deepseek_experts(config, spec, {.experts = 128, .chosen = 8, .width = 1408, .scale = 1, .dense = 1});
  config.only_text("hidden_act", "silu");
  return config.status();
}

}  // namespace

extern const ModelFamily family_glm4_moe;
const ModelFamily family_glm4_moe{.name = "glm4_moe",
                                  .model_types = "glm4_moe",
                                  .read = read_glm4_moe,
                                  .layers = "model.layers.",
                                  .base = "model.",
                                  .globals = kDecoderGlobals,
                                  .parts = kDeepseekMixtureParts};

}  // namespace nanscope
