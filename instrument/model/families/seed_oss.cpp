/// Seed-OSS (transformers/models/seed_oss): Llama with biases on Q, K and V.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_seed_oss(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.kv_heads = 8, .head_dim = 128});
  spec.model.qkv_bias = config.flag("attention_bias", true);
  spec.model.o_bias = config.flag("attention_out_bias", false);
  spec.model.mlp_bias = config.flag("mlp_bias", false);
  config.only_text("hidden_act", "silu");
  config.ignore({"pretraining_tp", "residual_dropout"});
  return config.status();
}

}  // namespace

extern const ModelFamily family_seed_oss;
const ModelFamily family_seed_oss{.name = "seed_oss",
                                  .model_types = "seed_oss",
                                  .read = read_seed_oss,
                                  .layers = "model.layers.",
                                  .base = "model.",
                                  .globals = kDecoderGlobals,
                                  .parts = kDecoderParts};

}  // namespace nanscope
