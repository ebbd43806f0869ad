#pragma once
#include "instrument/model/families/decoder.h"

/// What Gemma 2 and Gemma 3 share.
namespace nanscope {

/// Norms around each branch, gated tanh GELU, scaled embedding, softcaps with defaults where their keys are missing.
void read_gemma(ConfigReader& config, ModelSpec& spec, double attention_softcap, double logit_softcap);

inline constexpr WeightRule kGemmaGlobals[] = {{"embed", "model.embed_tokens"},
                                               {.ours = "final_norm", .theirs = "model.norm", .offset = 1},
                                               {"lm_head", "lm_head"}};

/// The norms of Q and K are Gemma 3's alone.
inline constexpr WeightRule kGemmaParts[] = {
    {.ours = "attn_norm", .theirs = "input_layernorm", .offset = 1},
    {.ours = "attn_post_norm", .theirs = "post_attention_layernorm", .offset = 1},
    {.ours = "mlp_norm", .theirs = "pre_feedforward_layernorm", .offset = 1},
    {.ours = "mlp_post_norm", .theirs = "post_feedforward_layernorm", .offset = 1},
    {"q_proj", "self_attn.q_proj"},
    {"k_proj", "self_attn.k_proj"},
    {"v_proj", "self_attn.v_proj"},
    {"o_proj", "self_attn.o_proj"},
    {"gate_proj", "mlp.gate_proj"},
    {"up_proj", "mlp.up_proj"},
    {"down_proj", "mlp.down_proj"},
    {.ours = "q_norm", .theirs = "self_attn.q_norm", .offset = 1},
    {.ours = "k_norm", .theirs = "self_attn.k_norm", .offset = 1}};

}  // namespace nanscope
