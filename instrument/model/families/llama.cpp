/// Llama 2 and 3 (transformers/models/llama).
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_llama(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {});
  read_attention_bias(config, spec);
  spec.model.mlp_bias = config.flag("mlp_bias", false);
  config.only_text("hidden_act", "silu");
  config.ignore({"pretraining_tp"});  // splits products, which changes their last bits alone
  return config.status();
}

}  // namespace

extern const ModelFamily family_llama;
const ModelFamily family_llama{.name = "llama",
                               .model_types = "llama",
                               .read = read_llama,
                               .layers = "model.layers.",
                               .base = "model.",
                               .globals = kDecoderGlobals,
                               .parts = kDecoderParts};

}  // namespace nanscope
