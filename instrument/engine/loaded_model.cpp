#include "instrument/engine/loaded_model.h"

#include <fmt/format.h>

#include <span>
#include <stop_token>
#include <utility>

#include "instrument/engine/engine.h"
#include "instrument/engine/knobs.h"

namespace nanscope {
namespace {

using kernels::TensorView;

constexpr std::int64_t kPanel = 32;  // rows of a panel, as GemmArgs::packed has it

/// Panels of 32 rows, each transposed, the last one padded with zeros.
std::vector<float> panels_of(std::span<const float> weight, std::int64_t rows, std::int64_t columns) {
  const std::int64_t panels = (rows + kPanel - 1) / kPanel;
  std::vector<float> packed(static_cast<std::size_t>(panels * kPanel * columns), 0.0F);
  for (std::int64_t row = 0; row < rows; ++row) {
    float* panel = packed.data() + row / kPanel * kPanel * columns + row % kPanel;
    for (std::int64_t k = 0; k < columns; ++k) panel[k * kPanel] = weight[static_cast<std::size_t>(row * columns + k)];
  }
  return packed;
}

/// Loads weights in logical order; the first error is kept and everything after it is skipped.
class Loader {
 public:
  Loader(LoadedModel& model, kernels::Device& device, WeightSource& source, std::stop_token stop)
      : model_(model), device_(device), source_(source), stop_(std::move(stop)) {}

  const Weight* load(std::string name, std::int64_t rows, std::int64_t columns, bool pack) {
    if (status_ && stop_.stop_requested()) status_ = fail("stopped");
    if (!status_) return nullptr;
    Result<std::vector<float>> values = source_.tensor(name, rows, columns);
    if (values && values->size() != static_cast<std::size_t>(rows * columns)) {
      values = fail(fmt::format("weight '{}': expected {} x {} values, got {}", name, rows, columns, values->size()));
    }
    if (!values) {
      status_ = tl::unexpected(values.error());
      return nullptr;
    }
    Weight& weight = model_.weights.emplace_back();
    weight.name = std::move(name);
    weight.view = upload(*values, rows, columns);
    if (pack) {
      const std::vector<float> panels = panels_of(*values, rows, columns);
      weight.packed = upload(panels, static_cast<std::int64_t>(panels.size()) / kPanel, kPanel);
    }
    return &weight;
  }

  Affine norm(const std::string& name, std::int64_t columns) {
    Affine norm{load(name + ".weight", 1, columns, false), nullptr};
    if (model_.config.norm == kernels::NormKind::layer_norm) norm.bias = load(name + ".bias", 1, columns, false);
    return norm;
  }

  Affine linear(const std::string& name, std::int64_t out, std::int64_t in) {
    Affine linear{load(name + ".weight", out, in, true), nullptr};
    if (model_.config.bias) linear.bias = load(name + ".bias", 1, out, false);
    return linear;
  }

  Affine gain(const std::string& name, std::int64_t columns) { return {load(name, 1, columns, false), nullptr}; }

  const Status& status() const { return status_; }

 private:
  TensorView upload(std::span<const float> values, std::int64_t rows, std::int64_t columns) {
    if (!status_) return {};
    Result<kernels::Buffer> buffer = device_.allocate(values.size_bytes(), false);
    if (!buffer) {
      status_ = tl::unexpected(buffer.error());
      return {};
    }
    status_ = device_.upload(buffer->data(), std::as_bytes(values));
    model_.memory.push_back(*buffer);
    return {buffer->data(), Format::f32, rows, columns, columns};
  }

  LoadedModel& model_;
  kernels::Device& device_;
  WeightSource& source_;
  std::stop_token stop_;
  Status status_;
};

void load_attention(Loader& loader, const ModelConfig& model, const std::string& prefix, LayerWeights& layer) {
  const std::int64_t queries = model.heads * model.head_dim;
  const std::int64_t keys = model.kv_heads * model.head_dim;
  layer.q_proj = loader.linear(prefix + "q_proj", queries, model.width);
  layer.k_proj = loader.linear(prefix + "k_proj", keys, model.width);
  layer.v_proj = loader.linear(prefix + "v_proj", keys, model.width);
  if (model.qk_norm) {
    layer.q_norm = loader.gain(prefix + "q_norm.weight", model.head_dim);
    layer.k_norm = loader.gain(prefix + "k_norm.weight", model.head_dim);
  }
  if (model.inner_norm) layer.inner_norm = loader.norm(prefix + "inner_norm", queries);
  layer.o_proj = loader.linear(prefix + "o_proj", model.width, queries);
}

void load_recurrence(Loader& loader, const ModelConfig& model, const std::string& prefix, LayerWeights& layer) {
  layer.recurrent_in.weight = loader.load(prefix + "recurrent.in_proj.weight", model.width, model.width, true);
  layer.decay = loader.gain(prefix + "recurrent.decay", model.width);
  layer.recurrent_out.weight = loader.load(prefix + "recurrent.out_proj.weight", model.width, model.width, true);
}

MlpWeights load_mlp(Loader& loader, const ModelConfig& model, const std::string& prefix) {
  MlpWeights mlp;
  if (model.mlp == kernels::ActivationKind::swiglu) {
    mlp.gate_proj = loader.linear(prefix + "gate_proj", model.mlp_width, model.width);
  }
  mlp.up_proj = loader.linear(prefix + "up_proj", model.mlp_width, model.width);
  mlp.down_proj = loader.linear(prefix + "down_proj", model.width, model.mlp_width);
  return mlp;
}

void load_experts(Loader& loader, const ModelConfig& model, const std::string& prefix, LayerWeights& layer) {
  layer.router.weight = loader.load(prefix + "router.weight", model.experts, model.width, true);
  layer.router_bias = loader.gain(prefix + "router.e_score_correction_bias", model.experts);
  for (std::int64_t e = 0; e < model.experts; ++e) {
    layer.experts.push_back(load_mlp(loader, model, fmt::format("{}experts.{}.", prefix, e)));
  }
}

LayerWeights load_layer(Loader& loader, const ModelConfig& model, std::int64_t index) {
  const std::string prefix = fmt::format("layers.{}.", index);
  const bool before = model.norm_placement != NormPlacement::post;
  const bool after = model.norm_placement != NormPlacement::pre;
  LayerWeights layer;
  if (before) layer.attn_norm = loader.norm(prefix + "attn_norm", model.width);
  if (is_recurrent(model, index)) {
    load_recurrence(loader, model, prefix, layer);
  } else {
    load_attention(loader, model, prefix, layer);
  }
  if (after) layer.attn_post_norm = loader.norm(prefix + "attn_post_norm", model.width);
  if (before) layer.mlp_norm = loader.norm(prefix + "mlp_norm", model.width);
  if (model.experts > 0) {
    load_experts(loader, model, prefix, layer);
  } else {
    layer.mlp = load_mlp(loader, model, prefix);
  }
  if (after) layer.mlp_post_norm = loader.norm(prefix + "mlp_post_norm", model.width);
  return layer;
}

/// Knobs of the model that no weight depends on.
bool shapes_no_weight(std::string_view knob) { return knob == "model.rope_base"; }

}  // namespace

Result<std::shared_ptr<const LoadedModel>> load_model(const EngineConfig& config, kernels::Device& device,
                                                      WeightSource& source, std::int64_t vocabulary,
                                                      std::stop_token stop) {
  if (Status status = check(config); !status) return tl::unexpected(status.error());
  auto model = std::make_shared<LoadedModel>();
  model->config = config.model;
  model->vocabulary = vocabulary;
  model->device = &device;
  const std::int64_t patch_inputs = 3 * config.model.patch_size * config.model.patch_size;
  Loader loader(*model, device, source, std::move(stop));
  model->patch_embed = {loader.load("patch_embed.weight", config.model.width, patch_inputs, false),
                        loader.load("patch_embed.bias", 1, config.model.width, false)};
  model->embed.weight = loader.load("embed.weight", vocabulary, config.model.width, false);
  for (std::int64_t layer = 0; layer < config.model.layers && loader.status(); ++layer) {
    model->layers.push_back(load_layer(loader, config.model, layer));
  }
  model->final_norm = loader.norm("final_norm", config.model.width);
  model->lm_head.weight = loader.load("lm_head.weight", vocabulary, config.model.width, true);
  if (!loader.status()) return tl::unexpected(loader.status().error());
  return model;
}

bool fits(const LoadedModel& model, const EngineConfig& config) {
  EngineConfig loaded = config;
  loaded.model = model.config;
  for (const Knob& knob : knobs()) {
    if (knob.name.starts_with("model.") && !shapes_no_weight(knob.name) && knob.get(loaded) != knob.get(config)) {
      return false;
    }
  }
  return true;
}

}  // namespace nanscope
