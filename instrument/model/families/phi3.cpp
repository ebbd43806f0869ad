/// Phi-3 and Phi-4-mini (transformers/models/phi3): fused projections, LongRoPE, partial rotation.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_phi3(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.norm_eps = 1e-5});
  read_window(config, spec, 0);
  config.only_text("hidden_act", "silu");
  config.only("attention_bias", false);
  config.ignore({"embd_pdrop", "resid_pdrop"});
  return config.status();
}

constexpr WeightRule kPhi3Parts[] = {{"attn_norm", "input_layernorm"},
                                     {"q_proj", "self_attn.qkv_proj", WeightPart::q},
                                     {"k_proj", "self_attn.qkv_proj", WeightPart::k},
                                     {"v_proj", "self_attn.qkv_proj", WeightPart::v},
                                     {"o_proj", "self_attn.o_proj"},
                                     {"mlp_norm", "post_attention_layernorm"},
                                     {"gate_proj", "mlp.gate_up_proj", WeightPart::gate},
                                     {"up_proj", "mlp.gate_up_proj", WeightPart::up},
                                     {"down_proj", "mlp.down_proj"}};

}  // namespace

extern const ModelFamily family_phi3;
const ModelFamily family_phi3{.name = "phi3",
                              .model_types = "phi3",
                              .read = read_phi3,
                              .layers = "model.layers.",
                              .base = "model.",
                              .globals = kDecoderGlobals,
                              .parts = kPhi3Parts};

}  // namespace nanscope
