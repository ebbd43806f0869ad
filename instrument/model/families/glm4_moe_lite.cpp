/// GLM-4.7-Flash (transformers/models/glm4_moe_lite): DeepSeek-V3's attention and mixture, with a list of dense layers.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/text/safe_text.h"
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

/// `mlp_layer_types` names what each layer has; without it the first is dense.
void read_layers_of_mlps(ConfigReader& config, ModelSpec& spec) {
  const std::vector<std::string> types = config.texts("mlp_layer_types");
  if (types.empty()) return;
  if (static_cast<std::int64_t>(types.size()) != spec.model.layers) {
    return config.reject("mlp_layer_types", fmt::format("{} names for {} layers", types.size(), spec.model.layers));
  }
  spec.model.dense_layers.clear();
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    if (types[layer] == "dense") {
      spec.model.dense_layers.push_back(static_cast<std::int64_t>(layer));
    } else if (types[layer] != "sparse") {
      config.reject("mlp_layer_types", fmt::format("'{}' is not supported", one_line(types[layer])));
    }
  }
}

Status read_glm4_moe_lite(ConfigReader& config, ModelSpec& spec) {
  read_decoder_shapes(config, spec, {.norm_eps = 1e-5});
  read_latent_attention(config, spec, {.q_rank = 768, .unrotated = 192, .values = 256});
  if (!config.flag("rope_interleave", true)) spec.model.rope_pairs = RopePairs::halves;
  read_deepseek_experts(config, spec, {.experts = 64, .chosen = 4, .width = 1536, .scale = 1.8, .dense = 1});
  read_layers_of_mlps(config, spec);
  config.only_text("hidden_act", "silu");
  config.only_text("topk_method", "noaux_tc");
  config.ignore({"pretraining_tp"});
  return config.status();
}

}  // namespace

extern const ModelFamily family_glm4_moe_lite;
const ModelFamily family_glm4_moe_lite{.name = "glm4_moe_lite",
                                       .model_types = "glm4_moe_lite",
                                       .read = read_glm4_moe_lite,
                                       .layers = "model.layers.",
                                       .base = "model.",
                                       .globals = kDecoderGlobals,
                                       .parts = kDeepseekParts};

}  // namespace nanscope
