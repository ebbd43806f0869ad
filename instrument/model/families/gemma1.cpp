/// Gemma (transformers/models/gemma): gains of 1 + w, a scaled embedding, gated tanh GELU.
#include <cmath>

#include "instrument/model/families/gemma.h"

namespace nanscope {
namespace {

Status read_gemma1(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.kv_heads = 16, .head_dim = 256, .tied = true});
  spec.model.mlp = kernels::ActivationKind::geglu_tanh;
  spec.model.embedding_scale = std::sqrt(static_cast<double>(spec.model.width));
  read_attention_bias(config, spec);
  // Files say "gelu" and mean the tanh form (transformers/models/gemma/configuration_gemma.py).
  if (const std::string act = config.text("hidden_act", "gelu_pytorch_tanh");
      act != "gelu" && act != "gelu_pytorch_tanh") {
    config.reject("hidden_act", "only gelu_pytorch_tanh is supported");
  }
  config.only_text("hidden_activation", "gelu_pytorch_tanh");
  config.only("use_bidirectional_attention", false);
  return config.status();
}

constexpr WeightRule kGemma1Parts[] = {{.ours = "attn_norm", .theirs = "input_layernorm", .offset = 1},
                                       {.ours = "mlp_norm", .theirs = "post_attention_layernorm", .offset = 1},
                                       {"q_proj", "self_attn.q_proj"},
                                       {"k_proj", "self_attn.k_proj"},
                                       {"v_proj", "self_attn.v_proj"},
                                       {"o_proj", "self_attn.o_proj"},
                                       {"gate_proj", "mlp.gate_proj"},
                                       {"up_proj", "mlp.up_proj"},
                                       {"down_proj", "mlp.down_proj"}};

}  // namespace

extern const ModelFamily family_gemma1;
const ModelFamily family_gemma1{.name = "gemma1",
                                .model_types = "gemma",
                                .read = read_gemma1,
                                .layers = "model.layers.",
                                .base = "model.",
                                .globals = kGemmaGlobals,
                                .parts = kGemma1Parts};

}  // namespace nanscope
