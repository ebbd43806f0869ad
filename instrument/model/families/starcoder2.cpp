/// StarCoder2 (transformers/models/starcoder2): LayerNorm, biases everywhere, a plain MLP.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_starcoder2(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.kv_heads = 2, .tied = true});
  spec.model.norm = kernels::NormKind::layer_norm;
  spec.norm_eps = static_cast<float>(config.number("norm_epsilon", 1e-5, 0, 1));
  spec.model.mlp = kernels::ActivationKind::gelu_tanh;
  spec.model.bias = config.flag("use_bias", true);
  read_window(config, spec, 0);
  config.only_text("hidden_act", "gelu_pytorch_tanh");
  config.ignore({"embedding_dropout", "residual_dropout"});
  return config.status();
}

constexpr WeightRule kStarcoder2Parts[] = {{"attn_norm", "input_layernorm"}, {"q_proj", "self_attn.q_proj"},
                                           {"k_proj", "self_attn.k_proj"},   {"v_proj", "self_attn.v_proj"},
                                           {"o_proj", "self_attn.o_proj"},   {"mlp_norm", "post_attention_layernorm"},
                                           {"up_proj", "mlp.c_fc"},          {"down_proj", "mlp.c_proj"}};

}  // namespace

extern const ModelFamily family_starcoder2;
const ModelFamily family_starcoder2{.name = "starcoder2",
                                    .model_types = "starcoder2",
                                    .read = read_starcoder2,
                                    .layers = "model.layers.",
                                    .base = "model.",
                                    .globals = kDecoderGlobals,
                                    .parts = kStarcoder2Parts};

}  // namespace nanscope
