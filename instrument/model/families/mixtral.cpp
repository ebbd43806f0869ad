/// Mixtral (transformers/models/mixtral): Mistral with experts by softmax.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_mixtral(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.norm_eps = 1e-5, .rope_base = 1e6, .kv_heads = 8});
  read_window(config, spec, 0);
  read_experts(config, spec, 2, true);
  spec.model.experts = config.integer("num_local_experts", 8, 1, 256);
  config.only_text("hidden_act", "silu");
  config.ignore({"router_jitter_noise"});  // of training
  return config.status();
}

constexpr WeightRule kMixtralExperts[] = {{"router", "block_sparse_moe.gate"},
                                          {"router", "mlp.gate"},
                                          {"experts.gate_proj", "block_sparse_moe.experts.{}.w1"},
                                          {"experts.up_proj", "block_sparse_moe.experts.{}.w3"},
                                          {"experts.down_proj", "block_sparse_moe.experts.{}.w2"}};
constexpr auto kMixtralParts = joined(kNormsBefore, kAttention, kMixtralExperts, kStackedExperts);

}  // namespace

extern const ModelFamily family_mixtral;
const ModelFamily family_mixtral{.name = "mixtral",
                                 .model_types = "mixtral",
                                 .read = read_mixtral,
                                 .layers = "model.layers.",
                                 .base = "model.",
                                 .globals = kDecoderGlobals,
                                 .parts = kMixtralParts};

}  // namespace nanscope
