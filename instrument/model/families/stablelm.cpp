/// StableLM (transformers/models/stablelm): LayerNorm, SwiGLU, a partial rotation.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_stablelm(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.partial_rotary = 0.25});
  spec.model.norm = kernels::NormKind::layer_norm;
  spec.norm_eps = static_cast<float>(config.number("layer_norm_eps", 1e-5, 0, 1));
  spec.model.qkv_bias = config.flag("use_qkv_bias", false);
  config.only("use_parallel_residual", false);
  config.only("qk_layernorm", false);
  config.only_text("hidden_act", "silu");
  config.ignore({"hidden_dropout", "rope_pct"});
  return config.status();
}

}  // namespace

extern const ModelFamily family_stablelm;
const ModelFamily family_stablelm{.name = "stablelm",
                                  .model_types = "stablelm",
                                  .read = read_stablelm,
                                  .layers = "model.layers.",
                                  .base = "model.",
                                  .globals = kDecoderGlobals,
                                  .parts = kDecoderParts};

}  // namespace nanscope
