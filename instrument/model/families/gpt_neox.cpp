/// GPT-NeoX and Pythia (transformers/models/gpt_neox): LayerNorm, attention and MLP side by side behind norms of their
/// own, a fused projection that has queries, keys and values of each head in turns, a partial rotation.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_gpt_neox(ConfigReader& config, ModelSpec& spec) {
  read_decoder_shapes(config, spec, {});
  const double base = config.number("rotary_emb_base", 10000, 1, 1e12);
  read_rope(config, spec, base, config.number("rotary_pct", 0.25, 0, 1));
  ModelConfig& model = spec.model;
  model.kv_heads = model.heads;
  model.norm = kernels::NormKind::layer_norm;
  spec.norm_eps = static_cast<float>(config.number("layer_norm_eps", 1e-5, 0, 1));
  model.qkv_bias = model.o_bias = config.flag("attention_bias", true);
  model.mlp_bias = true;
  model.parallel = config.flag("use_parallel_residual", true);
  const std::string activation = config.text("hidden_act", "gelu");
  model.mlp = activation == "gelu" ? kernels::ActivationKind::gelu : kernels::ActivationKind::gelu_tanh;
  if (activation != "gelu" && activation != "gelu_new" && activation != "gelu_fast" &&
      activation != "gelu_pytorch_tanh") {
    config.reject("hidden_act", "only gelu and its tanh form are supported");
  }
  config.ignore({"hidden_dropout", "classifier_dropout", "is_decoder"});
  return config.status();
}

constexpr WeightRule kNeoxGlobals[] = {{"embed", "gpt_neox.embed_in"},
                                       {"final_norm", "gpt_neox.final_layer_norm"},
                                       {"lm_head", "embed_out"},
                                       {"lm_head", "lm_head"}};
constexpr WeightRule kNeoxParts[] = {{"attn_norm", "input_layernorm"},
                                     {"q_proj", "attention.query_key_value", WeightPart::q_of_heads},
                                     {"k_proj", "attention.query_key_value", WeightPart::k_of_heads},
                                     {"v_proj", "attention.query_key_value", WeightPart::v_of_heads},
                                     {"o_proj", "attention.dense"},
                                     {"mlp_norm", "post_attention_layernorm"},
                                     {"up_proj", "mlp.dense_h_to_4h"},
                                     {"down_proj", "mlp.dense_4h_to_h"}};

}  // namespace

extern const ModelFamily family_gpt_neox;
const ModelFamily family_gpt_neox{.name = "gpt_neox",
                                  .model_types = "gpt_neox",
                                  .read = read_gpt_neox,
                                  .layers = "gpt_neox.layers.",
                                  .base = "gpt_neox.",
                                  .globals = kNeoxGlobals,
                                  .parts = kNeoxParts};

}  // namespace nanscope
