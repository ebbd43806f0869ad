/// Llama 2 and 3 (transformers/models/llama).
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_llama(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {});
  const bool bias = config.flag("attention_bias", false);
  spec.model.qkv_bias = bias;
  spec.model.o_bias = bias;
  spec.model.mlp_bias = config.flag("mlp_bias", false);
  config.only_text("hidden_act", "silu");
  config.ignore({"pretraining_tp"});  // splits products, which changes their last bits alone
  return config.status();
}

constexpr WeightRule kLlamaParts[] = {
    {"attn_norm", "input_layernorm"}, {"q_proj", "self_attn.q_proj"}, {"k_proj", "self_attn.k_proj"},
    {"v_proj", "self_attn.v_proj"},   {"o_proj", "self_attn.o_proj"}, {"mlp_norm", "post_attention_layernorm"},
    {"gate_proj", "mlp.gate_proj"},   {"up_proj", "mlp.up_proj"},     {"down_proj", "mlp.down_proj"}};

}  // namespace

extern const ModelFamily family_llama;
const ModelFamily family_llama{.name = "llama",
                               .model_types = "llama",
                               .read = read_llama,
                               .layers = "model.layers.",
                               .base = "model.",
                               .globals = kDecoderGlobals,
                               .parts = kLlamaParts};

}  // namespace nanscope
