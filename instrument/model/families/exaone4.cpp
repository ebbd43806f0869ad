/// EXAONE 4 (transformers/models/exaone4): norms on what comes out of each branch and on each head of Q and K. If some
/// layers have a window, the others have no rotary positions.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_exaone4(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.norm_eps = 1e-5, .kv_heads = 32});
  spec.model.norm_placement = NormPlacement::branch;
  spec.model.qk_norm = true;
  read_window(config, spec, 4096);
  if (config.has("layer_types")) config.ignore({"sliding_window_pattern"});
  const std::int64_t pattern = config.has("layer_types") ? 4 : config.integer("sliding_window_pattern", 4, 1);
  read_layer_types(config, spec, [&](std::int64_t layer) { return (layer + 1) % pattern == 0; });
  if (spec.model.window == 0) spec.model.full_layers.clear();
  spec.model.unrotated_layers = spec.model.full_layers;
  config.only_text("hidden_act", "silu");
  return config.status();
}

}  // namespace

extern const ModelFamily family_exaone4;
const ModelFamily family_exaone4{.name = "exaone4",
                                 .model_types = "exaone4",
                                 .read = read_exaone4,
                                 .layers = "model.layers.",
                                 .base = "model.",
                                 .globals = kDecoderGlobals,
                                 .parts = kBranchNormParts};

}  // namespace nanscope
