/// Nemotron and Minitron (transformers/models/nemotron): LayerNorm with gains of 1 + w, a plain MLP of squared ReLU, a
/// partial rotation.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_nemotron(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.partial_rotary = 0.5});
  spec.model.norm = kernels::NormKind::layer_norm;
  spec.norm_eps = static_cast<float>(config.number("norm_eps", 1e-5, 0, 1));
  spec.model.mlp = kernels::ActivationKind::relu_squared;
  read_attention_bias(config, spec);
  spec.model.mlp_bias = config.flag("mlp_bias", false);
  config.only_text("hidden_act", "relu2");
  return config.status();
}

constexpr WeightRule kNemotronGlobals[] = {{"embed", "model.embed_tokens"},
                                           {.ours = "final_norm", .theirs = "model.norm", .offset = 1},
                                           {"lm_head", "lm_head"}};
constexpr WeightRule kNemotronNorms[] = {{.ours = "attn_norm", .theirs = "input_layernorm", .offset = 1},
                                         {.ours = "mlp_norm", .theirs = "post_attention_layernorm", .offset = 1}};
constexpr auto kNemotronParts = joined(kNemotronNorms, kAttention, kMlp);

}  // namespace

extern const ModelFamily family_nemotron;
const ModelFamily family_nemotron{.name = "nemotron",
                                  .model_types = "nemotron",
                                  .read = read_nemotron,
                                  .layers = "model.layers.",
                                  .base = "model.",
                                  .globals = kNemotronGlobals,
                                  .parts = kNemotronParts};

}  // namespace nanscope
