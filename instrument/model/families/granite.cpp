/// Granite 3 (transformers/models/granite, granitemoe): Llama with factors on the embedding, on scores, on what
/// branches put out and on logits; a mixture by the softmax of the chosen logits.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

void read_multipliers(ConfigReader& config, ModelSpec& spec) {
  spec.model.embedding_scale = config.number("embedding_multiplier", 1, 1e-6);
  spec.model.attention_scale = config.number("attention_multiplier", 1, 1e-6);
  spec.model.residual_scale = config.number("residual_multiplier", 1, 1e-6);
  spec.model.logit_scale = 1 / config.number("logits_scaling", 1, 1e-6);
  read_attention_bias(config, spec);
  config.only_text("hidden_act", "silu");
}

Status read_granite(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {});
  read_multipliers(config, spec);
  spec.model.mlp_bias = config.flag("mlp_bias", false);
  return config.status();
}

Status read_granitemoe(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {});
  read_multipliers(config, spec);
  spec.moe.score = kernels::RouterScore::softmax_of_chosen;
  spec.moe.bias = false;
  spec.moe.normalise = true;
  spec.model.experts = config.integer("num_local_experts", 8, 1, 256);
  spec.model.experts_per_token = config.integer("num_experts_per_tok", 2, 1, 32);
  return config.status();
}

/// All experts of a layer lie in one tensor.
constexpr WeightRule kGraniteExperts[] = {
    {"router", "block_sparse_moe.router.layer"},
    {.ours = "experts.gate_proj",
     .theirs = "block_sparse_moe.input_linear.weight",
     .part = WeightPart::gate,
     .stacked = true},
    {.ours = "experts.up_proj",
     .theirs = "block_sparse_moe.input_linear.weight",
     .part = WeightPart::up,
     .stacked = true},
    {.ours = "experts.down_proj", .theirs = "block_sparse_moe.output_linear.weight", .stacked = true}};
constexpr auto kGraniteMoeParts = joined(kNormsBefore, kAttention, kGraniteExperts);

}  // namespace

extern const ModelFamily family_granite;
const ModelFamily family_granite{.name = "granite",
                                 .model_types = "granite",
                                 .read = read_granite,
                                 .layers = "model.layers.",
                                 .base = "model.",
                                 .globals = kDecoderGlobals,
                                 .parts = kDecoderParts};

extern const ModelFamily family_granitemoe;
const ModelFamily family_granitemoe{.name = "granitemoe",
                                    .model_types = "granitemoe",
                                    .read = read_granitemoe,
                                    .layers = "model.layers.",
                                    .base = "model.",
                                    .globals = kDecoderGlobals,
                                    .parts = kGraniteMoeParts};

}  // namespace nanscope
