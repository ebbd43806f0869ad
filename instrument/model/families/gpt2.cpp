/// GPT-2 (transformers/models/gpt2): LayerNorm, learned positions, a fused Conv1D for Q, K and V, which is stored as
/// (in, out).
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_gpt2(ConfigReader& config, ModelSpec& spec) {
  ModelConfig& model = spec.model;
  model.norm = kernels::NormKind::layer_norm;
  model.mlp = kernels::ActivationKind::gelu_tanh;
  model.bias = true;
  model.vocabulary = config.needed("vocab_size", 1, 1 << 22);
  model.width = config.needed("n_embd");
  model.layers = config.needed("n_layer", 1, 1024);
  model.heads = config.needed("n_head", 1, 4096);
  model.kv_heads = model.heads;
  model.head_dim = model.width / model.heads;
  model.positions = config.integer("n_positions", 1024, 1);
  model.mlp_width = config.integer("n_inner", 4 * model.width, 1);
  model.tied_head = config.flag("tie_word_embeddings", true);
  model.scale_by_layer = config.flag("scale_attn_by_inverse_layer_idx", false);
  spec.norm_eps = static_cast<float>(config.number("layer_norm_epsilon", 1e-5, 0, 1));
  const std::string activation = config.text("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    config.reject("activation_function", "only gelu_new is supported");
  }
  config.only("scale_attn_weights", true);
  config.only("add_cross_attention", false);
  config.ignore({"n_ctx", "attn_pdrop", "embd_pdrop", "resid_pdrop", "reorder_and_upcast_attn", "summary_activation",
                 "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"});
  return config.status();
}

constexpr WeightRule kGpt2Globals[] = {{"embed", "transformer.wte"},
                                       {"positions", "transformer.wpe"},
                                       {"final_norm", "transformer.ln_f"},
                                       {"lm_head", "lm_head"}};
constexpr WeightRule kGpt2Parts[] = {{"attn_norm", "ln_1"},
                                     {"q_proj", "attn.c_attn", WeightPart::q, true},
                                     {"k_proj", "attn.c_attn", WeightPart::k, true},
                                     {"v_proj", "attn.c_attn", WeightPart::v, true},
                                     {"o_proj", "attn.c_proj", WeightPart::whole, true},
                                     {"mlp_norm", "ln_2"},
                                     {"up_proj", "mlp.c_fc", WeightPart::whole, true},
                                     {"down_proj", "mlp.c_proj", WeightPart::whole, true}};

}  // namespace

extern const ModelFamily family_gpt2;
const ModelFamily family_gpt2{.name = "gpt2",
                              .model_types = "gpt2",
                              .read = read_gpt2,
                              .layers = "transformer.h.",
                              .base = "transformer.",
                              .globals = kGpt2Globals,
                              .parts = kGpt2Parts};

}  // namespace nanscope
