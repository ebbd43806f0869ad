/// Gemma 3, its text model (transformers/models/gemma3): as Gemma 2, with norms on Q and K and rotary angles of their
/// own in layers with a window.
#include "instrument/model/families/gemma.h"

namespace nanscope {
namespace {

Status read_gemma3(ConfigReader& config, ModelSpec& spec) {
  read_decoder_shapes(config, spec, {.kv_heads = 4, .head_dim = 256, .tied = true});
  read_gemma(config, spec, 0, 0);
  spec.model.qk_norm = true;
  read_two_ropes(config, spec, 1e6, config.number("rope_local_base_freq", 10000, 1, 1e12));
  read_window(config, spec, 4096);
  const std::int64_t older = config.integer("sliding_window_pattern", 6, 1);
  const std::int64_t pattern = config.integer("_sliding_window_pattern", older, 1);
  read_layer_types(config, spec, [&](std::int64_t layer) { return (layer + 1) % pattern == 0; });
  return config.status();
}

}  // namespace

extern const ModelFamily family_gemma3;
const ModelFamily family_gemma3{.name = "gemma3",
                                .model_types = "gemma3_text",
                                .read = read_gemma3,
                                .layers = "model.layers.",
                                .base = "model.",
                                .globals = kGemmaGlobals,
                                .parts = kGemmaParts};

}  // namespace nanscope
