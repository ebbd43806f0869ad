#include "instrument/model/families/gemma.h"

#include <cmath>

namespace nanscope {

void read_gemma(ConfigReader& config, ModelSpec& spec, double attention_softcap, double logit_softcap) {
  spec.model.norm_placement = NormPlacement::sandwich;
  spec.model.mlp = kernels::ActivationKind::geglu_tanh;
  spec.model.embedding_scale = std::sqrt(static_cast<double>(spec.model.width));
  spec.model.attention_scale = 1 / std::sqrt(config.number("query_pre_attn_scalar", 256, 1e-3));
  read_attention_bias(config, spec);
  const auto softcap = [&](const char* key, double otherwise) {
    return config.number(key, config.states(key) ? 0 : otherwise);
  };
  spec.model.attention_softcap = softcap("attn_logit_softcapping", attention_softcap);
  spec.model.logit_softcap = softcap("final_logit_softcapping", logit_softcap);
  config.only_text("hidden_activation", "gelu_pytorch_tanh");
  config.only("use_bidirectional_attention", false);
  config.ignore({"hidden_act"});  // of early files, which hidden_activation overrules
}

}  // namespace nanscope
