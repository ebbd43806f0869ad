#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/run/op_attributes.h"
#include "core/run/op_kind.h"
#include "instrument/engine/config.h"

namespace nanscope {

/// What is known of an op before it runs: its place, its kind and its fixed parameters.
/// Made once an engine, so that an op whose parameters are all fixed costs no string while it runs.
struct OpPlan {
  std::int64_t layer = -1;
  std::string name;
  OpKind kind = OpKind::dumped;
  OpAttributes attributes;
  std::string json = "{}";  ///< of the attributes
  float second = 1;         ///< of quantized inputs: what stands above the scales of blocks, or the one scale
};

/// One MLP: gate is for gated activations only, act_quantise for inputs that are quantized, act_dequantise for those
/// that have one scale.
struct MlpPlan {
  OpPlan gate_proj, up_proj, mlp_act, act_quantise, act_dequantise, down_proj;
};

struct LayerPlan {
  bool recurrent = false;
  std::int64_t rank = 0;             ///< of this layer among the attention, or the recurrent, layers
  OpPlan attn_quantise, o_quantise;  ///< of the projections' inputs, where these are quantized
  OpPlan attn_dequantise, o_dequantise, mlp_dequantise;  ///< where they have one scale: what is read back
  OpPlan attn_norm, q_proj, k_proj, v_proj, q_norm, k_norm, q_rope, k_rope, q_hadamard, k_hadamard, v_hadamard,
      kv_store, kv_read, k_read_rope, k_leaving, v_leaving, k_seal, v_seal, q_quantise, q_dequantise, k_quantise,
      k_dequantise, v_quantise, v_dequantise, scores, scores_quantise, scores_dequantise, softmax_partials, softmax,
      mix_partials, attn_mix, exact_scores, p_quantise, p_dequantise, out_hadamard, inner_norm, o_proj, attn_all_reduce,
      attn_post_norm, attn_residual;
  OpPlan q_a_proj, q_a_norm, kv_a_proj, kv_latent, k_shared, kv_a_norm, kv_b_proj, v_split,
      k_join;  ///< latent attention
  OpPlan recurrent_in, recurrent_scan, recurrent_rows, recurrent_out;
  OpPlan z_proj, b_proj, a_proj, q_conv, k_conv, v_conv, delta, delta_rows, delta_norm, delta_gate;  ///< delta nets
  OpPlan attn_gate, attn_gated;
  OpPlan mlp_norm, mlp_quantise, mlp_all_reduce, mlp_post_norm, mlp_residual;
  MlpPlan mlp;
  OpPlan router, route, expert_mix, shared_gate, shared_add;
  MlpPlan shared_expert;
  std::vector<MlpPlan> experts;  ///< instead of mlp, when the model has any
  std::int64_t ops = 0;          ///< how many of them a step of one sequence executes
};

struct ModelPlan {
  OpPlan patch_embed, embed, last_rows, final_norm, lm_head, logits_scale, logits_softcap, token_softmax, sample,
      argmax;
  std::vector<LayerPlan> layers;
  std::int64_t ops_per_step = 0;  ///< of one sequence and one rank, without patch_embed, which runs once an image
};

struct LoadedModel;

/// `model` is asked for scales of what products read; null where activation.tensor_scales is not `checkpoint`.
ModelPlan make_plan(const EngineConfig& config, const LoadedModel* model = nullptr);

}  // namespace nanscope
