/// Arcee (transformers/models/arcee): Llama with a plain MLP of squared ReLU.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_arcee(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.norm_eps = 1e-5});
  spec.model.mlp = kernels::ActivationKind::relu_squared;
  read_attention_bias(config, spec);
  spec.model.mlp_bias = config.flag("mlp_bias", false);
  config.only_text("hidden_act", "relu2");
  return config.status();
}

}  // namespace

extern const ModelFamily family_arcee;
const ModelFamily family_arcee{.name = "arcee",
                               .model_types = "arcee",
                               .read = read_arcee,
                               .layers = "model.layers.",
                               .base = "model.",
                               .globals = kDecoderGlobals,
                               .parts = kDecoderParts};

}  // namespace nanscope
