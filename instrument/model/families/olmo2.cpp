/// OLMo 2 (transformers/models/olmo2): norms on what comes out of each branch, and on the whole of Q and K.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_olmo2(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.norm_eps = 1e-5});
  spec.model.norm_placement = NormPlacement::branch;
  spec.model.qk_norm = true;
  spec.model.qk_norm_over = QkNormOver::projection;
  read_attention_bias(config, spec);
  config.only_text("hidden_act", "silu");
  return config.status();
}

}  // namespace

extern const ModelFamily family_olmo2;
const ModelFamily family_olmo2{.name = "olmo2",
                               .model_types = "olmo2",
                               .read = read_olmo2,
                               .layers = "model.layers.",
                               .base = "model.",
                               .globals = kDecoderGlobals,
                               .parts = kBranchNormParts};

}  // namespace nanscope
