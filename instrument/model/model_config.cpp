#include "instrument/model/model_config.h"

#include <algorithm>
#include <cmath>

namespace nanscope {

double rope_stretch(const RopeConfig& rope) {
  if (rope.scaling != RopeScaling::dynamic && rope.scaling != RopeScaling::dynamic_unguarded) return 1;
  if (rope.scaling == RopeScaling::dynamic && rope.served <= rope.trained) return 1;
  return rope.factor * static_cast<double>(rope.served) / static_cast<double>(rope.trained) - (rope.factor - 1);
}

namespace {

bool names(const std::vector<std::int64_t>& layers, std::int64_t layer) {
  return std::find(layers.begin(), layers.end(), layer) != layers.end();
}

}  // namespace

bool is_recurrent(const ModelConfig& model, std::int64_t layer) { return names(model.recurrent_layers, layer); }

bool is_delta(const ModelConfig& model) { return model.delta_key_heads > 0; }

std::int64_t state_width(const ModelConfig& model) {
  if (!is_delta(model)) return model.width;
  const std::int64_t keys = model.delta_key_heads * model.delta_key_dim;
  const std::int64_t values = model.delta_value_heads * model.delta_value_dim;
  return (model.delta_taps - 1) * (2 * keys + values) + model.delta_key_dim * values;
}

bool is_rotary(const ModelConfig& model, std::int64_t layer) {
  return model.positions == 0 && !names(model.unrotated_layers, layer);
}

std::int64_t window_of(const ModelConfig& model, std::int64_t layer) {
  return names(model.full_layers, layer) ? 0 : model.window;
}

bool has_experts(const ModelConfig& model, std::int64_t layer) {
  return model.experts > 0 && !names(model.dense_layers, layer);
}

bool norms_before(const ModelConfig& model) {
  return model.norm_placement == NormPlacement::pre || model.norm_placement == NormPlacement::sandwich;
}

bool norms_before_mlp(const ModelConfig& model) {
  return norms_before(model) && !(model.parallel && model.shared_norm);
}

bool norms_after(const ModelConfig& model) { return model.norm_placement != NormPlacement::pre; }

bool is_latent(const ModelConfig& model) { return model.kv_rank > 0; }

std::int64_t value_dim(const ModelConfig& model) { return model.value_dim > 0 ? model.value_dim : model.head_dim; }

std::int64_t mix_width(const ModelConfig& model) { return model.heads * value_dim(model); }

std::int64_t expert_width(const ModelConfig& model) {
  return model.expert_width > 0 ? model.expert_width : model.mlp_width;
}

float attention_scale(const ModelConfig& model, std::int64_t layer) {
  const float scale = model.attention_scale > 0 ? static_cast<float>(model.attention_scale)
                                                : 1.0F / std::sqrt(static_cast<float>(model.head_dim));
  return model.scale_by_layer ? scale / static_cast<float>(layer + 1) : scale;
}

}  // namespace nanscope
