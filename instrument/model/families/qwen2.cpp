/// Qwen2 and 2.5 (transformers/models/qwen2): biases on Q, K and V.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_qwen2(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.kv_heads = 32});
  spec.model.qkv_bias = true;
  read_optional_window(config, spec);
  config.only_text("hidden_act", "silu");
  return config.status();
}

constexpr WeightRule kQwen2Parts[] = {
    {"attn_norm", "input_layernorm"}, {"q_proj", "self_attn.q_proj"}, {"k_proj", "self_attn.k_proj"},
    {"v_proj", "self_attn.v_proj"},   {"o_proj", "self_attn.o_proj"}, {"mlp_norm", "post_attention_layernorm"},
    {"gate_proj", "mlp.gate_proj"},   {"up_proj", "mlp.up_proj"},     {"down_proj", "mlp.down_proj"}};

}  // namespace

extern const ModelFamily family_qwen2;
const ModelFamily family_qwen2{.name = "qwen2",
                               .model_types = "qwen2",
                               .read = read_qwen2,
                               .layers = "model.layers.",
                               .base = "model.",
                               .globals = kDecoderGlobals,
                               .parts = kQwen2Parts};

}  // namespace nanscope
