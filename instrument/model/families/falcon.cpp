/// Falcon (transformers/models/falcon): LayerNorm, attention and MLP side by side behind one norm or two, a fused
/// projection that has queries, key and value of each key head in turns.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_falcon(ConfigReader& config, ModelSpec& spec) {
  ModelConfig& model = spec.model;
  model.norm = kernels::NormKind::layer_norm;
  model.mlp = kernels::ActivationKind::gelu;
  model.vocabulary = config.needed("vocab_size", 1, 1 << 22);
  model.width = config.needed("hidden_size");
  model.layers = config.needed("num_hidden_layers", 1, 1024);
  model.heads = config.needed("num_attention_heads", 1, 4096);
  const bool grouped = config.flag("new_decoder_architecture", false);
  const bool single = config.flag("multi_query", true) && !grouped;
  const std::int64_t stated = config.integer("num_kv_heads", model.heads, 1, 4096);
  model.kv_heads = grouped ? stated : single ? 1 : model.heads;
  model.head_dim = model.width / model.heads;
  model.mlp_width = config.integer("ffn_hidden_size", 4 * model.width, 1);
  model.bias = config.flag("bias", false);
  model.parallel = config.flag("parallel_attn", true);
  if (grouped && !model.parallel) config.reject("parallel_attn", "expected true of the new decoder architecture");
  model.shared_norm = model.parallel && config.integer("num_ln_in_parallel_attn", grouped ? 2 : 1, 1, 2) == 1;
  if (model.parallel && !model.shared_norm && !grouped) {
    config.reject("num_ln_in_parallel_attn", "2 norms without the new decoder architecture");
  }
  model.tied_head = config.flag("tie_word_embeddings", true);
  spec.norm_eps = static_cast<float>(config.number("layer_norm_epsilon", 1e-5, 0, 1));
  read_rope(config, spec, 10000);
  config.only("alibi", false);
  config.only_text("activation", "gelu");
  config.ignore({"hidden_dropout", "apply_residual_connection_post_layernorm", "n_embed", "n_layer", "n_head",
                 "n_head_kv", "rotary"});
  return config.status();
}

constexpr WeightRule kFalconGlobals[] = {
    {"embed", "transformer.word_embeddings"}, {"final_norm", "transformer.ln_f"}, {"lm_head", "lm_head"}};
constexpr WeightRule kFalconParts[] = {{"attn_norm", "input_layernorm"},
                                       {"attn_norm", "ln_attn"},
                                       {"q_proj", "self_attention.query_key_value", WeightPart::q_of_heads},
                                       {"k_proj", "self_attention.query_key_value", WeightPart::k_of_heads},
                                       {"v_proj", "self_attention.query_key_value", WeightPart::v_of_heads},
                                       {"o_proj", "self_attention.dense"},
                                       {"mlp_norm", "post_attention_layernorm"},
                                       {"mlp_norm", "ln_mlp"},
                                       {"up_proj", "mlp.dense_h_to_4h"},
                                       {"down_proj", "mlp.dense_4h_to_h"}};

}  // namespace

extern const ModelFamily family_falcon;
const ModelFamily family_falcon{.name = "falcon",
                                .model_types = "falcon",
                                .read = read_falcon,
                                .layers = "transformer.h.",
                                .base = "transformer.",
                                .globals = kFalconGlobals,
                                .parts = kFalconParts};

}  // namespace nanscope
