/// Gemma 2 (transformers/models/gemma2): norms around each branch with gains of 1 + w, softcaps, a window on every
/// other layer.
#include "instrument/model/families/gemma.h"

namespace nanscope {
namespace {

Status read_gemma2(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.kv_heads = 4, .head_dim = 256, .tied = true});
  read_gemma(config, spec, 50, 30);
  read_window(config, spec, 4096);
  read_layer_types(config, spec, [](std::int64_t layer) { return layer % 2 == 1; });
  return config.status();
}

}  // namespace

extern const ModelFamily family_gemma2;
const ModelFamily family_gemma2{.name = "gemma2",
                                .model_types = "gemma2",
                                .read = read_gemma2,
                                .layers = "model.layers.",
                                .base = "model.",
                                .globals = kGemmaGlobals,
                                .parts = kGemmaParts};

}  // namespace nanscope
