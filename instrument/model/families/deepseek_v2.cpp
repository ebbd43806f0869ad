/// DeepSeek-V2 (transformers/models/deepseek_v2): multi-head latent attention, dense layers first, experts by softmax,
/// of all or of the groups with the largest gate, and shared experts that are added.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

void read_choice(ConfigReader& config, ModelSpec& spec) {
  const std::string method = config.text("topk_method", "greedy");
  spec.moe.group_score = kernels::GroupScore::best;
  if (method == "greedy") {
    config.ignore({"n_group", "topk_group"});
    spec.moe.groups = spec.moe.top_groups = 1;
  } else if (method != "group_limited_greedy") {
    config.reject("topk_method", "only 'greedy' and 'group_limited_greedy' are supported");
  }
}

Status read_deepseek_v2(ConfigReader& config, ModelSpec& spec) {
  ModelConfig& model = spec.model;
  read_decoder_shapes(config, spec, {});
  read_latent_attention(config, spec, {});
  if (!config.has("num_experts_per_tok")) config.reject("num_experts_per_tok", "is missing");
  read_deepseek_experts(config, spec, {.experts = 64, .chosen = 1, .width = 1407, .scale = 1, .dense = 0, .shared = 2});
  read_choice(config, spec);
  spec.moe.score = kernels::RouterScore::softmax;
  spec.moe.bias = false;
  spec.moe.eps = 0;
  // transformers ignores it, and the authors' code then leaves the factor out: no checkpoint has it.
  config.only("norm_topk_prob", false);
  spec.moe.normalise = false;
  model.mlp_bias = false;
  config.only("mlp_bias", false);
  config.only_text("hidden_act", "silu");
  config.only_text("scoring_func", "softmax");
  if (config.integer("moe_layer_freq", 1) != 1) config.reject("moe_layer_freq", "expected 1");
  config.ignore({"pretraining_tp", "ep_size", "aux_loss_alpha", "seq_aux"});
  return config.status();
}

}  // namespace

extern const ModelFamily family_deepseek_v2;
const ModelFamily family_deepseek_v2{.name = "deepseek_v2",
                                     .model_types = "deepseek_v2",
                                     .read = read_deepseek_v2,
                                     .layers = "model.layers.",
                                     .base = "model.",
                                     .globals = kDecoderGlobals,
                                     .parts = kDeepseekParts};

}  // namespace nanscope
