/// Mistral 7B and its like (transformers/models/mistral): a sliding window on all layers.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_mistral(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.kv_heads = 8});
  read_window(config, spec, 4096);
  config.only_text("hidden_act", "silu");
  return config.status();
}

constexpr WeightRule kMistralParts[] = {
    {"attn_norm", "input_layernorm"}, {"q_proj", "self_attn.q_proj"}, {"k_proj", "self_attn.k_proj"},
    {"v_proj", "self_attn.v_proj"},   {"o_proj", "self_attn.o_proj"}, {"mlp_norm", "post_attention_layernorm"},
    {"gate_proj", "mlp.gate_proj"},   {"up_proj", "mlp.up_proj"},     {"down_proj", "mlp.down_proj"}};

}  // namespace

extern const ModelFamily family_mistral;
const ModelFamily family_mistral{.name = "mistral",
                                 .model_types = "mistral",
                                 .read = read_mistral,
                                 .layers = "model.layers.",
                                 .base = "model.",
                                 .globals = kDecoderGlobals,
                                 .parts = kMistralParts};

}  // namespace nanscope
