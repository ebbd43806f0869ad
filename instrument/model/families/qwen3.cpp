/// Qwen3 (transformers/models/qwen3): a norm on each head of Q and K, heads of a width of their own.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_qwen3(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.kv_heads = 32, .head_dim = 128});
  spec.model.qk_norm = true;
  const bool bias = config.flag("attention_bias", false);
  spec.model.qkv_bias = bias;
  spec.model.o_bias = bias;
  read_optional_window(config, spec);
  config.only_text("hidden_act", "silu");
  return config.status();
}

constexpr WeightRule kQwen3Parts[] = {{"attn_norm", "input_layernorm"}, {"q_proj", "self_attn.q_proj"},
                                      {"k_proj", "self_attn.k_proj"},   {"v_proj", "self_attn.v_proj"},
                                      {"o_proj", "self_attn.o_proj"},   {"q_norm", "self_attn.q_norm"},
                                      {"k_norm", "self_attn.k_norm"},   {"mlp_norm", "post_attention_layernorm"},
                                      {"gate_proj", "mlp.gate_proj"},   {"up_proj", "mlp.up_proj"},
                                      {"down_proj", "mlp.down_proj"}};

}  // namespace

extern const ModelFamily family_qwen3;
const ModelFamily family_qwen3{.name = "qwen3",
                               .model_types = "qwen3",
                               .read = read_qwen3,
                               .layers = "model.layers.",
                               .base = "model.",
                               .globals = kDecoderGlobals,
                               .parts = kQwen3Parts};

}  // namespace nanscope
