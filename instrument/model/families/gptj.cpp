/// GPT-J (transformers/models/gptj): LayerNorm, attention and MLP side by side behind one norm, a partial rotation of
/// neighbouring channels, biases in the MLP and on the logits.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_gptj(ConfigReader& config, ModelSpec& spec) {
  ModelConfig& model = spec.model;
  model.norm = kernels::NormKind::layer_norm;
  model.mlp = kernels::ActivationKind::gelu_tanh;
  model.mlp_bias = true;
  model.head_bias = true;
  model.parallel = true;
  model.shared_norm = true;
  model.vocabulary = config.needed("vocab_size", 1, 1 << 22);
  model.width = config.needed("n_embd");
  model.layers = config.needed("n_layer", 1, 1024);
  model.heads = config.needed("n_head", 1, 4096);
  model.kv_heads = model.heads;
  model.head_dim = model.width / model.heads;
  model.mlp_width = config.integer("n_inner", 4 * model.width, 1);
  const bool whole = config.states("rotary_dim") && !config.has("rotary_dim");
  model.rotated = whole ? 0 : config.integer("rotary_dim", 64, 2, model.head_dim);
  model.rope_pairs = RopePairs::neighbours;
  model.tied_head = config.flag("tie_word_embeddings", false);
  spec.norm_eps = static_cast<float>(config.number("layer_norm_epsilon", 1e-5, 0, 1));
  if (model.rotated % 2 != 0) config.reject("rotary_dim", "expected pairs of channels");
  config.only_text("activation_function", "gelu_new");
  config.only("scale_attn_weights", true);
  config.ignore({"n_positions", "n_ctx", "attn_pdrop", "embd_pdrop", "resid_pdrop", "rotary", "gradient_checkpointing",
                 "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
                 "summary_use_proj"});
  return config.status();
}

constexpr WeightRule kGptjGlobals[] = {
    {"embed", "transformer.wte"}, {"final_norm", "transformer.ln_f"}, {"lm_head", "lm_head"}};
constexpr WeightRule kGptjParts[] = {{"attn_norm", "ln_1"},      {"q_proj", "attn.q_proj"},   {"k_proj", "attn.k_proj"},
                                     {"v_proj", "attn.v_proj"},  {"o_proj", "attn.out_proj"}, {"up_proj", "mlp.fc_in"},
                                     {"down_proj", "mlp.fc_out"}};

}  // namespace

extern const ModelFamily family_gptj;
const ModelFamily family_gptj{.name = "gptj",
                              .model_types = "gptj",
                              .read = read_gptj,
                              .layers = "transformer.h.",
                              .base = "transformer.",
                              .globals = kGptjGlobals,
                              .parts = kGptjParts,
                              .sine_first = true};

}  // namespace nanscope
