/// Mistral 7B and its like (transformers/models/mistral): a sliding window on all layers.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_mistral(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.kv_heads = 8});
  read_window(config, spec, 4096);
  config.only_text("hidden_act", "silu");
  return config.status();
}

}  // namespace

extern const ModelFamily family_mistral;
const ModelFamily family_mistral{.name = "mistral",
                                 .model_types = "mistral",
                                 .read = read_mistral,
                                 .layers = "model.layers.",
                                 .base = "model.",
                                 .globals = kDecoderGlobals,
                                 .parts = kDecoderParts};

}  // namespace nanscope
