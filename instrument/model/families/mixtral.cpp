/// Mixtral (transformers/models/mixtral): Mistral with experts by softmax.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_mixtral(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.norm_eps = 1e-5, .rope_base = 1e6, .kv_heads = 8});
  read_window(config, spec, 0);
  read_experts(config, spec, 2, true);
  spec.model.experts = config.integer("num_local_experts", 8, 1, 256);
  config.only_text("hidden_act", "silu");
  config.ignore({"router_jitter_noise"});  // of training
  return config.status();
}

constexpr WeightRule kMixtralParts[] = {{"attn_norm", "input_layernorm"},
                                        {"q_proj", "self_attn.q_proj"},
                                        {"k_proj", "self_attn.k_proj"},
                                        {"v_proj", "self_attn.v_proj"},
                                        {"o_proj", "self_attn.o_proj"},
                                        {"mlp_norm", "post_attention_layernorm"},
                                        {"router", "block_sparse_moe.gate"},
                                        {"experts.gate_proj", "block_sparse_moe.experts.{}.w1"},
                                        {"experts.up_proj", "block_sparse_moe.experts.{}.w3"},
                                        {"experts.down_proj", "block_sparse_moe.experts.{}.w2"},
                                        {"router", "mlp.gate"},
                                        kStackedGate,
                                        kStackedUp,
                                        kStackedDown};

}  // namespace

extern const ModelFamily family_mixtral;
const ModelFamily family_mixtral{.name = "mixtral",
                                 .model_types = "mixtral",
                                 .read = read_mixtral,
                                 .layers = "model.layers.",
                                 .base = "model.",
                                 .globals = kDecoderGlobals,
                                 .parts = kMixtralParts};

}  // namespace nanscope
