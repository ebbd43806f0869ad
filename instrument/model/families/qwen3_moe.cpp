/// Qwen3-MoE (transformers/models/qwen3_moe): Qwen3 with experts by softmax.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_qwen3_moe(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.kv_heads = 4});
  spec.model.qk_norm = true;
  const bool bias = config.flag("attention_bias", false);
  spec.model.qkv_bias = bias;
  spec.model.o_bias = bias;
  read_optional_window(config, spec);
  spec.model.full_layers.clear();  // the window, if any, is of all layers
  read_experts(config, spec, 8, false);
  const std::int64_t experts = config.integer("num_experts", 128, 0, 256);
  spec.model.experts = config.integer("num_local_experts", experts, 0, 256);
  spec.model.expert_width = config.integer("moe_intermediate_size", 768, 1);
  config.only_text("hidden_act", "silu");
  return config.status();
}

constexpr WeightRule kQwen3MoeParts[] = {{"attn_norm", "input_layernorm"},
                                         {"q_proj", "self_attn.q_proj"},
                                         {"k_proj", "self_attn.k_proj"},
                                         {"v_proj", "self_attn.v_proj"},
                                         {"o_proj", "self_attn.o_proj"},
                                         {"q_norm", "self_attn.q_norm"},
                                         {"k_norm", "self_attn.k_norm"},
                                         {"mlp_norm", "post_attention_layernorm"},
                                         {"gate_proj", "mlp.gate_proj"},
                                         {"up_proj", "mlp.up_proj"},
                                         {"down_proj", "mlp.down_proj"},
                                         {"router", "mlp.gate"},
                                         {"experts.gate_proj", "mlp.experts.{}.gate_proj"},
                                         {"experts.up_proj", "mlp.experts.{}.up_proj"},
                                         {"experts.down_proj", "mlp.experts.{}.down_proj"},
                                         kStackedGate,
                                         kStackedUp,
                                         kStackedDown};

}  // namespace

extern const ModelFamily family_qwen3_moe;
const ModelFamily family_qwen3_moe{.name = "qwen3_moe",
                                   .model_types = "qwen3_moe",
                                   .read = read_qwen3_moe,
                                   .layers = "model.layers.",
                                   .base = "model.",
                                   .globals = kDecoderGlobals,
                                   .parts = kQwen3MoeParts};

}  // namespace nanscope
