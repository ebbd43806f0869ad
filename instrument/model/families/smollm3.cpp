/// SmolLM3 (transformers/models/smollm3): Llama, whose every fourth layer has no rotary positions.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_smollm3(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.rope_base = 2e6, .kv_heads = 4, .tied = true});
  read_attention_bias(config, spec);
  spec.model.mlp_bias = config.flag("mlp_bias", false);
  read_layers_without_rope(config, spec);
  const bool used = config.flag("use_sliding_window", false);
  read_window(config, spec, 0);
  if (!used) spec.model.window = 0;
  const auto rotary = [&](std::int64_t layer) { return is_rotary(spec.model, layer); };
  read_layer_types(config, spec, rotary);
  if (spec.model.window == 0) spec.model.full_layers.clear();
  config.only_text("hidden_act", "silu");
  config.ignore({"pretraining_tp"});
  return config.status();
}

}  // namespace

extern const ModelFamily family_smollm3;
const ModelFamily family_smollm3{.name = "smollm3",
                                 .model_types = "smollm3",
                                 .read = read_smollm3,
                                 .layers = "model.layers.",
                                 .base = "model.",
                                 .globals = kDecoderGlobals,
                                 .parts = kDecoderParts};

}  // namespace nanscope
