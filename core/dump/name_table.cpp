#include "core/dump/name_table.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace nanscope {
namespace {

using enum OpKind;

constexpr std::array kLayerModules = {
    // Multi-token prediction of DeepSeek V3 and Qwen3-Next: a layer with a head of its own before it.
    ModulePattern{"enorm pre_fc_norm_embedding", "mtp_embed_norm", layer_norm, 20, "x", "norm_out"},
    ModulePattern{"hnorm pre_fc_norm_hidden", "mtp_hidden_norm", layer_norm, 22, "resid", "norm_out"},
    ModulePattern{"eh_proj ^mtp.fc ^model.mtp.fc", "mtp_proj", gemm, 24, "x", "resid"},
    ModulePattern{"pre_ln", "pre_norm", layer_norm, 60, "resid", "norm_out"},
    ModulePattern{"input_layernorm ln_1 ln1 attention_norm attn_norm norm1 layernorm_before layer_norm1 "
                  "self_attn_layer_norm pre_attn_norm pre_attention_layernorm norm_1 ln_attn",
                  "attn_norm", layer_norm, 100, "resid", "norm_out"},
    ModulePattern{"qkv_proj c_attn query_key_value qkv wqkv in_proj attn_qkv wqkv layernorm_qkv linear_qkv "
                  "fused_qkv_a_proj_with_mqa",
                  "qkv_proj", gemm, 200, "x", "qkv"},
    ModulePattern{"in_proj_qkvz in_proj_qkv", "gdn_qkv_proj", gemm, 200, "x", "qkv"},
    ModulePattern{"in_proj_ba", "gdn_gate_proj", gemm, 201, "x", "gdn_gates"},
    ModulePattern{"in_proj_z", "gdn_z_proj", gemm, 201, "x", "gdn_z"},
    ModulePattern{"in_proj_b", "gdn_b_proj", gemm, 201, "x", "gdn_b"},
    ModulePattern{"in_proj_a", "gdn_a_proj", gemm, 201, "x", "gdn_a"},
    ModulePattern{"q_a_proj", "q_a_proj", gemm, 200, "x", "q_a"},
    ModulePattern{"q_a_layernorm q_a_norm", "q_a_norm", layer_norm, 202, "q_a", "norm_out"},
    ModulePattern{"q_proj q_b_proj wq query attn_q self_attention.q enc_dec_attention.q to_q qcur query_proj", "q_proj",
                  gemm, 204, "x", "q"},
    ModulePattern{"kv_a_proj_with_mqa kv_a_proj", "kv_a_proj", gemm, 206, "x", "kv_a"},
    ModulePattern{"kv_a_layernorm kv_a_norm", "kv_a_norm", layer_norm, 208, "kv_a", "norm_out"},
    ModulePattern{"kv_b_proj", "kv_b_proj", gemm, 210, "x", "kv"},
    ModulePattern{"k_proj wk key attn_k self_attention.k enc_dec_attention.k to_k kcur key_proj", "k_proj", gemm, 212,
                  "x", "k"},
    ModulePattern{"v_proj wv value attn_v self_attention.v enc_dec_attention.v to_v vcur value_proj", "v_proj", gemm,
                  214, "x", "v"},
    ModulePattern{"q_norm q_layernorm attn_q_norm", "q_norm", layer_norm, 220, "q", "norm_out"},
    ModulePattern{"k_norm k_layernorm attn_k_norm", "k_norm", layer_norm, 222, "k", "norm_out"},
    ModulePattern{"rotary_emb rope rotary rotary_pos_emb rotary_fn", "rope", rope, 230, "x", "rope"},
    // A gated recurrence in the place of attention.
    ModulePattern{"recurrent_in", "recurrent_in", gemm, 202, "x", "out"},
    ModulePattern{"recurrent rg_lru", "recurrent", recurrent_scan, 311, "x", "out"},
    ModulePattern{"recurrent_out", "recurrent_out", gemm, 420, "x", "out"},
    ModulePattern{"linear_attn.conv1d mixer.conv1d conv1d", "gdn_conv", dumped, 240, "qkv", "gdn_conv"},
    ModulePattern{"softmax attn_softmax attn.softmax kq_soft_max soft_max", "softmax", softmax, 360, "scores", "probs"},
    ModulePattern{"self_attn.attn attn.attn core_attn core_attention inner_attn sdpa attn_fn attention_interface "
                  "self_attn.attention impl attn_mha attn_mqa self_attn.mla_attn attention.attention",
                  "attention", attention, 380, "q", "attn_out"},
    ModulePattern{"inner_norm attn_sub_norm sub_norm inner_attn_ln attn_ln self_attn.norm linear_attn.norm",
                  "inner_norm", layer_norm, 400, "attn_out", "norm_out"},
    ModulePattern{
        "o_proj wo out_proj attn_output attn.c_proj attention.dense self_attention.dense self_attn.dense to_out "
        "to_out.0 "
        "attention.output.dense attn.proj attn_out_proj linear_proj self_attention.proj o_b_proj attn_o dense_proj "
        "self_attention.o enc_dec_attention.o",
        "o_proj", gemm, 420, "attn_out", "out"},
    ModulePattern{"^self_attn ^attn ^attention ^self_attention ^linear_attn ^mixer", "self_attn", block, 440, "x",
                  "out", 190},
    ModulePattern{"attention.output.layer_norm attention.layer_norm attn_post_norm post_attn_layernorm "
                  "post_self_attn_layernorm ln1_post",
                  "attn_post_norm", layer_norm, 450, "x", "norm_out"},
    ModulePattern{"attn_residual residual1 resid_attn post_attn_residual ffn_inp attn_add resid_mid hidden_after_attn "
                  "post_attn_hidden",
                  "attn_residual", residual_add, 460, "x", "resid"},
    // Before the MLP in most families, behind attention in Gemma 2 and OLMo 2: what else the layer has tells.
    ModulePattern{"post_attention_layernorm post_attn_norm post_attention_norm", "post_attention_norm", layer_norm, 500,
                  "resid", "norm_out"},
    ModulePattern{"ln_2 ln2 ffn_norm mlp_norm norm2 layernorm_after layer_norm2 "
                  "pre_feedforward_layernorm final_layer_norm pre_mlp_layernorm pre_ff_layernorm post_layernorm norm_2 "
                  "ln_mlp",
                  "mlp_norm", layer_norm, 500, "resid", "norm_out"},
    ModulePattern{"mlp.gate block_sparse_moe.gate moe.gate feed_forward.gate mlp.router moe.router router ffn_gate_inp "
                  "gate.router mlp.gate.wg moe_gate router.layer",
                  "router", gemm, 520, "x", "router_logits"},
    ModulePattern{"shared_expert_gate", "shared_expert_gate", gemm, 526, "x", "shared_gate"},
    ModulePattern{"mlp.topk moe.topk topk", "topk", dumped, 530, "router_logits", "router_weights"},
    ModulePattern{"gate_up_proj fused_gate_up w13 gate_up fused_fc ffn_gate_up input_linear", "gate_up_proj", gemm, 600,
                  "x", "gate_up"},
    ModulePattern{"gate_proj w1 ffn_gate dense_relu_dense.wi_0", "gate_proj", gemm, 600, "x", "gate"},
    ModulePattern{"up_proj w3 ffn_up c_fc fc1 mlp_fc dense_h_to_4h intermediate.dense mlp.lin1 linear_fc1 "
                  "mlp.fc_in dense_relu_dense.wi dense_relu_dense.wi_1",
                  "up_proj", gemm, 610, "x", "up"},
    ModulePattern{
        "act_fn act activation activation_fn gelu silu act_and_mul ffn_act ffn_silu "
        "intermediate_act_fn intermediate.intermediate_act_fn mlp.intermediate mlp.hidden intermediate ffn_gate_par",
        "act", activation, 620, "gate", "act"},
    ModulePattern{"down_proj output_linear w2 ffn_down mlp.c_proj fc2 dense_4h_to_h mlp.output.dense mlp.lin2 "
                  "linear_fc2 dense_relu_dense.wo mlp.fc_out output.dense mlp.proj mlp.down_proj",
                  "down_proj", gemm, 640, "act", "mlp_out"},
    ModulePattern{"experts shared_expert shared_experts switch_mlp", "experts", block, 660, "x", "mlp_out", 590},
    ModulePattern{"^mlp ^feed_forward ^ffn ^block_sparse_moe ^moe ffn_out", "mlp", block, 680, "x", "mlp_out", 510},
    ModulePattern{"post_feedforward_layernorm post_mlp_layernorm post_ffw_norm output.layer_norm mlp_post_norm "
                  "post_ffn_norm ffn_post_norm ln2_post",
                  "mlp_post_norm", layer_norm, 690, "x", "norm_out"},
    ModulePattern{"mlp_residual residual2 resid_mlp post_mlp_residual l_out ffn_add hidden_after_mlp post_mlp_hidden "
                  "resid_post resid_out block_out layer_out",
                  "mlp_residual", residual_add, 700, "x", "resid"},
    ModulePattern{"branch_sum attn_plus_mlp parallel_sum branches", "branch_sum", residual_add, 695, "x", "out"},
};

constexpr std::array kOuterModules = {
    ModulePattern{"patch_embed patch_embed.proj patch_embedding patch_embeddings patch_embeddings.projection "
                  "embeddings.patch_embedding visual.conv1 vision_model.conv1",
                  "patch_embed", embedding, kBeforeLayers + 10, "x", "embed"},
    ModulePattern{
        "embed_tokens wte tok_embeddings word_embeddings token_embd inp_embd embedding embeddings embed tok_embed "
        "tok_emb embed_in vocab_embedding",
        "embed", embedding, kBeforeLayers + 20, "tokens", "embed"},
    ModulePattern{
        "wpe position_embeddings position_embedding pos_embed embed_positions position_embeds pos_emb pos_embd "
        "position_embd",
        "pos_embed", embedding, kBeforeLayers + 30, "x", "embed"},
    ModulePattern{"embed_scaled inputs_embeds_scaled inp_scaled", "embed_scaled", embedding, kBeforeLayers + 29, "x",
                  "embed"},
    ModulePattern{"hidden_states_0 embed_plus_pos embed_sum inp_l", "embed_sum", residual_add, kBeforeLayers + 32, "x",
                  "resid"},
    ModulePattern{"token_type_embeddings", "type_embed", embedding, kBeforeLayers + 31, "x", "embed"},
    ModulePattern{"pre_layrnorm pre_layernorm embeddings.layer_norm embeddings.norm layernorm_embedding "
                  "word_embeddings_layernorm embed_norm ln_embed embed_layernorm",
                  "pre_norm", layer_norm, kBeforeLayers + 34, "embed", "norm_out"},
    ModulePattern{"rotary_emb rotary_pos_emb model.rotary_emb", "rope", rope, kBeforeLayers + 36, "x", "rope"},
    ModulePattern{"ln_q merger.ln_q merger.norm", "projector_norm", layer_norm, kBeforeLayers + 38, "x", "norm_out"},
    ModulePattern{"linear_1 merger.mlp.0 merger.linear_fc1", "projector_up", gemm, kBeforeLayers + 39, "x", "up"},
    ModulePattern{"linear_2 merger.mlp.2 merger.linear_fc2", "projector_down", gemm, kBeforeLayers + 39, "act", "out"},
    ModulePattern{"multi_modal_projector mm_projector visual.merger merger", "projector", gemm, kBeforeLayers + 40, "x",
                  "embed"},
    ModulePattern{"model.norm ln_f final_layernorm final_norm output_norm result_norm norm transformer.norm_f norm_f "
                  "shared_head.norm post_trunk_norm "
                  "layernorm post_layernorm layer_norm final_layer_norm",
                  "final_norm", layer_norm, kAfterLayers + 10, "resid", "norm_out"},
    ModulePattern{"^model ^transformer ^language_model ^model.language_model ^language_model.model", "model", block,
                  kAfterLayers + 15, "x", "out", kBeforeLayers + 2},
    ModulePattern{"lm_head embed_out head result_output output shared_head.head classifier unembed", "lm_head", gemm,
                  kAfterLayers + 20, "norm_out", "logits"},
    ModulePattern{"logits_processor", "logits_processor", block, kAfterLayers + 30, "x", "logits"},
    ModulePattern{"sampler argmax sample", "sampler", argmax, kAfterLayers + 40, "logits", "sampled"},
};

constexpr std::array kStateTensors = {
    StatePattern{"weight w packed_weight weight_packed a_log qweight", "weight", 0, Port::state},
    StatePattern{"bias dt_bias b", "bias", 0, Port::state},
    StatePattern{"inv_freq freqs_cis cos_cached sin_cached cos_sin_cache rope_freqs", "inv_freq", 228, Port::state},
    StatePattern{"cos rotary_cos rope_cos", "cos", 229, Port::state},
    StatePattern{"sin rotary_sin rope_sin", "sin", 229, Port::state},
    StatePattern{"q query q_states query_states queries q_pre_rope q_before_rope", "q", 216, Port::output},
    StatePattern{"k key k_states key_states keys k_pre_rope k_before_rope", "k", 217, Port::output},
    StatePattern{"v value v_states value_states values", "v", 218, Port::output},
    StatePattern{"qkv mixed_qkv", "qkv", 203, Port::output},
    StatePattern{
        "q_rot q_rope q_roped q_post_rope q_after_rope q_rotated q_embed query_rot rotated_q rope_q query_rope",
        "q_rot", 290, Port::output, rope},
    StatePattern{"k_rot k_rope k_roped k_post_rope k_after_rope k_rotated k_embed key_rot rotated_k rope_k key_rope",
                 "k_rot", 292, Port::output, rope},
    StatePattern{"q_normed q_norm_out", "q_normed", 220, Port::output, layer_norm},
    StatePattern{"k_normed k_norm_out", "k_normed", 222, Port::output, layer_norm},
    StatePattern{"k_cache key_cache cache_k cached_k past_k past_key cached_key", "k_cache", 300, Port::state},
    StatePattern{"v_cache value_cache cache_v cached_v past_v past_value cached_value", "v_cache", 302, Port::state},
    StatePattern{"kv_cache paged_kv_cache kv kv_cache_tensor cache cache_kv", "kv_cache", 304, Port::state},
    StatePattern{"k_to_cache k_cpy key_stored k_write k_cache_write k_stored", "k_new", 298, Port::output},
    StatePattern{"v_to_cache v_cpy value_stored v_write v_cache_write v_stored", "v_new", 299, Port::output},
    StatePattern{"sinks attn_sinks", "sinks", 331, Port::state},
    StatePattern{"k_read k_gathered k_deq", "k_read", 320, Port::output},
    StatePattern{"v_read v_gathered v_deq", "v_read", 322, Port::output},
    StatePattern{"mask attention_mask attn_mask causal_mask kq_mask attn_bias attention_bias padding_mask", "mask", 330,
                 Port::state},
    StatePattern{"scores attn_scores attention_scores qk kq kq_scaled attn_logits s score attention_logits", "scores",
                 340, Port::output},
    StatePattern{"row_max scores_max m_i softmax_max", "row_max", 350, Port::output},
    StatePattern{"softmax_lse lse row_sum l_i softmax_sum", "lse", 352, Port::output},
    StatePattern{"probs attn_probs attention_probs attn_weights attention_weights p prob attn_prob softmax_out",
                 "probs", 360, Port::output, softmax},
    StatePattern{
        "attn_out attn_output context context_layer kqv_out kqv attention_out attn_ctx ctx attn_context attn_mix "
        "attn_output_before_proj",
        "attn_out", 380, Port::output, attention},
    StatePattern{"residual resid hidden_states hidden hidden_state residual_stream resid_post", "resid", 0,
                 Port::output, residual_add},
    StatePattern{"router_logits gate_logits moe_logits", "router_logits", 520, Port::output},
    StatePattern{"router_scores router_probs routing_scores gate_scores gate_probs moe_probs", "router_scores", 524,
                 Port::output},
    StatePattern{"scores_for_choice router_scores_biased choice_scores scores_biased", "router_choice", 525,
                 Port::output},
    StatePattern{"e_score_correction_bias correction_bias router_bias", "router_bias", 521, Port::state},
    StatePattern{"topk_weights router_weights expert_weights routing_weights top_k_weights topk_w gate_weights",
                 "router_weights", 530, Port::output, route},
    StatePattern{"topk_scores", "router_raw", 529, Port::output},
    StatePattern{
        "topk_ids topk_indices expert_ids selected_experts top_k_index topk_idx topk_index top_k_indices expert_index",
        "router_ids", 528, Port::output},
    StatePattern{"gate gate_out", "gate", 600, Port::output},
    StatePattern{"up up_out", "up", 610, Port::output},
    StatePattern{"act act_out swiglu gated", "act", 620, Port::output, activation},
    StatePattern{"down down_out", "mlp_out", 640, Port::output},
    StatePattern{"ssm_state recurrent_state temporal_state conv_state state", "state", 310, Port::state},
    StatePattern{"block_table block_tables page_table kv_indices", "block_table", 312, Port::state},
    StatePattern{"slot_mapping slots slot_map slot_ids cache_slots", "slot_mapping", 314, Port::state},
    StatePattern{"seq_lens context_lens seqlens seq_len kv_lens cache_seqlens context_len kv_seq_lens", "seq_lens", 316,
                 Port::state},
    StatePattern{"query_start_loc cu_seqlens cu_seqlens_q cu_seq_lens qo_indptr query_start", "query_start_loc", 316,
                 Port::state},
    StatePattern{"query_lens q_lens num_scheduled_tokens extend_lens", "query_lens", 316, Port::state},
    StatePattern{"past_length past_len past_seen_tokens past_key_values_length num_computed_tokens", "past_length", 316,
                 Port::state},
    StatePattern{"request_ids req_ids request_indices seq_ids sequence_ids", "request_ids", 316, Port::state},
    StatePattern{"block_size page_size", "block_size", 316, Port::state},
    StatePattern{"input_ids tokens token_ids prompt_token_ids prompt_ids ids inp_tokens", "tokens", kBeforeLayers,
                 Port::state},
    StatePattern{"positions position_ids pos_ids position cache_position inp_pos", "positions", kBeforeLayers + 1,
                 Port::state},
    StatePattern{"temperature temperatures", "temperature", kAfterLayers + 21, Port::state},
    StatePattern{"logits next_token_logits lm_head_out", "logits", kAfterLayers + 20, Port::output, gemm},
    StatePattern{"last_hidden pruned_hidden_states sample_hidden_states last_hidden_state", "last_hidden",
                 kAfterLayers + 12, Port::output},
    StatePattern{
        "next_token next_tokens next_token_id next_token_ids sampled sampled_token_ids output_ids output_tokens "
        "generated generated_ids token argmax sampled_tokens sampled_token output_token_ids",
        "sampled", kAfterLayers + 40, Port::output, argmax},
};

constexpr std::array kOuterStateTensors = {
    StatePattern{"logits_pre_softcap logits_before_softcap lm_head_raw raw_logits logits_raw", "raw_logits",
                 kAfterLayers + 19, Port::output},
    StatePattern{"scaled_logits", "scaled_logits", kAfterLayers + 32, Port::output},
    StatePattern{"logits_processed logits_after_processors sampling_logits logits_masked", "processed_logits",
                 kAfterLayers + 31, Port::output},
    StatePattern{"probs probabilities token_probs softmax sampling_probs final_probs", "token_probs", kAfterLayers + 34,
                 Port::output, token_softmax},
    StatePattern{"logprobs log_probs", "logprobs", kAfterLayers + 36, Port::output},
};

/// TransformerLens' hook points, and the modules and values that they are.
constexpr std::pair<std::string_view, std::string_view> kHooks[] = {
    {"hook_embed", "embed_tokens.output"},
    {"hook_pos_embed", "pos_embed.output"},
    {"hook_resid_pre", "input"},
    {"hook_resid_mid", "attn_residual"},
    {"hook_resid_post", "output"},
    {"hook_attn_out", "o_proj.output"},
    {"hook_mlp_out", "down_proj.output"},
    {"hook_q", "q"},
    {"hook_k", "k"},
    {"hook_v", "v"},
    {"hook_rot_q", "q_rot"},
    {"hook_rot_k", "k_rot"},
    {"hook_attn_scores", "scores"},
    {"hook_pattern", "probs"},
    {"hook_z", "attn_out"},
    {"hook_pre", "up_proj.output"},
    {"hook_pre_linear", "up_proj.output"},
    {"hook_post", "act.output"},
};

}  // namespace

std::string_view path_of_hook(std::string_view word) {
  const auto found =
      std::find_if(std::begin(kHooks), std::end(kHooks), [word](const auto& one) { return one.first == word; });
  return found == std::end(kHooks) ? word : found->second;
}

std::span<const ModulePattern> layer_modules() { return kLayerModules; }
std::span<const ModulePattern> outer_modules() { return kOuterModules; }
std::span<const StatePattern> state_tensors() { return kStateTensors; }
std::span<const StatePattern> outer_state_tensors() { return kOuterStateTensors; }

}  // namespace nanscope
