#include "core/dump/name_table.h"

#include <array>

namespace nanscope {
namespace {

using enum ModuleKind;

constexpr std::array kLayerModules = {
    // Multi-token prediction of DeepSeek V3 and Qwen3-Next: a layer with a head of its own before it.
    ModulePattern{"enorm pre_fc_norm_embedding", "mtp_embed_norm", norm, 20, "x", "norm_out"},
    ModulePattern{"hnorm pre_fc_norm_hidden", "mtp_hidden_norm", norm, 22, "resid", "norm_out"},
    ModulePattern{"eh_proj ^mtp.fc ^model.mtp.fc", "mtp_proj", linear, 24, "x", "resid"},
    ModulePattern{"input_layernorm ln_1 ln1 attention_norm attn_norm norm1 layernorm_before layer_norm1 "
                  "self_attn_layer_norm pre_attn_norm pre_attention_layernorm",
                  "attn_norm", norm, 100, "resid", "norm_out"},
    ModulePattern{"qkv_proj c_attn query_key_value qkv Wqkv in_proj attn_qkv wqkv layernorm_qkv linear_qkv "
                  "fused_qkv_a_proj_with_mqa",
                  "qkv_proj", linear, 200, "x", "qkv"},
    ModulePattern{"in_proj_qkvz in_proj_qkv", "gdn_qkv_proj", linear, 200, "x", "qkv"},
    ModulePattern{"in_proj_ba in_proj_z in_proj_a in_proj_b", "gdn_gate_proj", linear, 201, "x", "gdn_gates"},
    ModulePattern{"q_a_proj", "q_a_proj", linear, 200, "x", "q_a"},
    ModulePattern{"q_a_layernorm q_a_norm", "q_a_norm", norm, 202, "q_a", "norm_out"},
    ModulePattern{"q_proj q_b_proj wq query attn_q to_q Qcur query_proj", "q_proj", linear, 204, "x", "q"},
    ModulePattern{"kv_a_proj_with_mqa kv_a_proj", "kv_a_proj", linear, 206, "x", "kv_a"},
    ModulePattern{"kv_a_layernorm kv_a_norm", "kv_a_norm", norm, 208, "kv_a", "norm_out"},
    ModulePattern{"kv_b_proj", "kv_b_proj", linear, 210, "x", "kv"},
    ModulePattern{"k_proj wk key attn_k to_k Kcur key_proj", "k_proj", linear, 212, "x", "k"},
    ModulePattern{"v_proj wv value attn_v to_v Vcur value_proj", "v_proj", linear, 214, "x", "v"},
    ModulePattern{"q_norm q_layernorm attn_q_norm", "q_norm", norm, 220, "q", "norm_out"},
    ModulePattern{"k_norm k_layernorm attn_k_norm", "k_norm", norm, 222, "k", "norm_out"},
    ModulePattern{"rotary_emb rope rotary rotary_pos_emb rotary_fn", "rope", rotary, 230, "x", "rope"},
    ModulePattern{"linear_attn.conv1d mixer.conv1d conv1d", "gdn_conv", unknown, 240, "qkv", "gdn_conv"},
    ModulePattern{"softmax attn_softmax attn.softmax kq_soft_max soft_max", "softmax", softmax, 360, "scores", "probs"},
    ModulePattern{"self_attn.attn attn.attn core_attn core_attention inner_attn sdpa attn_fn attention_interface "
                  "self_attn.attention impl attn_mha attn_mqa self_attn.mla_attn attention.attention",
                  "attention", attention, 380, "q", "attn_out"},
    ModulePattern{"inner_norm attn_sub_norm sub_norm inner_attn_ln attn_ln self_attn.norm linear_attn.norm",
                  "inner_norm", norm, 400, "attn_out", "norm_out"},
    ModulePattern{"o_proj wo out_proj attn_output attn.c_proj attention.dense self_attention.dense to_out to_out.0 "
                  "attention.output.dense attn.proj attn_out_proj linear_proj self_attention.proj o_b_proj",
                  "o_proj", linear, 420, "attn_out", "out"},
    ModulePattern{"^self_attn ^attn ^attention ^self_attention ^linear_attn ^mixer", "self_attn", block, 440, "x",
                  "out", 190},
    ModulePattern{"attn_residual residual1 resid_attn post_attn_residual ffn_inp attn_add", "attn_residual", residual,
                  460, "x", "resid"},
    ModulePattern{"post_attention_layernorm ln_2 ln2 ffn_norm mlp_norm norm2 layernorm_after layer_norm2 "
                  "pre_feedforward_layernorm final_layer_norm post_attn_norm pre_mlp_layernorm",
                  "mlp_norm", norm, 500, "resid", "norm_out"},
    ModulePattern{"mlp.gate block_sparse_moe.gate moe.gate feed_forward.gate mlp.router moe.router router ffn_gate_inp "
                  "gate.router mlp.gate.wg",
                  "router", router, 520, "x", "router_logits"},
    ModulePattern{"shared_expert_gate", "shared_expert_gate", linear, 526, "x", "shared_gate"},
    ModulePattern{"mlp.topk moe.topk topk", "topk", unknown, 530, "router_logits", "router_weights"},
    ModulePattern{"gate_up_proj fused_gate_up w13", "gate_up_proj", linear, 600, "x", "gate_up"},
    ModulePattern{"gate_proj w1 ffn_gate", "gate_proj", linear, 600, "x", "gate"},
    ModulePattern{"up_proj w3 ffn_up c_fc fc1 dense_h_to_4h intermediate.dense mlp.lin1 linear_fc1 "
                  "mlp.fc_in",
                  "up_proj", linear, 610, "x", "up"},
    ModulePattern{"act_fn act activation activation_fn gelu silu act_and_mul ffn_act ffn_silu "
                  "intermediate_act_fn intermediate.intermediate_act_fn",
                  "act", ModuleKind::activation, 620, "gate", "act"},
    ModulePattern{"down_proj w2 ffn_down mlp.c_proj fc2 dense_4h_to_h mlp.output.dense mlp.lin2 "
                  "linear_fc2 mlp.fc_out output.dense",
                  "down_proj", linear, 640, "act", "mlp_out"},
    ModulePattern{"experts shared_expert shared_experts switch_mlp", "experts", block, 660, "x", "mlp_out", 590},
    ModulePattern{"^mlp ^feed_forward ^ffn ^block_sparse_moe ^moe ffn_out", "mlp", block, 680, "x", "mlp_out", 510},
    ModulePattern{"mlp_residual residual2 resid_mlp post_mlp_residual l_out ffn_add", "mlp_residual", residual, 700,
                  "x", "resid"},
};

constexpr std::array kOuterModules = {
    ModulePattern{"patch_embed patch_embed.proj patch_embedding patch_embeddings patch_embeddings.projection "
                  "embeddings.patch_embedding conv1",
                  "patch_embed", embedding, kBeforeLayers + 10, "x", "embed"},
    ModulePattern{"embed_tokens wte tok_embeddings word_embeddings token_embd inp_embd embedding embeddings embed",
                  "embed", embedding, kBeforeLayers + 20, "tokens", "embed"},
    ModulePattern{"wpe position_embeddings position_embedding pos_embed embed_positions", "pos_embed", embedding,
                  kBeforeLayers + 30, "x", "embed"},
    ModulePattern{"pre_layrnorm pre_layernorm", "pre_norm", norm, kBeforeLayers + 34, "embed", "norm_out"},
    ModulePattern{"rotary_emb rotary_pos_emb model.rotary_emb", "rope", rotary, kBeforeLayers + 36, "x", "rope"},
    ModulePattern{"ln_q merger.ln_q merger.norm", "projector_norm", norm, kBeforeLayers + 38, "x", "norm_out"},
    ModulePattern{"linear_1 merger.mlp.0 merger.linear_fc1", "projector_up", linear, kBeforeLayers + 39, "x", "up"},
    ModulePattern{"linear_2 merger.mlp.2 merger.linear_fc2", "projector_down", linear, kBeforeLayers + 39, "act",
                  "out"},
    ModulePattern{"multi_modal_projector mm_projector visual.merger merger", "projector", linear, kBeforeLayers + 40,
                  "x", "embed"},
    ModulePattern{"model.norm ln_f final_layernorm final_norm output_norm result_norm norm transformer.norm_f norm_f "
                  "shared_head.norm post_trunk_norm "
                  "layernorm post_layernorm",
                  "final_norm", norm, kAfterLayers + 10, "resid", "norm_out"},
    ModulePattern{"^model ^transformer ^language_model ^model.language_model ^language_model.model", "model", block,
                  kAfterLayers + 15, "x", "out", kBeforeLayers + 2},
    ModulePattern{"lm_head embed_out head result_output output shared_head.head classifier", "lm_head", linear,
                  kAfterLayers + 20, "norm_out", "logits"},
    ModulePattern{"logits_processor", "logits_processor", block, kAfterLayers + 30, "x", "logits"},
    ModulePattern{"sampler argmax sample", "sampler", sampler, kAfterLayers + 40, "logits", "sampled"},
};

constexpr std::array kStateTensors = {
    StatePattern{"weight w packed_weight A_log", "weight", 0, Port::state, unknown},
    StatePattern{"bias dt_bias", "bias", 0, Port::state, unknown},
    StatePattern{"weight_scale weight_scale_inv weight_scale_2 w_scale scales weight_global_scale", "weight_scale", 0,
                 Port::state, unknown},
    StatePattern{"input_scale act_scale x_scale activation_scale input_global_scale", "input_scale", 0, Port::state,
                 unknown},
    StatePattern{"output_scale", "output_scale", 0, Port::state, unknown},
    StatePattern{"amax_history", "amax_history", 0, Port::state, unknown},
    StatePattern{"input_codes x_codes input_q x_q x_fp8 input_fp8 qinput", "x_codes", 0, Port::state, unknown},
    StatePattern{"weight_dequant dequant_weight w_dequant", "weight_dequant", 0, Port::state, unknown},
    StatePattern{"q_scale", "q_scale", 280, Port::state, unknown},
    StatePattern{"k_scale key_scale k_scale_cache", "k_scale", 282, Port::state, unknown},
    StatePattern{"v_scale value_scale v_scale_cache", "v_scale", 284, Port::state, unknown},
    StatePattern{"kv_scale", "kv_scale", 286, Port::state, unknown},
    StatePattern{"s_scale score_scale scores_scale logit_scale qk_scale softmax_scale_fp8", "score_scale", 288,
                 Port::state, unknown},
    StatePattern{"prob_scale p_scale", "prob_scale", 289, Port::state, unknown},
    StatePattern{"q query q_states query_states", "q", 290, Port::output, unknown},
    StatePattern{"k key k_states key_states", "k", 292, Port::output, unknown},
    StatePattern{"v value v_states value_states", "v", 294, Port::output, unknown},
    StatePattern{"k_cache key_cache k_codes k_fp8 k_quant k_q", "k_cache", 300, Port::state, unknown},
    StatePattern{"v_cache value_cache v_codes v_fp8 v_quant v_q", "v_cache", 302, Port::state, unknown},
    StatePattern{"kv_cache", "kv_cache", 304, Port::state, unknown},
    StatePattern{"k_read k_dequant k_dq key_dequant k_deq", "k_read", 320, Port::output, unknown},
    StatePattern{"v_read v_dequant v_dq value_dequant v_deq", "v_read", 322, Port::output, unknown},
    StatePattern{"mask attention_mask attn_mask causal_mask KQ_mask", "mask", 330, Port::state, unknown},
    StatePattern{"scores attn_scores attention_scores qk kq attn_logits", "scores", 340, Port::output, unknown},
    StatePattern{"scores_codes scores_fp8 scores_q", "scores_codes", 344, Port::state, unknown},
    StatePattern{"row_max scores_max m_i softmax_max", "row_max", 350, Port::output, unknown},
    StatePattern{"softmax_lse lse row_sum l_i softmax_sum", "lse", 352, Port::output, unknown},
    StatePattern{"probs attn_probs attention_probs attn_weights attention_weights p", "probs", 360, Port::output,
                 softmax},
    StatePattern{"attn_out attn_output context context_layer kqv_out kqv", "attn_out", 380, Port::output, attention},
    StatePattern{"residual resid hidden_states hidden hidden_state", "resid", 0, Port::output, residual},
    StatePattern{"router_logits gate_logits", "router_logits", 522, Port::output, unknown},
    StatePattern{"router_scores scores_for_choice router_probs", "router_scores", 524, Port::output, unknown},
    StatePattern{"e_score_correction_bias correction_bias router_bias", "router_bias", 521, Port::state, unknown},
    StatePattern{"topk_weights router_weights expert_weights routing_weights top_k_weights", "router_weights", 530,
                 Port::output, router},
    StatePattern{"topk_ids topk_indices expert_ids selected_experts top_k_index", "router_ids", 528, Port::output,
                 unknown},
    StatePattern{"ssm_state recurrent_state temporal_state conv_state state", "state", 310, Port::state, unknown},
    StatePattern{"block_table block_tables", "block_table", 312, Port::state, unknown},
    StatePattern{"slot_mapping slots", "slot_mapping", 314, Port::state, unknown},
    StatePattern{"seq_lens context_lens seqlens seq_len", "seq_lens", 316, Port::state, unknown},
    StatePattern{"input_ids tokens token_ids prompt_token_ids prompt_ids", "tokens", kBeforeLayers, Port::state,
                 unknown},
    StatePattern{"positions position_ids", "positions", kBeforeLayers + 1, Port::state, unknown},
    StatePattern{"logits next_token_logits", "logits", kAfterLayers + 20, Port::output, linear},
    StatePattern{
        "next_token next_tokens next_token_id next_token_ids sampled sampled_token_ids output_ids output_tokens "
        "generated generated_ids token argmax sampled_tokens",
        "sampled", kAfterLayers + 40, Port::output, sampler},
};

}  // namespace

std::span<const ModulePattern> layer_modules() { return kLayerModules; }
std::span<const ModulePattern> outer_modules() { return kOuterModules; }
std::span<const StatePattern> state_tensors() { return kStateTensors; }

}  // namespace nanscope
