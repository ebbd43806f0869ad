/// Helium (transformers/models/helium): Llama with a rotation of neighbouring channels.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_helium(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.norm_eps = 1e-8, .rope_base = 1e5, .kv_heads = 20, .head_dim = 128});
  spec.model.rope_pairs = RopePairs::neighbours;
  spec.model.qkv_bias = config.flag("attention_bias", false);
  spec.model.mlp_bias = config.flag("mlp_bias", false);
  config.only_text("hidden_act", "silu");
  return config.status();
}

}  // namespace

extern const ModelFamily family_helium;
const ModelFamily family_helium{.name = "helium",
                                .model_types = "helium",
                                .read = read_helium,
                                .layers = "model.layers.",
                                .base = "model.",
                                .globals = kDecoderGlobals,
                                .parts = kDecoderParts};

}  // namespace nanscope
