/// Seed-OSS (transformers/models/seed_oss): Llama with biases on Q, K and V.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_seed_oss(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.kv_heads = 8, .head_dim = 128});
  spec.model.qkv_bias = config.flag("attention_bias", true);
  spec.model.o_bias = config.flag("attention_out_bias", false);
  spec.model.mlp_bias = config.flag("mlp_bias", false);
  config.only_text("hidden_act", "silu");
  config.ignore({"pretraining_tp", "residual_dropout"});
  return config.status();
}

constexpr WeightRule kSeedOssParts[] = {
    {"attn_norm", "input_layernorm"}, {"q_proj", "self_attn.q_proj"}, {"k_proj", "self_attn.k_proj"},
    {"v_proj", "self_attn.v_proj"},   {"o_proj", "self_attn.o_proj"}, {"mlp_norm", "post_attention_layernorm"},
    {"gate_proj", "mlp.gate_proj"},   {"up_proj", "mlp.up_proj"},     {"down_proj", "mlp.down_proj"}};

}  // namespace

extern const ModelFamily family_seed_oss;
const ModelFamily family_seed_oss{.name = "seed_oss",
                                  .model_types = "seed_oss",
                                  .read = read_seed_oss,
                                  .layers = "model.layers.",
                                  .base = "model.",
                                  .globals = kDecoderGlobals,
                                  .parts = kSeedOssParts};

}  // namespace nanscope
