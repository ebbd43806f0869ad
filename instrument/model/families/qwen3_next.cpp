/// Qwen3-Next and Qwen3.5's text models (transformers/models/qwen3_next, qwen3_5, qwen3_5_moe): gated delta nets in
/// three of four layers, attention with an output gate in the others, gains of 1 + w, a partial rotation, mixtures with
/// a gated shared expert.
#include <fmt/format.h>

#include "core/text/safe_text.h"
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

/// `layer_types`, or every `full_attention_interval`-th layer.
void read_linear_layers(ConfigReader& config, ModelSpec& spec) {
  const std::vector<std::string> types = config.texts("layer_types");
  const std::int64_t interval = config.integer("full_attention_interval", 4, 1);
  if (!types.empty() && std::ssize(types) != spec.model.layers) {
    return config.reject("layer_types", fmt::format("{} names for {} layers", types.size(), spec.model.layers));
  }
  for (std::int64_t layer = 0; layer < spec.model.layers; ++layer) {
    const std::string type = !types.empty()                ? types[static_cast<std::size_t>(layer)]
                             : (layer + 1) % interval != 0 ? "linear_attention"
                                                           : "full_attention";
    if (type != "linear_attention" && type != "full_attention") {
      return config.reject("layer_types", fmt::format("'{}' is not supported", one_line(type)));
    }
    if (type == "linear_attention") spec.model.recurrent_layers.push_back(layer);
  }
  const bool attention = std::ssize(spec.model.recurrent_layers) < spec.model.layers;
  if (!attention) config.reject("layer_types", "expected full_attention in at least one layer");
}

void read_delta_layers(ConfigReader& config, ModelSpec& spec) {
  ModelConfig& model = spec.model;
  model.qk_norm = true;
  model.attention_gate = true;
  read_attention_bias(config, spec);
  read_linear_layers(config, spec);
  model.delta_taps = config.integer("linear_conv_kernel_dim", 4, 2, 64);
  model.delta_key_dim = config.integer("linear_key_head_dim", 128, 1, 4096);
  model.delta_value_dim = config.integer("linear_value_head_dim", 128, 1, 4096);
  model.delta_key_heads = config.integer("linear_num_key_heads", 16, 1, 4096);
  model.delta_value_heads = config.integer("linear_num_value_heads", 32, 1, 4096);
  if (model.delta_value_heads % model.delta_key_heads != 0) {
    config.reject("linear_num_value_heads", fmt::format("{} is no multiple of linear_num_key_heads, {}",
                                                        model.delta_value_heads, model.delta_key_heads));
  }
  if (model.recurrent_layers.empty()) model.delta_key_heads = model.delta_value_heads = 0;
  config.only_text("hidden_act", "silu");
}

void read_mixtures(ConfigReader& config, ModelSpec& spec, std::int64_t chosen, std::int64_t experts) {
  read_experts(config, spec, chosen, true);
  const std::int64_t stated = config.integer("num_experts", experts, 0, 1024);
  spec.model.experts = config.integer("num_local_experts", stated, 0, 1024);
  spec.model.expert_width = config.integer("moe_intermediate_size", 512, 1);
  spec.model.shared_expert_width = config.integer("shared_expert_intermediate_size", 512, 1);
}

void read_qwen3_5_shapes(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults) {
  read_decoder(config, spec, defaults);
  read_delta_layers(config, spec);
  config.only("attn_output_gate", true);
  config.ignore({"mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"});
}

Status read_qwen3_5(ConfigReader& config, ModelSpec& spec) {
  read_qwen3_5_shapes(config, spec, {.kv_heads = 4, .head_dim = 256, .partial_rotary = 0.25});
  return config.status();
}

/// All layers are mixtures, whose files state no width of a dense one.
Status read_qwen3_5_moe(ConfigReader& config, ModelSpec& spec) {
  read_qwen3_5_shapes(config, spec, {.kv_heads = 2, .head_dim = 256, .mlp_width = 512, .partial_rotary = 0.25});
  read_mixtures(config, spec, 8, 256);
  return config.status();
}

Status read_qwen3_next(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.kv_heads = 2, .head_dim = 256, .partial_rotary = 0.25});
  read_delta_layers(config, spec);
  read_mixtures(config, spec, 10, 512);
  return config.status();
}

constexpr WeightRule kNextGlobals[] = {{"embed", "model.embed_tokens"},
                                       {.ours = "final_norm", .theirs = "model.norm", .offset = 1},
                                       {"lm_head", "lm_head"}};
/// With the norms of attention.
constexpr WeightRule kNextNorms[] = {{.ours = "attn_norm", .theirs = "input_layernorm", .offset = 1},
                                     {.ours = "mlp_norm", .theirs = "post_attention_layernorm", .offset = 1},
                                     {.ours = "q_norm", .theirs = "self_attn.q_norm", .offset = 1},
                                     {.ours = "k_norm", .theirs = "self_attn.k_norm", .offset = 1}};
constexpr WeightRule kGatedAttention[] = {{"q_proj", "self_attn.q_proj", WeightPart::query_before_gate},
                                          {"attn_gate", "self_attn.q_proj", WeightPart::gate_behind_query},
                                          {"k_proj", "self_attn.k_proj"},
                                          {"v_proj", "self_attn.v_proj"},
                                          {"o_proj", "self_attn.o_proj"}};
constexpr WeightRule kDelta[] = {
    {.ours = "delta.q_conv", .theirs = "linear_attn.conv1d", .part = WeightPart::delta_q, .taps = true},
    {.ours = "delta.k_conv", .theirs = "linear_attn.conv1d", .part = WeightPart::delta_k, .taps = true},
    {.ours = "delta.v_conv", .theirs = "linear_attn.conv1d", .part = WeightPart::delta_v, .taps = true},
    {"delta", "linear_attn"},  // A_log and dt_bias
    {"delta.norm", "linear_attn.norm"},
    {"delta.o_proj", "linear_attn.out_proj"}};
constexpr WeightRule kFusedDelta[] = {{"delta.q_proj", "linear_attn.in_proj_qkvz", WeightPart::delta_q_of_heads},
                                      {"delta.k_proj", "linear_attn.in_proj_qkvz", WeightPart::delta_k_of_heads},
                                      {"delta.v_proj", "linear_attn.in_proj_qkvz", WeightPart::delta_v_of_heads},
                                      {"delta.z_proj", "linear_attn.in_proj_qkvz", WeightPart::delta_z_of_heads},
                                      {"delta.b_proj", "linear_attn.in_proj_ba", WeightPart::delta_b_of_heads},
                                      {"delta.a_proj", "linear_attn.in_proj_ba", WeightPart::delta_a_of_heads}};
constexpr WeightRule kPlainDelta[] = {{"delta.q_proj", "linear_attn.in_proj_qkv", WeightPart::delta_q},
                                      {"delta.k_proj", "linear_attn.in_proj_qkv", WeightPart::delta_k},
                                      {"delta.v_proj", "linear_attn.in_proj_qkv", WeightPart::delta_v},
                                      {"delta.z_proj", "linear_attn.in_proj_z"},
                                      {"delta.b_proj", "linear_attn.in_proj_b"},
                                      {"delta.a_proj", "linear_attn.in_proj_a"}};
constexpr auto kQwen35Parts = joined(kNextNorms, kGatedAttention, kDelta, kPlainDelta, kMlp);
constexpr auto kQwen35MoeParts =
    joined(kNextNorms, kGatedAttention, kDelta, kPlainDelta, kExperts, kStackedExperts, kSharedExpert);
constexpr auto kQwen3NextParts =
    joined(kNextNorms, kGatedAttention, kDelta, kFusedDelta, kMlp, kExperts, kStackedExperts, kSharedExpert);

}  // namespace

extern const ModelFamily family_qwen3_next;
const ModelFamily family_qwen3_next{.name = "qwen3_next",
                                    .model_types = "qwen3_next",
                                    .read = read_qwen3_next,
                                    .layers = "model.layers.",
                                    .base = "model.",
                                    .globals = kNextGlobals,
                                    .parts = kQwen3NextParts};

extern const ModelFamily family_qwen3_5;
const ModelFamily family_qwen3_5{.name = "qwen3_5",
                                 .model_types = "qwen3_5_text",
                                 .read = read_qwen3_5,
                                 .layers = "model.layers.",
                                 .base = "model.",
                                 .globals = kNextGlobals,
                                 .parts = kQwen35Parts};

extern const ModelFamily family_qwen3_5_moe;
const ModelFamily family_qwen3_5_moe{.name = "qwen3_5_moe",
                                     .model_types = "qwen3_5_moe_text",
                                     .read = read_qwen3_5_moe,
                                     .layers = "model.layers.",
                                     .base = "model.",
                                     .globals = kNextGlobals,
                                     .parts = kQwen35MoeParts};

}  // namespace nanscope
