#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "instrument/model/config_reader.h"
#include "instrument/model/family.h"
#include "instrument/model/model_spec.h"

/// What config.json files of Llama's descendants share: keys, rotary settings, names of weights.
namespace nanscope {

/// Values of keys that are missing, as a family's configuration class has them.
struct DecoderDefaults {
  double norm_eps = 1e-6;
  double rope_base = 10000;
  std::int64_t kv_heads = 0;   ///< 0: as many as heads
  std::int64_t head_dim = 0;   ///< 0: hidden_size / num_attention_heads
  std::int64_t mlp_width = 0;  ///< 0: it has to be stated
  bool tied = false;
  double partial_rotary = 1;  ///< share of a head's channels that are rotated
};

/// Vocabulary, widths, heads, norms (RMSNorm before each branch), SwiGLU, rotary positions.
void read_decoder(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults);

/// All of these but the rotary settings.
void read_decoder_shapes(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults);

/// One set of rotary settings: `rope_parameters`, or `rope_theta` and `rope_scaling` of older files.
void read_rope(ConfigReader& config, ModelSpec& spec, double default_base, double default_partial = 1);
/// The settings in an object of their own.
void read_rope_parameters(ConfigReader& rope, ModelSpec& spec, std::int64_t max_positions, double default_base);

/// Two sets by the kind of a layer: `full_attention` and `sliding_attention` of `rope_parameters`. Older files give the
/// first alone; layers with a window then have the plain angles of `local_base`, or of the first's base where it is 0.
void read_two_ropes(ConfigReader& config, ModelSpec& spec, double default_base, double local_base = 0);

/// `no_rope_layers`, a 0 for each layer without rotary positions; or every `no_rope_layer_interval`-th.
void read_layers_without_rope(ConfigReader& config, ModelSpec& spec);

/// `attention_bias`: of all four projections of attention.
void read_attention_bias(ConfigReader& config, ModelSpec& spec);

/// `layer_types`: names which layers see a window. Where it is missing, `full` says which do not.
void read_layer_types(ConfigReader& config, ModelSpec& spec, const std::function<bool(std::int64_t layer)>& full);

/// `sliding_window`: none where it is null, `otherwise` where it is missing.
void read_window(ConfigReader& config, ModelSpec& spec, std::int64_t otherwise);

/// Qwen's windows: of layers from `max_window_layers` on, if `use_sliding_window`.
void read_optional_window(ConfigReader& config, ModelSpec& spec);

/// Router by softmax, and which layers are dense (`decoder_sparse_step`, `mlp_only_layers`).
void read_experts(ConfigReader& config, ModelSpec& spec, std::int64_t chosen, bool normalise);

/// Values of keys of multi-head latent attention that are missing.
struct LatentDefaults {
  std::int64_t kv_rank = 512;
  std::int64_t q_rank = 1536;
  std::int64_t unrotated = 128;  ///< channels of a head of queries and keys
  std::int64_t rotated = 64;
  std::int64_t values = 128;
};
/// Multi-head latent attention, as DeepSeek-V2 and its descendants have it, with its rotary settings. To be called in
/// the place of read_rope(), behind read_decoder_shapes().
void read_latent_attention(ConfigReader& config, ModelSpec& spec, const LatentDefaults& defaults);

/// Values of keys of DeepSeek's mixtures that are missing.
struct DeepseekDefaults {
  std::int64_t experts = 256;
  std::int64_t chosen = 8;
  std::int64_t width = 2048;
  double scale = 2.5;
  std::int64_t dense = 3;  ///< layers without experts, from the first
  std::int64_t groups = 1;
  std::int64_t top_groups = 1;
  std::int64_t shared = 1;
};
/// DeepSeek-V3's mixture and those of its descendants: gates by sigmoid, a bias that only chooses, weights that add up
/// to `routed_scaling_factor`, a shared expert without a gate, groups of experts.
void read_deepseek_experts(ConfigReader& config, ModelSpec& spec, const DeepseekDefaults& defaults);
/// `n_group` and `topk_group`: the groups of experts that a token's are chosen from.
void read_expert_groups(ConfigReader& config, ModelSpec& spec, std::int64_t groups, std::int64_t top);

inline constexpr WeightRule kDecoderGlobals[] = {
    {"embed", "model.embed_tokens"}, {"final_norm", "model.norm"}, {"lm_head", "lm_head"}};

/// The rules of several lists, one after the other.
template <std::size_t... Counts>
constexpr std::array<WeightRule, (Counts + ...)> joined(const WeightRule (&... lists)[Counts]) {
  std::array<WeightRule, (Counts + ...)> all;
  std::size_t at = 0;
  const auto add = [&](const auto& list) {
    for (const WeightRule& rule : list) all[at++] = rule;
  };
  (add(lists), ...);
  return all;
}

/// Norms before the branches of a layer, or on what comes out of them.
inline constexpr WeightRule kNormsBefore[] = {{"attn_norm", "input_layernorm"},
                                              {"mlp_norm", "post_attention_layernorm"}};
inline constexpr WeightRule kNormsOfBranches[] = {{"attn_post_norm", "post_attention_layernorm"},
                                                  {"mlp_post_norm", "post_feedforward_layernorm"}};
inline constexpr WeightRule kAttention[] = {{"q_proj", "self_attn.q_proj"},
                                            {"k_proj", "self_attn.k_proj"},
                                            {"v_proj", "self_attn.v_proj"},
                                            {"o_proj", "self_attn.o_proj"}};
/// Of multi-head latent attention; without a rank of the queries these are a projection.
inline constexpr WeightRule kLatentAttention[] = {{"q_a_proj", "self_attn.q_a_proj"},
                                                  {"q_a_norm", "self_attn.q_a_layernorm"},
                                                  {"q_proj", "self_attn.q_b_proj"},
                                                  {"q_proj", "self_attn.q_proj"},
                                                  {"kv_a_proj", "self_attn.kv_a_proj_with_mqa"},
                                                  {"kv_a_norm", "self_attn.kv_a_layernorm"},
                                                  {"kv_b_proj", "self_attn.kv_b_proj"},
                                                  {"o_proj", "self_attn.o_proj"}};
inline constexpr WeightRule kNormsOfQueryAndKey[] = {{"q_norm", "self_attn.q_norm"}, {"k_norm", "self_attn.k_norm"}};
inline constexpr WeightRule kMlp[] = {
    {"gate_proj", "mlp.gate_proj"}, {"up_proj", "mlp.up_proj"}, {"down_proj", "mlp.down_proj"}};
/// Experts as modules of transformers 5 keep them, and their state_dict() has them; save_pretrained() writes them
/// apart.
inline constexpr WeightRule kStackedExperts[] = {
    {.ours = "experts.gate_proj", .theirs = "mlp.experts.gate_up_proj", .part = WeightPart::gate, .stacked = true},
    {.ours = "experts.up_proj", .theirs = "mlp.experts.gate_up_proj", .part = WeightPart::up, .stacked = true},
    {.ours = "experts.down_proj", .theirs = "mlp.experts.down_proj", .stacked = true}};
inline constexpr WeightRule kExperts[] = {{"router", "mlp.gate"},
                                          {"experts.gate_proj", "mlp.experts.{}.gate_proj"},
                                          {"experts.up_proj", "mlp.experts.{}.up_proj"},
                                          {"experts.down_proj", "mlp.experts.{}.down_proj"}};

inline constexpr auto kDecoderParts = joined(kNormsBefore, kAttention, kMlp);
inline constexpr auto kBranchNormParts = joined(kNormsOfBranches, kAttention, kNormsOfQueryAndKey, kMlp);
inline constexpr auto kMixtureParts =
    joined(kNormsBefore, kAttention, kNormsOfQueryAndKey, kMlp, kExperts, kStackedExperts);
/// With a gated expert that every token has beside the chosen ones.
inline constexpr WeightRule kSharedExpert[] = {{"shared_expert.gate_proj", "mlp.shared_expert.gate_proj"},
                                               {"shared_expert.up_proj", "mlp.shared_expert.up_proj"},
                                               {"shared_expert.down_proj", "mlp.shared_expert.down_proj"},
                                               {"shared_gate", "mlp.shared_expert_gate"}};
/// With the shared experts of DeepSeek-V3 and its descendants.
inline constexpr WeightRule kSharedExperts[] = {{"shared_expert.gate_proj", "mlp.shared_experts.gate_proj"},
                                                {"shared_expert.up_proj", "mlp.shared_experts.up_proj"},
                                                {"shared_expert.down_proj", "mlp.shared_experts.down_proj"}};
inline constexpr auto kDeepseekParts =
    joined(kNormsBefore, kLatentAttention, kMlp, kExperts, kStackedExperts, kSharedExperts);
inline constexpr auto kDeepseekMixtureParts =
    joined(kNormsBefore, kAttention, kNormsOfQueryAndKey, kMlp, kExperts, kStackedExperts, kSharedExperts);

}  // namespace nanscope
