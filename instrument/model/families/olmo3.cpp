/// OLMo 3 (transformers/models/olmo3): as OLMo 2, with a window on three of four layers, whose rotary angles are not
/// scaled.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_olmo3(ConfigReader& config, ModelSpec& spec) {
  read_decoder_shapes(config, spec, {.norm_eps = 1e-5});
  read_two_ropes(config, spec, 5e5);
  spec.model.norm_placement = NormPlacement::branch;
  spec.model.qk_norm = true;
  spec.model.qk_norm_over = QkNormOver::projection;
  const bool bias = config.flag("attention_bias", false);
  spec.model.qkv_bias = bias;
  spec.model.o_bias = bias;
  read_window(config, spec, 4096);
  read_layer_types(config, spec, [](std::int64_t layer) { return (layer + 1) % 4 == 0; });
  config.only_text("hidden_act", "silu");
  return config.status();
}

constexpr WeightRule kOlmo3Parts[] = {{"attn_post_norm", "post_attention_layernorm"},
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

extern const ModelFamily family_olmo3;
const ModelFamily family_olmo3{.name = "olmo3",
                               .model_types = "olmo3",
                               .read = read_olmo3,
                               .layers = "model.layers.",
                               .base = "model.",
                               .globals = kDecoderGlobals,
                               .parts = kOlmo3Parts};

}  // namespace nanscope
