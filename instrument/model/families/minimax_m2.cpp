/// MiniMax-M2 (transformers/models/minimax_m2): norms on the whole of Q and K, a partial rotation, experts by sigmoid
/// whose choice has a bias.
#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

Status read_minimax_m2(ConfigReader& config, ModelSpec& spec) {
  ModelConfig& model = spec.model;
  const double rotary = config.number("rotary_dim", 0, 0, 4096);
  const double head = config.number("head_dim", 128, 2, 4096);
  read_decoder(config, spec,
               {.rope_base = 5e6, .kv_heads = 8, .head_dim = 128, .partial_rotary = rotary > 0 ? rotary / head : 1});
  model.qk_norm = true;
  model.qk_norm_over = QkNormOver::projection;
  if (config.has("qk_norm_type")) config.only_text("qk_norm_type", "per_layer");
  config.only("use_qk_norm", true);
  read_experts(config, spec, 8, true);
  model.experts = config.integer("num_local_experts", 256, 1, 1024);
  model.expert_width = model.mlp_width;
  spec.moe.score = kernels::RouterScore::sigmoid;
  spec.moe.bias = true;
  config.only_text("hidden_act", "silu");
  config.ignore({"router_jitter_noise"});
  return config.status();
}

constexpr WeightRule kMinimaxM2Experts[] = {{"router", "block_sparse_moe.gate"},
                                            {"router", "block_sparse_moe"},
                                            {"router", "mlp.gate"},
                                            {"router", "mlp"},
                                            {"experts.gate_proj", "block_sparse_moe.experts.{}.w1"},
                                            {"experts.up_proj", "block_sparse_moe.experts.{}.w3"},
                                            {"experts.down_proj", "block_sparse_moe.experts.{}.w2"}};
constexpr auto kMinimaxM2Parts =
    joined(kNormsBefore, kAttention, kNormsOfQueryAndKey, kMinimaxM2Experts, kStackedExperts);

}  // namespace

extern const ModelFamily family_minimax_m2;
const ModelFamily family_minimax_m2{.name = "minimax_m2",
                                    .model_types = "minimax_m2",
                                    .read = read_minimax_m2,
                                    .layers = "model.layers.",
                                    .base = "model.",
                                    .globals = kDecoderGlobals,
                                    .parts = kMinimaxM2Parts};

}  // namespace nanscope
