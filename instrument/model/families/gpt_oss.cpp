/// gpt-oss (transformers/models/gpt_oss): attention sinks, a window on every other layer, YaRN, and experts with biases
/// behind a clamped SwiGLU, all in two tensors a layer, gate and up in turns.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_gpt_oss(ConfigReader& config, ModelSpec& spec) {
  ModelConfig& model = spec.model;
  const bool scaled = config.has("rope_parameters") || config.has("rope_scaling");
  read_decoder(config, spec, {.norm_eps = 1e-5, .rope_base = 150000, .kv_heads = 8, .head_dim = 64});
  if (!scaled) {  // as the configuration class has it
    spec.rope.scaling = RopeScaling::yarn;
    spec.rope.factor = 32;
    spec.rope.trained = 4096;
    spec.rope.truncate = false;
  }
  const bool bias = config.flag("attention_bias", true);
  model.qkv_bias = bias;
  model.o_bias = bias;
  model.attention_sinks = true;
  read_window(config, spec, 128);
  read_layer_types(config, spec, [](std::int64_t layer) { return layer % 2 != 0; });
  if (model.window == 0) model.full_layers.clear();
  model.mlp = kernels::ActivationKind::swiglu_clamped;
  model.swiglu_alpha = config.number("swiglu_alpha", 1.702);
  model.swiglu_limit = config.number("swiglu_limit", 7);
  if (model.swiglu_limit <= 0) config.reject("swiglu_limit", "expected more than 0");
  model.mlp_bias = true;
  model.router_bias = true;
  read_experts(config, spec, 4, true);
  spec.moe.score = kernels::RouterScore::softmax_of_chosen;
  model.experts = config.integer("num_local_experts", 128, 1, 256);
  if (config.integer("experts_per_token", model.experts_per_token) != model.experts_per_token) {
    config.reject("experts_per_token", "another number than num_experts_per_tok");
  }
  config.only_text("hidden_act", "silu");
  config.ignore({"initial_context_length"});  // original_max_position_embeddings, which the rotary settings have
  return config.status();
}

constexpr WeightRule kGptOssParts[] = {
    {"attn_norm", "input_layernorm"},
    {"q_proj", "self_attn.q_proj"},
    {"k_proj", "self_attn.k_proj"},
    {"v_proj", "self_attn.v_proj"},
    {"o_proj", "self_attn.o_proj"},
    {"attention", "self_attn"},  // its sinks
    {"mlp_norm", "post_attention_layernorm"},
    {"router", "mlp.router"},
    {.ours = "experts.gate_proj",
     .theirs = "mlp.experts.gate_up_proj",
     .part = WeightPart::gate_in_turns,
     .transposed = true,
     .stacked = true},
    {.ours = "experts.up_proj",
     .theirs = "mlp.experts.gate_up_proj",
     .part = WeightPart::up_in_turns,
     .transposed = true,
     .stacked = true},
    {.ours = "experts.down_proj", .theirs = "mlp.experts.down_proj", .transposed = true, .stacked = true}};

}  // namespace

extern const ModelFamily family_gpt_oss;
const ModelFamily family_gpt_oss{.name = "gpt_oss",
                                 .model_types = "gpt_oss",
                                 .read = read_gpt_oss,
                                 .layers = "model.layers.",
                                 .base = "model.",
                                 .globals = kDecoderGlobals,
                                 .parts = kGptOssParts};

}  // namespace nanscope
