/// DeepSeek-V3 (transformers/models/deepseek_v3) and Kimi K2, which is built alike: multi-head latent attention, dense
/// layers first, experts by sigmoid in groups, whose choice has a bias, and shared experts that are added.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_deepseek_v3(ConfigReader& config, ModelSpec& spec) {
  read_decoder_shapes(config, spec, {});
  read_latent_attention(config, spec, {});
  if (!config.flag("rope_interleave", true)) spec.model.rope_pairs = RopePairs::halves;
  read_deepseek_experts(config, spec, {.groups = 8, .top_groups = 4});
  config.only_text("hidden_act", "silu");
  // What the authors' own code reads, and transformers takes for granted.
  config.only_text("scoring_func", "sigmoid");
  config.only_text("topk_method", "noaux_tc");
  if (config.integer("moe_layer_freq", 1) != 1) config.reject("moe_layer_freq", "expected 1");
  config.ignore({"pretraining_tp", "ep_size", "aux_loss_alpha", "seq_aux"});
  return config.status();
}

}  // namespace

extern const ModelFamily family_deepseek_v3;
const ModelFamily family_deepseek_v3{.name = "deepseek_v3",
                                     .model_types = "deepseek_v3 kimi_k2",
                                     .read = read_deepseek_v3,
                                     .layers = "model.layers.",
                                     .base = "model.",
                                     .globals = kDecoderGlobals,
                                     .parts = kDeepseekParts};

}  // namespace nanscope
