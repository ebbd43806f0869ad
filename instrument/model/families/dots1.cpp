/// dots.llm1 (transformers/models/dots1): norms on each head of Q and K, dense layers first, DeepSeek's mixture.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_dots1(ConfigReader& config, ModelSpec& spec) {
  ModelConfig& model = spec.model;
  read_decoder(config, spec, {.kv_heads = 32});
  model.qk_norm = true;
  read_attention_bias(config, spec);
  read_deepseek_experts(config, spec, {.experts = 128, .chosen = 6, .width = 1408, .scale = 1, .dense = 0});
  spec.moe.normalise = config.flag("norm_topk_prob", false);
  read_window(config, spec, 4096);
  const std::int64_t first = config.integer("max_window_layers", 62, 0);
  read_layer_types(config, spec, [&](std::int64_t layer) { return layer < first; });
  if (model.window == 0) model.full_layers.clear();
  config.only_text("hidden_act", "silu");
  return config.status();
}

}  // namespace

extern const ModelFamily family_dots1;
const ModelFamily family_dots1{.name = "dots1",
                               .model_types = "dots1",
                               .read = read_dots1,
                               .layers = "model.layers.",
                               .base = "model.",
                               .globals = kDecoderGlobals,
                               .parts = kDeepseekMixtureParts};

}  // namespace nanscope
