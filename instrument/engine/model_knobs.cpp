#include <array>
#include <string_view>
#include <vector>

#include "instrument/engine/knob_entry.h"
#include "instrument/engine/knob_groups.h"
#include "instrument/model/family.h"

/// Knobs of what a model is: shapes, positions, experts. A checkpoint folder sets them from its config.json.
namespace nanscope::knob_entry {

using kernels::ActivationKind;
using kernels::GroupScore;
using kernels::NormKind;
using kernels::RouterScore;
using kernels::RouterValue;

template <>
struct Texts<NormKind> {
  static constexpr std::array<std::string_view, 2> names{"layer_norm", "rms_norm"};
};
template <>
struct Texts<RopeScaling> {
  static constexpr std::array<std::string_view, 7> names{"none",   "dynamic", "dynamic_unguarded", "linear",
                                                         "llama3", "yarn",    "longrope"};
};
template <>
struct Texts<NormPlacement> {
  static constexpr std::array<std::string_view, 4> names{"pre", "post", "sandwich", "branch"};
};
template <>
struct Texts<ActivationKind> {
  static constexpr std::array<std::string_view, 8> names{"silu",   "gelu",       "gelu_tanh",      "relu_squared",
                                                         "swiglu", "geglu_tanh", "swiglu_clamped", "glu"};
};
template <>
struct Texts<RouterValue> {
  static constexpr std::array<std::string_view, 2> names{"gate", "choice_minus_bias"};
};
template <>
struct Texts<QkNormOver> {
  static constexpr std::array<std::string_view, 2> names{"head", "projection"};
};
template <>
struct Texts<RopePairs> {
  static constexpr std::array<std::string_view, 2> names{"halves", "neighbours"};
};
template <>
struct Texts<GroupScore> {
  static constexpr std::array<std::string_view, 2> names{"top_two", "best"};
};
template <>
struct Texts<RouterScore> {
  static constexpr std::array<std::string_view, 3> names{"sigmoid", "softmax", "softmax_of_chosen"};
};

}  // namespace nanscope::knob_entry

namespace nanscope {
namespace {

using knob_entry::kBool;
using knob_entry::kCount;
using knob_entry::knob;

constexpr const char* kPositions = "1..1073741824";

}  // namespace

std::vector<Knob> model_knobs() {
  return {
      knob(
          "model.layers", "1..1024", "number of layers", [](auto& c) -> auto& { return c.model.layers; }),
      knob(
          "model.width", kCount, "channels of the residual stream", [](auto& c) -> auto& { return c.model.width; }),
      knob(
          "model.heads", "1..4096", "query heads", [](auto& c) -> auto& { return c.model.heads; }),
      knob(
          "model.kv_heads", "1..4096", "key and value heads (GQA)", [](auto& c) -> auto& { return c.model.kv_heads; }),
      knob(
          "model.head_dim", "2..4096", "channels of a head of queries and keys",
          [](auto& c) -> auto& { return c.model.head_dim; }),
      knob(
          "model.value_dim", "0..4096", "channels of a head of values; 0: model.head_dim",
          [](auto& c) -> auto& { return c.model.value_dim; }),
      knob(
          "model.kv_rank", "0..1048576",
          "channels of the latent that all heads' keys and values are made of (MLA); 0: they are projections",
          [](auto& c) -> auto& { return c.model.kv_rank; }),
      knob(
          "model.q_rank", "0..1048576",
          "channels of the latent that queries are made of, with model.kv_rank; 0: they are a projection",
          [](auto& c) -> auto& { return c.model.q_rank; }),
      knob(
          "model.latent_norm_eps", "number", "eps of the norms on these latents; 0: norm.eps",
          [](auto& c) -> auto& { return c.model.latent_norm_eps; }),
      knob(
          "model.mlp_width", kCount, "hidden channels of the MLP", [](auto& c) -> auto& { return c.model.mlp_width; }),
      knob(
          "model.norm", "layer_norm|rms_norm", "kind of every norm", [](auto& c) -> auto& { return c.model.norm; }),
      knob(
          "model.norm_placement", "pre|post|sandwich|branch",
          "where the norms stand: before a branch, after the sum, before and behind the branch, behind it",
          [](auto& c) -> auto& { return c.model.norm_placement; }),
      knob(
          "model.norm_bias", kBool, "layer_norm: the norms have biases",
          [](auto& c) -> auto& { return c.model.norm_bias; }),
      knob(
          "model.parallel", kBool, "attention and MLP of a layer read the same, and both are added to it",
          [](auto& c) -> auto& { return c.model.parallel; }),
      knob(
          "model.shared_norm", kBool, "with model.parallel: both read what one norm puts out",
          [](auto& c) -> auto& { return c.model.shared_norm; }),
      knob(
          "model.inner_norm", kBool, "norm on the attention output before its projection (sub-LN, Magneto, EVA-02)",
          [](auto& c) -> auto& { return c.model.inner_norm; }),
      knob(
          "model.qk_norm", kBool, "norm on Q and K", [](auto& c) -> auto& { return c.model.qk_norm; }),
      knob(
          "model.qk_norm_over", "head|projection", "what a norm on Q and K goes over",
          [](auto& c) -> auto& { return c.model.qk_norm_over; }),
      knob(
          "model.bias", kBool, "projections have biases", [](auto& c) -> auto& { return c.model.bias; }),
      knob(
          "model.qkv_bias", kBool, "the projections to Q, K and V have biases",
          [](auto& c) -> auto& { return c.model.qkv_bias; }),
      knob(
          "model.o_bias", kBool, "the attention output projection has a bias",
          [](auto& c) -> auto& { return c.model.o_bias; }),
      knob(
          "model.mlp_bias", kBool, "the projections of the MLP have biases",
          [](auto& c) -> auto& { return c.model.mlp_bias; }),
      knob(
          "model.mlp", "swiglu|swiglu_clamped|geglu_tanh|glu|gelu|gelu_tanh|relu_squared|silu", "activation of the MLP",
          [](auto& c) -> auto& { return c.model.mlp; }),
      knob(
          "model.swiglu_alpha", "number", "swiglu_clamped: factor on the gate within its sigmoid",
          [](auto& c) -> auto& { return c.model.swiglu_alpha; }),
      knob(
          "model.swiglu_limit", "number", "swiglu_clamped: what the gate is held below, and up on both sides",
          [](auto& c) -> auto& { return c.model.swiglu_limit; }),
      knob(
          "model.attention_sinks", kBool,
          "each head has a learned score that its softmax goes over beside those of the keys",
          [](auto& c) -> auto& { return c.model.attention_sinks; }),
      knob(
          "model.rope_base", "1..1e12", "base of the rotary angles",
          [](auto& c) -> auto& { return c.model.rope_base; }),
      knob(
          "model.local_rope_base", "0..1e12",
          "base of the rotary angles in layers with a window, unscaled; 0: as in the others",
          [](auto& c) -> auto& { return c.model.local_rope_base; }),
      knob(
          "model.rotated", "0..4096", "channels of a head that are rotated; 0: all",
          [](auto& c) -> auto& { return c.model.rotated; }),
      knob(
          "model.rotated_from", "0..4096", "the first channel of a head that is rotated",
          [](auto& c) -> auto& { return c.model.rotated_from; }),
      knob(
          "model.rope_pairs", "halves|neighbours",
          "channels that a rotation turns together: half a head apart, or neighbours",
          [](auto& c) -> auto& { return c.model.rope_pairs; }),
      knob(
          "model.unrotated_layers", "list", "layers that rotate neither queries nor keys",
          [](auto& c) -> auto& { return c.model.unrotated_layers; }),
      knob(
          "model.positions", "0..1048576", "rows of a learned position table; 0: positions are rotary",
          [](auto& c) -> auto& { return c.model.positions; }),
      knob(
          "model.embedding_scale", "number", "factor on the embedding",
          [](auto& c) -> auto& { return c.model.embedding_scale; }),
      knob(
          "model.residual_scale", "number", "factor on what a branch puts out, before it is added to its input",
          [](auto& c) -> auto& { return c.model.residual_scale; }),
      knob(
          "model.logit_scale", "number", "factor on the logits", [](auto& c) -> auto& { return c.model.logit_scale; }),
      knob(
          "model.attention_scale", "number", "factor on scores; 0: 1 / sqrt(head_dim)",
          [](auto& c) -> auto& { return c.model.attention_scale; }),
      knob(
          "model.scale_by_layer", kBool, "the scores of layer i are divided by i + 1 too",
          [](auto& c) -> auto& { return c.model.scale_by_layer; }),
      knob(
          "model.attention_softcap", "number", "scores become c * tanh(s / c); 0: they stay",
          [](auto& c) -> auto& { return c.model.attention_softcap; }),
      knob(
          "model.logit_softcap", "number", "logits become c * tanh(x / c); 0: they stay",
          [](auto& c) -> auto& { return c.model.logit_softcap; }),
      knob(
          "model.window", "0..1073741824", "keys that a token sees, its own included; 0: all before it",
          [](auto& c) -> auto& { return c.model.window; }),
      knob(
          "model.full_layers", "list", "layers without the window",
          [](auto& c) -> auto& { return c.model.full_layers; }),
      knob(
          "model.recurrent_layers", "list", "layers that are gated linear recurrences instead of attention",
          [](auto& c) -> auto& { return c.model.recurrent_layers; }),
      knob(
          "model.delta_key_heads", "0..4096",
          "key heads of recurrent layers that are gated delta nets; 0: they are gated linear recurrences",
          [](auto& c) -> auto& { return c.model.delta_key_heads; }),
      knob(
          "model.delta_value_heads", "0..4096", "their value heads",
          [](auto& c) -> auto& { return c.model.delta_value_heads; }),
      knob(
          "model.delta_key_dim", "0..4096", "channels of such a head of queries and keys",
          [](auto& c) -> auto& { return c.model.delta_key_dim; }),
      knob(
          "model.delta_value_dim", "0..4096", "channels of such a head of values",
          [](auto& c) -> auto& { return c.model.delta_value_dim; }),
      knob(
          "model.delta_taps", "1..64", "inputs that the convolutions before them see",
          [](auto& c) -> auto& { return c.model.delta_taps; }),
      knob(
          "model.attention_gate", kBool, "sigmoids of a projection multiply what attention puts out",
          [](auto& c) -> auto& { return c.model.attention_gate; }),
      knob(
          "model.experts", "0..1024", "experts of every MLP; 0: the MLP is dense",
          [](auto& c) -> auto& { return c.model.experts; }),
      knob(
          "model.router_bias", kBool, "the router's logits have a bias",
          [](auto& c) -> auto& { return c.model.router_bias; }),
      knob(
          "model.experts_per_token", "1..32", "experts that a token has",
          [](auto& c) -> auto& { return c.model.experts_per_token; }),
      knob(
          "model.expert_width", "0..1048576", "hidden channels of an expert; 0: model.mlp_width",
          [](auto& c) -> auto& { return c.model.expert_width; }),
      knob(
          "model.shared_expert_width", "0..1048576",
          "hidden channels of a gated expert that every token has; 0: there is none",
          [](auto& c) -> auto& { return c.model.shared_expert_width; }),
      knob(
          "model.shared_expert_gate", kBool, "a gate multiplies what the shared expert puts out",
          [](auto& c) -> auto& { return c.model.shared_expert_gate; }),
      knob(
          "model.dense_layers", "list", "layers whose MLP is no mixture of experts",
          [](auto& c) -> auto& { return c.model.dense_layers; }),
      knob(
          "model.head_bias", kBool, "the logits have a bias", [](auto& c) -> auto& { return c.model.head_bias; }),
      knob(
          "model.tied_head", kBool, "the head's weights are the embedding's",
          [](auto& c) -> auto& { return c.model.tied_head; }),
      knob(
          "model.weights", "text", "reference, random, a safetensors file, or the folder of a checkpoint",
          [](auto& c) -> auto& { return c.model.weights; }),
      knob(
          "model.family", model_family_names(),
          "names and layout of a checkpoint folder's weights; empty: those of docs/weights.md",
          [](auto& c) -> auto& { return c.model.family; }),
      knob(
          "model.vocabulary", "0..4194304", "rows of the embedding; 0: the tokenizer's",
          [](auto& c) -> auto& { return c.model.vocabulary; }),
      knob(
          "model.end_tokens", "list", "tokens that end a request; empty: the one that the tokenizer calls so",
          [](auto& c) -> auto& { return c.model.end_tokens; }),
      knob(
          "model.seed", "0..18446744073709551615", "seed of generated weights",
          [](auto& c) -> auto& { return c.model.seed; }),
      knob(
          "model.tokenizer", "text", "tokenizer.json; empty: the shipped one",
          [](auto& c) -> auto& { return c.model.tokenizer; }),
      knob(
          "model.patch_size", "0..256", "side of an image patch, in pixels; 0: the model takes no images",
          [](auto& c) -> auto& { return c.model.patch_size; }),
      knob(
          "model.init_scale", "number", "factor on generated weights",
          [](auto& c) -> auto& { return c.model.init_scale; }),
  };
}

std::vector<Knob> rope_knobs() {
  return {
      knob(
          "rope.scaling", "none|dynamic|dynamic_unguarded|linear|llama3|yarn|longrope",
          "how angles are made for more positions than the model was trained for: not at all; the base is stretched "
          "(dynamic NTK) when more are served, or whatever is served (vllm #52665); or a table, as rope_table.h has it",
          [](auto& c) -> auto& { return c.rope.scaling; }),
      knob(
          "rope.factor", "1..1024",
          "how strongly; dynamic: base * (factor * served / trained - (factor - 1))^(D/(D-2))",
          [](auto& c) -> auto& { return c.rope.factor; }),
      knob(
          "rope.trained", kPositions, "positions that the model was trained for",
          [](auto& c) -> auto& { return c.rope.trained; }),
      knob(
          "rope.served", kCount, "positions that are served (max_model_len); it limits no request here",
          [](auto& c) -> auto& { return c.rope.served; }),
      knob(
          "rope.low_factor", "number", "llama3: waves longer than trained / this are slowed whole",
          [](auto& c) -> auto& { return c.rope.low_factor; }),
      knob(
          "rope.high_factor", "number", "llama3: waves shorter than trained / this stay",
          [](auto& c) -> auto& { return c.rope.high_factor; }),
      knob(
          "rope.fast", "number", "YaRN: turns within the trained positions from which on a channel stays",
          [](auto& c) -> auto& { return c.rope.fast; }),
      knob(
          "rope.slow", "number", "YaRN: turns up to which it is slowed whole",
          [](auto& c) -> auto& { return c.rope.slow; }),
      knob(
          "rope.truncate", kBool, "YaRN: these bounds are whole channels",
          [](auto& c) -> auto& { return c.rope.truncate; }),
      knob(
          "rope.amplitude", "number", "factor on cosine and sine; 0: what the scaling makes of rope.factor",
          [](auto& c) -> auto& { return c.rope.amplitude; }),
      knob(
          "rope.short_factors", "list", "LongRoPE: divisors of the angles up to rope.trained positions",
          [](auto& c) -> auto& { return c.rope.short_factors; }),
      knob(
          "rope.long_factors", "list", "LongRoPE: divisors beyond",
          [](auto& c) -> auto& { return c.rope.long_factors; }),
  };
}

std::vector<Knob> moe_knobs() {
  return {
      knob(
          "moe.score", "sigmoid|softmax|softmax_of_chosen",
          "what makes a gate of an expert's logit: its sigmoid, or the softmax over all experts or the chosen ones",
          [](auto& c) -> auto& { return c.moe.score; }),
      knob(
          "moe.weights", "gate|choice_minus_bias",
          "what a chosen expert is weighed by: its gate, or (gate + bias) - bias, which may cancel",
          [](auto& c) -> auto& { return c.moe.weights; }),
      knob(
          "moe.bias", kBool, "the router has a bias, which only chooses", [](auto& c) -> auto& { return c.moe.bias; }),
      knob(
          "moe.normalise", kBool, "the chosen experts' weights add up to 1",
          [](auto& c) -> auto& { return c.moe.normalise; }),
      knob(
          "moe.eps", "number", "added to the sum that the chosen experts' weights are divided by",
          [](auto& c) -> auto& { return c.moe.eps; }),
      knob(
          "moe.scale", "number", "the chosen experts' weights are multiplied by this",
          [](auto& c) -> auto& { return c.moe.scale; }),
      knob(
          "moe.groups", "1..32", "groups of neighbouring experts", [](auto& c) -> auto& { return c.moe.groups; }),
      knob(
          "moe.top_groups", "1..32", "groups that a token's experts are chosen from",
          [](auto& c) -> auto& { return c.moe.top_groups; }),
      knob(
          "moe.group_score", "top_two|best",
          "what chooses groups: the sum of the two largest gates of each, with their biases, or the largest",
          [](auto& c) -> auto& { return c.moe.group_score; }),
  };
}

}  // namespace nanscope
