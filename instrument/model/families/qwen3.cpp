/// Qwen3 (transformers/models/qwen3): a norm on each head of Q and K, heads of a width of their own.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_qwen3(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.kv_heads = 32, .head_dim = 128});
  spec.model.qk_norm = true;
  read_attention_bias(config, spec);
  read_optional_window(config, spec);
  config.only_text("hidden_act", "silu");
  return config.status();
}

constexpr auto kQwen3Parts = joined(kNormsBefore, kAttention, kNormsOfQueryAndKey, kMlp);

}  // namespace

extern const ModelFamily family_qwen3;
const ModelFamily family_qwen3{.name = "qwen3",
                               .model_types = "qwen3",
                               .read = read_qwen3,
                               .layers = "model.layers.",
                               .base = "model.",
                               .globals = kDecoderGlobals,
                               .parts = kQwen3Parts};

}  // namespace nanscope
