/// Phi-1, Phi-1.5 and Phi-2 (transformers/models/phi): LayerNorm, attention and MLP side by side behind one norm,
/// biases everywhere, a partial rotation.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_phi(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.partial_rotary = 0.5});
  spec.model.norm = kernels::NormKind::layer_norm;
  spec.norm_eps = static_cast<float>(config.number("layer_norm_eps", 1e-5, 0, 1));
  spec.model.mlp = kernels::ActivationKind::gelu_tanh;
  spec.model.bias = true;
  spec.model.head_bias = true;
  spec.model.parallel = true;
  spec.model.shared_norm = true;
  config.only("qk_layernorm", false);
  config.only_text("hidden_act", "gelu_new");
  config.ignore({"embd_pdrop", "resid_pdrop"});
  return config.status();
}

constexpr WeightRule kPhiGlobals[] = {
    {"embed", "model.embed_tokens"}, {"final_norm", "model.final_layernorm"}, {"lm_head", "lm_head"}};
constexpr WeightRule kPhiParts[] = {{"attn_norm", "input_layernorm"}, {"q_proj", "self_attn.q_proj"},
                                    {"k_proj", "self_attn.k_proj"},   {"v_proj", "self_attn.v_proj"},
                                    {"o_proj", "self_attn.dense"},    {"up_proj", "mlp.fc1"},
                                    {"down_proj", "mlp.fc2"}};

}  // namespace

extern const ModelFamily family_phi;
const ModelFamily family_phi{.name = "phi",
                             .model_types = "phi",
                             .read = read_phi,
                             .layers = "model.layers.",
                             .base = "model.",
                             .globals = kPhiGlobals,
                             .parts = kPhiParts};

}  // namespace nanscope
