/// SmolLM3 (transformers/models/smollm3): Llama, whose every fourth layer has no rotary positions.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_smollm3(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.rope_base = 2e6, .kv_heads = 4, .tied = true});
  const bool bias = config.flag("attention_bias", false);
  spec.model.qkv_bias = bias;
  spec.model.o_bias = bias;
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

constexpr WeightRule kSmollm3Parts[] = {
    {"attn_norm", "input_layernorm"}, {"q_proj", "self_attn.q_proj"}, {"k_proj", "self_attn.k_proj"},
    {"v_proj", "self_attn.v_proj"},   {"o_proj", "self_attn.o_proj"}, {"mlp_norm", "post_attention_layernorm"},
    {"gate_proj", "mlp.gate_proj"},   {"up_proj", "mlp.up_proj"},     {"down_proj", "mlp.down_proj"}};

}  // namespace

extern const ModelFamily family_smollm3;
const ModelFamily family_smollm3{.name = "smollm3",
                                 .model_types = "smollm3",
                                 .read = read_smollm3,
                                 .layers = "model.layers.",
                                 .base = "model.",
                                 .globals = kDecoderGlobals,
                                 .parts = kSmollm3Parts};

}  // namespace nanscope
