/// Command R and R7B, Aya (transformers/models/cohere, cohere2): LayerNorm without biases, attention and MLP side by
/// side behind one norm, a rotation of neighbouring channels, a factor on the logits. Of Cohere 2, layers without a
/// window have no rotary positions.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

void read_cohere_shapes(ConfigReader& config, ModelSpec& spec, double base) {
  read_decoder(config, spec, {.rope_base = base, .tied = true});
  spec.model.norm = kernels::NormKind::layer_norm;
  spec.model.norm_bias = false;
  spec.norm_eps = static_cast<float>(config.number("layer_norm_eps", 1e-5, 0, 1));
  spec.model.parallel = true;
  spec.model.shared_norm = true;
  spec.model.rope_pairs = RopePairs::neighbours;
  spec.model.logit_scale = config.number("logit_scale", 0.0625, 1e-6);
  read_attention_bias(config, spec);
  config.only("use_qk_norm", false);
  config.only_text("hidden_act", "silu");
}

Status read_cohere(ConfigReader& config, ModelSpec& spec) {
  read_cohere_shapes(config, spec, 5e5);
  return config.status();
}

Status read_cohere2(ConfigReader& config, ModelSpec& spec) {
  read_cohere_shapes(config, spec, 1e4);
  read_window(config, spec, 4096);
  const std::int64_t pattern = config.integer("sliding_window_pattern", 4, 1);
  read_layer_types(config, spec, [&](std::int64_t layer) { return (layer + 1) % pattern == 0; });
  spec.model.unrotated_layers = spec.model.full_layers;
  config.ignore({"order_of_interleaved_layers", "rotary_pct", "position_embedding_type", "layer_switch",
                 "use_embedding_sharing", "use_gated_activation", "use_parallel_block", "use_parallel_embedding"});
  return config.status();
}

constexpr WeightRule kCohereNorm[] = {{"attn_norm", "input_layernorm"}};
constexpr auto kCohereParts = joined(kCohereNorm, kAttention, kMlp);

}  // namespace

extern const ModelFamily family_cohere;
const ModelFamily family_cohere{.name = "cohere",
                                .model_types = "cohere",
                                .read = read_cohere,
                                .layers = "model.layers.",
                                .base = "model.",
                                .globals = kDecoderGlobals,
                                .parts = kCohereParts};

extern const ModelFamily family_cohere2;
const ModelFamily family_cohere2{.name = "cohere2",
                                 .model_types = "cohere2",
                                 .read = read_cohere2,
                                 .layers = "model.layers.",
                                 .base = "model.",
                                 .globals = kDecoderGlobals,
                                 .parts = kCohereParts};

}  // namespace nanscope
