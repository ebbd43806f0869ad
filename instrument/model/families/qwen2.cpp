/// Qwen2 and 2.5 (transformers/models/qwen2): biases on Q, K and V.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_qwen2(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.kv_heads = 32});
  spec.model.qkv_bias = true;
  read_optional_window(config, spec);
  config.only_text("hidden_act", "silu");
  return config.status();
}

}  // namespace

extern const ModelFamily family_qwen2;
const ModelFamily family_qwen2{.name = "qwen2",
                               .model_types = "qwen2",
                               .read = read_qwen2,
                               .layers = "model.layers.",
                               .base = "model.",
                               .globals = kDecoderGlobals,
                               .parts = kDecoderParts};

}  // namespace nanscope
