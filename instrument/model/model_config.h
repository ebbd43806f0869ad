#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/choices.h"

/// What a transformer is: shapes, norms, positions, experts. Plain structs; each field is a knob of the same name
/// (instrument/engine/knobs.h), which documents it. A checkpoint's config.json is read into them (model_spec.h).
namespace nanscope {

enum class RopeScaling : std::uint8_t { none, dynamic, dynamic_unguarded, linear, llama3, yarn, longrope };
/// Where the norms of a layer stand: before a branch, after the sum (Vaswani et al. 2017), around the branch (Gemma 2),
/// or on what comes out of it (OLMo 2).
enum class NormPlacement : std::uint8_t { pre, post, sandwich, branch };
/// What a norm on Q and K goes over: each head (Qwen3, Gemma 3) or the whole projection (OLMo 2).
enum class QkNormOver : std::uint8_t { head, projection };
/// Which channels of a head a rotation turns together: those half a head apart (Llama), or neighbours (GPT-J,
/// DeepSeek).
enum class RopePairs : std::uint8_t { halves, neighbours };

struct ModelConfig {
  std::int64_t layers = 4;
  std::int64_t width = 256;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 4;
  std::int64_t head_dim = 64;  ///< of queries and keys
  std::int64_t value_dim = 0;  ///< channels of a head of values; 0: head_dim
  /// Channels of what all heads' keys and values are made of (multi-head latent attention, DeepSeek-V2 section 2.1),
  /// and of what the queries are; 0: each is a projection of its own. A key is then unrotated channels of its head
  /// before rotated ones that all heads share.
  std::int64_t kv_rank = 0;
  std::int64_t q_rank = 0;
  double latent_norm_eps = 0;  ///< of the norms on both; 0: that of all norms
  std::int64_t mlp_width = 512;
  kernels::NormKind norm = kernels::NormKind::layer_norm;
  NormPlacement norm_placement = NormPlacement::pre;
  bool norm_bias = true;     ///< of norms that may have one, layer_norm
  bool parallel = false;     ///< attention and MLP read the same, and both are added to it (GPT-J)
  bool shared_norm = false;  ///< with `parallel`: what one norm puts out
  bool inner_norm = false;
  bool qk_norm = false;
  QkNormOver qk_norm_over = QkNormOver::head;
  bool bias = false;      ///< of every projection
  bool qkv_bias = false;  ///< of these three
  bool o_bias = false;
  bool mlp_bias = false;
  kernels::ActivationKind mlp = kernels::ActivationKind::swiglu;
  double swiglu_alpha = 1.702;   ///< of swiglu_clamped
  double swiglu_limit = 7;       ///< of swiglu_clamped
  bool attention_sinks = false;  ///< each head has a learned score beside those of the keys
  double rope_base = 10000;
  double local_rope_base = 0;     ///< of layers with a window; 0: rope_base, and its scaling
  std::int64_t rotated = 0;       ///< channels of a head that are rotated; 0: all
  std::int64_t rotated_from = 0;  ///< the first of them
  RopePairs rope_pairs = RopePairs::halves;
  std::vector<std::int64_t> unrotated_layers;  ///< layers that rotate neither queries nor keys (NoPE)
  std::int64_t positions = 0;                  ///< rows of a learned position table; 0: rotary positions
  double embedding_scale = 1;
  double residual_scale = 1;  ///< on what each branch puts out, before it is added
  double logit_scale = 1;
  double attention_scale = 0;    ///< on scores; 0: 1 / sqrt(head_dim)
  bool scale_by_layer = false;   ///< scores of layer i are divided by i + 1 too
  double attention_softcap = 0;  ///< on scores; 0: none
  double logit_softcap = 0;
  std::int64_t window = 0;                ///< keys that a token sees, its own included; 0: all before it
  std::vector<std::int64_t> full_layers;  ///< layers without the window
  std::vector<std::int64_t> recurrent_layers;
  /// Of recurrent layers that are gated delta nets (arXiv:2412.06464): key heads and value heads, channels of each,
  /// taps of the convolutions before. No heads: they are gated linear recurrences.
  std::int64_t delta_key_heads = 0;
  std::int64_t delta_value_heads = 0;
  std::int64_t delta_key_dim = 0;
  std::int64_t delta_value_dim = 0;
  std::int64_t delta_taps = 4;
  bool attention_gate = false;  ///< sigmoids of a projection multiply what attention puts out (Qwen3-Next)
  std::int64_t experts = 0;
  bool router_bias = false;  ///< of the router's logits
  std::int64_t experts_per_token = 2;
  std::int64_t expert_width = 0;           ///< hidden channels of an expert; 0: mlp_width
  std::int64_t shared_expert_width = 0;    ///< of an expert that every token has; 0: there is none
  bool shared_expert_gate = true;          ///< its output is multiplied by a gate (Qwen2-MoE), or added (DeepSeek)
  std::vector<std::int64_t> dense_layers;  ///< layers without experts
  std::int64_t mtp_layers = 0;             ///< of a checkpoint, behind the last: they predict further tokens; not run
  bool head_bias = false;                  ///< of the logits
  bool tied_head = false;                  ///< the head is the embedding's table
  std::string weights = "reference";
  std::string family;                    ///< of a checkpoint folder; empty: names of docs/weights.md
  std::int64_t vocabulary = 0;           ///< rows of the embedding; 0: the tokenizer's
  std::vector<std::int64_t> end_tokens;  ///< any of them ends a request; empty: what the tokenizer calls so
  std::uint64_t seed = 1;
  std::string tokenizer;
  std::int64_t patch_size = 16;
  double init_scale = 1;
};

/// Scaling of the rotary angles for more positions than a model was trained for; see rope_stretch() and rope_table().
struct RopeConfig {
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;
  std::int64_t trained = 2048;
  std::int64_t served = 2048;
  double low_factor = 1;              ///< of llama3: waves longer than trained / this are slowed whole
  double high_factor = 4;             ///< of llama3: waves shorter than trained / this stay
  double fast = 32;                   ///< of YaRN: turns within `trained` from which on a channel stays
  double slow = 1;                    ///< of YaRN: turns up to which it is slowed whole
  bool truncate = true;               ///< of YaRN: these bounds are whole channels
  double amplitude = 0;               ///< of cosine and sine; 0: what the scaling makes of factor
  double all_dim = 0;                 ///< of YaRN: DeepSeek's mscale_all_dim, which model.attention_scale follows
  std::vector<double> short_factors;  ///< of LongRoPE, by channel, up to `trained` positions
  std::vector<double> long_factors;   ///< beyond
};

struct MoeConfig {
  kernels::RouterScore score = kernels::RouterScore::sigmoid;
  kernels::RouterValue weights = kernels::RouterValue::gate;
  bool bias = true;       ///< the router has a bias for the choice
  bool normalise = true;  ///< the chosen experts' weights add up to 1
  float eps = 0;
  float scale = 1;              ///< on the chosen experts' weights
  std::int64_t groups = 1;      ///< of neighbouring experts
  std::int64_t top_groups = 1;  ///< that a token's experts are in
  kernels::GroupScore group_score = kernels::GroupScore::top_two;
};

/// What the base of the rotary angles is stretched by: factor * served / trained - (factor - 1), which is negative
/// where less is served than trained for; 1 without scaling, and when the guard sees that nothing is extended.
double rope_stretch(const RopeConfig& rope);

/// Whether `layer` is a gated linear recurrence instead of attention.
bool is_recurrent(const ModelConfig& model, std::int64_t layer);

/// Whether recurrent layers are gated delta nets.
bool is_delta(const ModelConfig& model);

/// Channels of the state of a recurrent layer: f32 values that a sequence keeps.
std::int64_t state_width(const ModelConfig& model);

/// Whether `layer` rotates queries and keys by their positions.
bool is_rotary(const ModelConfig& model, std::int64_t layer);

/// Keys that `layer` sees, 0: all.
std::int64_t window_of(const ModelConfig& model, std::int64_t layer);

/// Whether the MLP of `layer` is a mixture of experts.
bool has_experts(const ModelConfig& model, std::int64_t layer);

/// Whether a norm stands before each branch, and whether one stands behind it or its sum.
bool norms_before(const ModelConfig& model);
bool norms_after(const ModelConfig& model);

/// Whether the MLP has a norm of its own before it.
bool norms_before_mlp(const ModelConfig& model);

/// Whether keys and values are made of a latent of kv_rank channels.
bool is_latent(const ModelConfig& model);

/// Channels of a head of values.
std::int64_t value_dim(const ModelConfig& model);

/// Channels of what attention puts out.
std::int64_t mix_width(const ModelConfig& model);

/// Hidden channels of an expert.
std::int64_t expert_width(const ModelConfig& model);

/// Factor on the scores of `layer`.
float attention_scale(const ModelConfig& model, std::int64_t layer);

}  // namespace nanscope
