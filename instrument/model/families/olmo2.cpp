/// OLMo 2 (transformers/models/olmo2): norms on what comes out of each branch, and on the whole of Q and K.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_olmo2(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.norm_eps = 1e-5});
  spec.model.norm_placement = NormPlacement::branch;
  spec.model.qk_norm = true;
  spec.model.qk_norm_over = QkNormOver::projection;
  const bool bias = config.flag("attention_bias", false);
  spec.model.qkv_bias = bias;
  spec.model.o_bias = bias;
  config.only_text("hidden_act", "silu");
  return config.status();
}

constexpr WeightRule kOlmo2Parts[] = {{"attn_post_norm", "post_attention_layernorm"},
                                      {"mlp_post_norm", "post_feedforward_layernorm"},
                                      {"q_proj", "self_attn.q_proj"},
                                      {"k_proj", "self_attn.k_proj"},
                                      {"v_proj", "self_attn.v_proj"},
                                      {"o_proj", "self_attn.o_proj"},
                                      {"q_norm", "self_attn.q_norm"},
                                      {"k_norm", "self_attn.k_norm"},
                                      {"gate_proj", "mlp.gate_proj"},
                                      {"up_proj", "mlp.up_proj"},
                                      {"down_proj", "mlp.down_proj"}};

}  // namespace

extern const ModelFamily family_olmo2;
const ModelFamily family_olmo2{.name = "olmo2",
                               .model_types = "olmo2",
                               .read = read_olmo2,
                               .layers = "model.layers.",
                               .base = "model.",
                               .globals = kDecoderGlobals,
                               .parts = kOlmo2Parts};

}  // namespace nanscope
