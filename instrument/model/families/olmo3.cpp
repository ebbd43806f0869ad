/// OLMo 3 (transformers/models/olmo3): as OLMo 2, with a window on three of four layers, whose rotary angles are not
/// scaled.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_olmo3(ConfigReader& config, ModelSpec& spec) {
  read_decoder_shapes(config, spec, {.norm_eps = 1e-5});
  read_two_ropes(config, spec, 5e5);
  spec.model.norm_placement = NormPlacement::branch;
  spec.model.qk_norm = true;
  spec.model.qk_norm_over = QkNormOver::projection;
  read_attention_bias(config, spec);
  read_window(config, spec, 4096);
  read_layer_types(config, spec, [](std::int64_t layer) { return (layer + 1) % 4 == 0; });
  config.only_text("hidden_act", "silu");
  return config.status();
}

}  // namespace

extern const ModelFamily family_olmo3;
const ModelFamily family_olmo3{.name = "olmo3",
                               .model_types = "olmo3",
                               .read = read_olmo3,
                               .layers = "model.layers.",
                               .base = "model.",
                               .globals = kDecoderGlobals,
                               .parts = kBranchNormParts};

}  // namespace nanscope
