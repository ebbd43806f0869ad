/// Gemma 3, its text model (transformers/models/gemma3): as Gemma 2, with norms on Q and K and rotary angles of their
/// own in layers with a window.
#include <nlohmann/json.hpp>
#include <utility>

#include "instrument/model/families/gemma.h"

namespace nanscope {
namespace {

/// Two sets of rotary settings by the kind of a layer; older files give the second base alone.
void read_two_ropes(ConfigReader& config, ModelSpec& spec) {
  const nlohmann::json* both = config.object("rope_parameters");
  spec.model.local_rope_base = config.number("rope_local_base_freq", 10000, 1, 1e12);
  if (both == nullptr || !both->contains("full_attention")) return read_rope(config, spec, 1e6);
  config.ignore({"rope_theta", "rope_scaling"});
  const std::int64_t positions = config.integer("max_position_embeddings", 131072, 1, std::int64_t{1} << 30);
  ModelSpec local = spec;
  for (auto [key, into] : {std::pair{"sliding_attention", &local}, std::pair{"full_attention", &spec}}) {
    const auto found = both->find(key);
    if (found == both->end()) return config.reject("rope_parameters", "full_attention and sliding_attention expected");
    ConfigReader rope(*found, config.where() + ": rope_parameters: " + key);
    read_rope_parameters(rope, *into, positions, 1e4);
    if (Status finished = rope.finish(); !finished) config.reject("rope_parameters", finished.error().message);
  }
  if (local.rope.scaling != RopeScaling::none) config.reject("rope_parameters", "scaled sliding_attention");
  spec.model.local_rope_base = local.model.rope_base;
}

Status read_gemma3(ConfigReader& config, ModelSpec& spec) {
  read_decoder_shapes(config, spec, {.kv_heads = 4, .head_dim = 256, .tied = true});
  read_gemma(config, spec, 0, 0);
  spec.model.qk_norm = true;
  read_two_ropes(config, spec);
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
