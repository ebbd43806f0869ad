#include "instrument/engine/loaded_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <stop_token>
#include <utility>

#include "core/numbers/decode_span.h"
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

/// Whether products read such codes and scales as they are.
bool is_multiplied(const StoredWeight& stored) {
  const StoredMatrix& matrix = stored.matrix;
  if (!matrix.quantized() || matrix.layout != nullptr || (stored.row_step != 1 && matrix.block_rows != 1)) return false;
  if (matrix.element == Format::e2m1) return matrix.packed;
  return matrix.element == Format::e4m3 || matrix.element == Format::e5m2 || matrix.element == Format::int8;
}

/// `rows` rows of a stored matrix, of which no more rows than their blocks have are part of the views.
kernels::ScaledWeight scaled_weight(const StoredWeight& stored, std::int64_t rows) {
  const StoredMatrix& matrix = stored.matrix;
  const std::int64_t first = stored.first_row;
  const std::int64_t step = stored.row_step;
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  const std::int64_t above = first / matrix.block_rows;
  const std::int64_t skipped = above * matrix.block_rows;
  const std::int64_t per_byte = matrix.packed ? 2 : 1;
  const auto at = [](std::span<const std::byte> bytes, std::int64_t skip) {
    return const_cast<std::byte*>(bytes.data() + skip);
  };
  kernels::ScaledWeight weight;
  weight.first_row = first - skipped;
  const std::int64_t kept = weight.first_row + rows;
  weight.codes = {at(matrix.codes, skipped * matrix.columns / per_byte), matrix.element, kept, matrix.columns,
                  step * matrix.columns};
  const auto width = static_cast<std::int64_t>(info(*matrix.scale).storage_bytes());
  weight.scales = {at(matrix.scales, above * matrix.scale_columns * width), *matrix.scale,
                   (kept + matrix.block_rows - 1) / matrix.block_rows, matrix.scale_columns,
                   step * matrix.scale_columns};
  weight.block = {static_cast<std::int32_t>(std::min(matrix.block_rows, kMost)),
                  static_cast<std::int32_t>(std::min(matrix.block_columns, kMost))};
  if (matrix.global == GlobalScale::divisor) weight.second = SecondScale::divisor;
  if (matrix.global == GlobalScale::multiplier) weight.second = SecondScale::multiplier;
  weight.second_scale = matrix.global_scale;
  return weight;
}

/// From its first element to its last.
std::int64_t elements_apart(const TensorView& view) { return (view.rows - 1) * view.stride + view.columns; }

Result<void*> copy_to(kernels::Device& device, std::span<const std::byte> bytes, std::vector<kernels::Buffer>& memory) {
  Result<kernels::Buffer> buffer = device.allocate(bytes.size(), false);
  if (!buffer) return tl::unexpected(buffer.error());
  if (Status copied = device.upload(buffer->data(), bytes); !copied) return tl::unexpected(copied.error());
  memory.push_back(*buffer);
  return buffer->data();
}

/// Loads weights in logical order; the first error is kept and everything after it is skipped.
class Loader {
 public:
  Loader(LoadedModel& model, kernels::Device& device, WeightSource& source, std::stop_token stop)
      : model_(model), device_(&device), source_(&source), stop_(std::move(stop)) {}
  /// Loads nothing: notes what would be loaded.
  Loader(LoadedModel& model, std::vector<WeightShape>& shapes) : model_(model), shapes_(&shapes) {}

  const Weight* load(std::string name, std::int64_t rows, std::int64_t columns, bool pack) {
    if (status_ && stop_.stop_requested()) status_ = fail("stopped");
    if (!status_) return nullptr;
    if (shapes_ != nullptr) {
      shapes_->push_back({std::move(name), rows, columns, pack});
      return nullptr;
    }
    if (model_.checkpoint != nullptr) return load_as_stored(std::move(name), rows, columns, pack);
    Result<std::vector<float>> values = source_->tensor(name, rows, columns);
    if (values && values->size() != static_cast<std::size_t>(rows * columns)) {
      values = fail(fmt::format("weight '{}': expected {} x {} values, got {}", name, rows, columns, values->size()));
    }
    if (!values) {
      status_ = tl::unexpected(values.error());
      return nullptr;
    }
    Result<Weight> weight = upload_weight(std::move(name), *values, rows, columns, pack, *device_, model_.memory);
    if (!weight) {
      status_ = tl::unexpected(weight.error());
      return nullptr;
    }
    return &model_.weights.emplace_back(std::move(*weight));
  }

  /// In the checkpoint's own dtype, where a host's kernels can read it there; else copied to the device. What a
  /// product reads may be codes and scales.
  const Weight* load_as_stored(std::string name, std::int64_t rows, std::int64_t columns, bool product) {
    if (product) {
      auto stored = model_.checkpoint->stored(name, rows, columns);
      if (!stored) {
        status_ = tl::unexpected(stored.error());
        return nullptr;
      }
      if (*stored && is_multiplied(**stored)) return load_scaled(std::move(name), rows, columns, **stored);
    }
    Result<WeightData> data = model_.checkpoint->weight(name, rows, columns);
    if (!data) {
      status_ = tl::unexpected(data.error());
      return nullptr;
    }
    Weight& weight = model_.weights.emplace_back();
    weight.name = std::move(name);
    weight.view = {const_cast<std::byte*>(data->data), data->format, rows, columns, data->stride};
    if (device_->reads_host_memory()) {
      model_.owners.push_back(std::move(data->owner));
    } else {
      weight.view.data =
          copy({data->data, static_cast<std::size_t>(rows * columns) * info(data->format).storage_bytes()});
    }
    return &weight;
  }

  const Weight* load_scaled(std::string name, std::int64_t rows, std::int64_t columns, const StoredWeight& stored) {
    Weight& weight = model_.weights.emplace_back();
    weight.name = std::move(name);
    weight.view = {nullptr, Format::f32, rows, columns, columns};
    weight.scaled = scaled_weight(stored, rows);
    auto input = model_.checkpoint->input_scale(weight.name);
    if (!input) {
      status_ = tl::unexpected(input.error());
      return nullptr;
    }
    weight.input = *input;
    TensorView& scales = weight.scaled.scales;
    const std::size_t width = info(scales.format).storage_bytes();
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(scales.data),
                                           static_cast<std::size_t>(elements_apart(scales)) * width);
    if (!device_->reads_host_memory()) {
      TensorView& codes = weight.scaled.codes;
      const std::int64_t code_bytes = elements_apart(codes) / (codes.format == Format::e2m1 ? 2 : 1);
      codes.data = copy({static_cast<const std::byte*>(codes.data), static_cast<std::size_t>(code_bytes)});
      scales.data = copy(bytes);
    } else if (reinterpret_cast<std::uintptr_t>(scales.data) % width != 0) {
      const auto aligned = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
      scales.data = aligned->data();
      model_.owners.push_back(aligned);
    }
    return &weight;
  }

  Affine norm(const std::string& name, std::int64_t columns) {
    Affine norm{load(name + ".weight", 1, columns, false), nullptr};
    const bool biased = model_.config.norm == kernels::NormKind::layer_norm && model_.config.norm_bias;
    if (biased) norm.bias = load(name + ".bias", 1, columns, false);
    return norm;
  }

  Affine linear(const std::string& name, std::int64_t out, std::int64_t in, bool bias) {
    Affine linear{load(name + ".weight", out, in, true), nullptr};
    if (bias || model_.config.bias) linear.bias = load(name + ".bias", 1, out, false);
    return linear;
  }

  Affine gain(const std::string& name, std::int64_t columns) { return {load(name, 1, columns, false), nullptr}; }

  const Status& status() const { return status_; }

 private:
  void* copy(std::span<const std::byte> bytes) {
    if (!status_) return nullptr;
    const Result<void*> copied = copy_to(*device_, bytes, model_.memory);
    if (copied) return *copied;
    status_ = tl::unexpected(copied.error());
    return nullptr;
  }

  LoadedModel& model_;
  kernels::Device* device_ = nullptr;
  WeightSource* source_ = nullptr;
  std::vector<WeightShape>* shapes_ = nullptr;
  std::stop_token stop_;
  Status status_;
};

/// Projections of latent attention.
void load_latents(Loader& loader, const ModelConfig& model, const std::string& prefix, LayerWeights& layer) {
  const std::int64_t shared = model.rotated;
  const std::int64_t of_head = model.head_dim - shared + value_dim(model);
  if (model.q_rank > 0) {
    layer.q_a_proj = loader.linear(prefix + "q_a_proj", model.q_rank, model.width, model.qkv_bias);
    layer.q_a_norm = loader.gain(prefix + "q_a_norm.weight", model.q_rank);
  }
  layer.q_proj = loader.linear(prefix + "q_proj", model.heads * model.head_dim,
                               model.q_rank > 0 ? model.q_rank : model.width, false);
  layer.kv_a_proj = loader.linear(prefix + "kv_a_proj", model.kv_rank + shared, model.width, model.qkv_bias);
  layer.kv_a_norm = loader.gain(prefix + "kv_a_norm.weight", model.kv_rank);
  layer.kv_b_proj = loader.linear(prefix + "kv_b_proj", model.heads * of_head, model.kv_rank, false);
}

void load_projections(Loader& loader, const ModelConfig& model, const std::string& prefix, LayerWeights& layer) {
  const std::int64_t queries = model.heads * model.head_dim;
  const std::int64_t keys = model.kv_heads * model.head_dim;
  layer.q_proj = loader.linear(prefix + "q_proj", queries, model.width, model.qkv_bias);
  layer.k_proj = loader.linear(prefix + "k_proj", keys, model.width, model.qkv_bias);
  layer.v_proj = loader.linear(prefix + "v_proj", model.kv_heads * value_dim(model), model.width, model.qkv_bias);
  if (model.qk_norm) {
    const bool each = model.qk_norm_over == QkNormOver::head;
    layer.q_norm = loader.gain(prefix + "q_norm.weight", each ? model.head_dim : queries);
    layer.k_norm = loader.gain(prefix + "k_norm.weight", each ? model.head_dim : keys);
  }
}

void load_attention(Loader& loader, const ModelConfig& model, const std::string& prefix, LayerWeights& layer) {
  if (is_latent(model)) {
    load_latents(loader, model, prefix, layer);
  } else {
    load_projections(loader, model, prefix, layer);
  }
  if (model.inner_norm) layer.inner_norm = loader.norm(prefix + "inner_norm", mix_width(model));
  layer.o_proj = loader.linear(prefix + "o_proj", model.width, mix_width(model), model.o_bias);
  if (model.attention_gate)
    layer.attn_gate = loader.linear(prefix + "attn_gate", mix_width(model), model.width, model.qkv_bias);
  if (model.attention_sinks) layer.sinks = loader.gain(prefix + "attention.sinks", model.heads);
}

void load_recurrence(Loader& loader, const ModelConfig& model, const std::string& prefix, LayerWeights& layer) {
  layer.recurrent_in.weight = loader.load(prefix + "recurrent.in_proj.weight", model.width, model.width, true);
  layer.decay = loader.gain(prefix + "recurrent.decay", model.width);
  layer.recurrent_out.weight = loader.load(prefix + "recurrent.out_proj.weight", model.width, model.width, true);
}

void load_delta(Loader& loader, const ModelConfig& model, const std::string& prefix, LayerWeights& layer) {
  const std::int64_t keys = model.delta_key_heads * model.delta_key_dim;
  const std::int64_t values = model.delta_value_heads * model.delta_value_dim;
  const auto product = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    return Affine{loader.load(prefix + "delta." + name + ".weight", rows, columns, true), nullptr};
  };
  layer.q_proj = product("q_proj", keys, model.width);
  layer.k_proj = product("k_proj", keys, model.width);
  layer.v_proj = product("v_proj", values, model.width);
  layer.z_proj = product("z_proj", values, model.width);
  layer.b_proj = product("b_proj", model.delta_value_heads, model.width);
  layer.a_proj = product("a_proj", model.delta_value_heads, model.width);
  const auto conv = [&](const std::string& name, std::int64_t channels) {
    return Affine{loader.load(prefix + "delta." + name + ".weight", model.delta_taps, channels, false), nullptr};
  };
  layer.q_conv = conv("q_conv", keys);
  layer.k_conv = conv("k_conv", keys);
  layer.v_conv = conv("v_conv", values);
  layer.a_log = loader.gain(prefix + "delta.A_log", model.delta_value_heads);
  layer.dt_bias = loader.gain(prefix + "delta.dt_bias", model.delta_value_heads);
  layer.delta_norm = loader.gain(prefix + "delta.norm.weight", model.delta_value_dim);
  layer.o_proj = product("o_proj", model.width, values);
}

MlpWeights load_mlp(Loader& loader, const ModelConfig& model, const std::string& prefix, std::int64_t hidden) {
  MlpWeights mlp;
  if (is_gated(model.mlp)) {
    mlp.gate_proj = loader.linear(prefix + "gate_proj", hidden, model.width, model.mlp_bias);
  }
  mlp.up_proj = loader.linear(prefix + "up_proj", hidden, model.width, model.mlp_bias);
  mlp.down_proj = loader.linear(prefix + "down_proj", model.width, hidden, model.mlp_bias);
  return mlp;
}

void load_experts(Loader& loader, const EngineConfig& config, const std::string& prefix, LayerWeights& layer) {
  const ModelConfig& model = config.model;
  layer.router.weight = loader.load(prefix + "router.weight", model.experts, model.width, true);
  if (model.router_bias) layer.router.bias = loader.load(prefix + "router.bias", 1, model.experts, false);
  if (config.moe.bias) layer.router_bias = loader.gain(prefix + "router.e_score_correction_bias", model.experts);
  for (std::int64_t e = 0; e < model.experts; ++e) {
    layer.experts.push_back(load_mlp(loader, model, fmt::format("{}experts.{}.", prefix, e), expert_width(model)));
  }
  if (model.shared_expert_width == 0) return;
  layer.shared_expert = load_mlp(loader, model, prefix + "shared_expert.", model.shared_expert_width);
  if (!model.shared_expert_gate) return;
  layer.shared_gate.weight = loader.load(prefix + "shared_gate.weight", 1, model.width, false);
}

LayerWeights load_layer(Loader& loader, const EngineConfig& config, std::int64_t index) {
  const ModelConfig& model = config.model;
  const std::string prefix = fmt::format("layers.{}.", index);
  const bool before = norms_before(model);
  const bool after = norms_after(model);
  LayerWeights layer;
  if (before) layer.attn_norm = loader.norm(prefix + "attn_norm", model.width);
  if (is_recurrent(model, index) && is_delta(model)) {
    load_delta(loader, model, prefix, layer);
  } else if (is_recurrent(model, index)) {
    load_recurrence(loader, model, prefix, layer);
  } else {
    load_attention(loader, model, prefix, layer);
  }
  if (after) layer.attn_post_norm = loader.norm(prefix + "attn_post_norm", model.width);
  if (norms_before_mlp(model)) layer.mlp_norm = loader.norm(prefix + "mlp_norm", model.width);
  if (has_experts(model, index)) {
    load_experts(loader, config, prefix, layer);
  } else {
    layer.mlp = load_mlp(loader, model, prefix, model.mlp_width);
  }
  if (after) layer.mlp_post_norm = loader.norm(prefix + "mlp_post_norm", model.width);
  return layer;
}

void load_all(Loader& loader, const EngineConfig& config, std::int64_t vocabulary, LoadedModel& model) {
  const std::int64_t width = config.model.width;
  const std::int64_t patch_inputs = 3 * config.model.patch_size * config.model.patch_size;
  if (patch_inputs > 0) {
    model.patch_embed = {loader.load("patch_embed.weight", width, patch_inputs, false),
                         loader.load("patch_embed.bias", 1, width, false)};
  }
  model.embed.weight = loader.load("embed.weight", vocabulary, width, false);
  if (config.model.positions > 0) {
    model.positions.weight = loader.load("positions.weight", config.model.positions, width, false);
  }
  for (std::int64_t layer = 0; layer < config.model.layers && loader.status(); ++layer) {
    model.layers.push_back(load_layer(loader, config, layer));
  }
  model.final_norm = loader.norm("final_norm", width);
  model.lm_head.weight =
      config.model.tied_head ? model.embed.weight : loader.load("lm_head.weight", vocabulary, width, true);
  if (config.model.head_bias) model.lm_head.bias = loader.load("lm_head.bias", 1, vocabulary, false);
}

/// Knobs of the model that no weight depends on.
bool shapes_no_weight(std::string_view knob) {
  constexpr std::array kFree = {
      "model.rope_base",       "model.local_rope_base", "model.rotated",           "model.embedding_scale",
      "model.attention_scale", "model.scale_by_layer",  "model.attention_softcap", "model.logit_softcap",
      "model.window",          "model.full_layers",     "model.experts_per_token", "model.end_tokens",
      "model.swiglu_alpha",    "model.swiglu_limit",    "model.unrotated_layers",  "model.rotated_from",
      "model.rope_pairs",      "model.latent_norm_eps", "model.residual_scale",    "model.logit_scale"};
  return std::find(kFree.begin(), kFree.end(), knob) != kFree.end();
}

Status check_all_used(const LoadedModel& model) {
  if (model.checkpoint == nullptr) return {};
  std::set<std::string, std::less<>> names;
  for (const Weight& weight : model.weights) names.insert(weight.name);
  return model.checkpoint->check_all_used(names);
}

}  // namespace

Result<std::shared_ptr<const LoadedModel>> load_model(const EngineConfig& config, kernels::Device& device,
                                                      WeightSource& source, std::int64_t vocabulary,
                                                      std::stop_token stop) {
  if (Status status = check(config); !status) return tl::unexpected(status.error());
  auto model = std::make_shared<LoadedModel>();
  model->config = config.model;
  model->vocabulary = vocabulary;
  model->device = &device;
  model->checkpoint = source.checkpoint();
  model->versions = std::make_shared<VersionMemo>();
  Loader loader(*model, device, source, std::move(stop));
  load_all(loader, config, vocabulary, *model);
  if (!loader.status()) return tl::unexpected(loader.status().error());
  if (Status used = check_all_used(*model); !used) return tl::unexpected(used.error());
  return model;
}

std::vector<WeightShape> weight_shapes(const EngineConfig& config, std::int64_t vocabulary) {
  LoadedModel model;
  model.config = config.model;
  std::vector<WeightShape> shapes;
  Loader loader(model, shapes);
  load_all(loader, config, vocabulary, model);
  return shapes;
}

Result<Weight> upload_weight(std::string name, std::span<const float> values, std::int64_t rows, std::int64_t columns,
                             bool pack, kernels::Device& device, std::vector<kernels::Buffer>& memory) {
  Weight weight;
  weight.name = std::move(name);
  const auto upload = [&](std::span<const float> from, std::int64_t height, std::int64_t width, TensorView& into) {
    const Result<void*> data = copy_to(device, std::as_bytes(from), memory);
    if (!data) return Status(tl::unexpected(data.error()));
    into = {*data, Format::f32, height, width, width};
    return Status();
  };
  if (Status done = upload(values, rows, columns, weight.view); !done) return tl::unexpected(done.error());
  // Panels are made for a CPU's registers: a GPU reads rows as fast, and keeps its memory.
  if (!pack || !device.host_addressable()) return weight;
  const std::vector<float> panels = panels_of(values, rows, columns);
  const std::int64_t height = static_cast<std::int64_t>(panels.size()) / kPanel;
  if (Status done = upload(panels, height, kPanel, weight.packed); !done) return tl::unexpected(done.error());
  return weight;
}

WeightRow weight_row(const Weight& weight) {
  WeightRow row;
  row.name = weight.name;
  row.format = weight.view.format;
  row.rows = weight.view.rows;
  row.columns = weight.view.columns;
  return row;
}

Result<DecodedWeight> decoded_weight(const LoadedModel& model, const Weight& weight, kernels::Device& device) {
  if (!weight.scaled.given()) return DecodedWeight{weight.view, {}, {}};
  const Result<WeightData> data = model.checkpoint->weight(weight.name, weight.view.rows, weight.view.columns);
  if (!data) return tl::unexpected(data.error());
  DecodedWeight decoded{weight.view, data->owner, {}};
  decoded.view.data = const_cast<std::byte*>(data->data);
  if (device.reads_host_memory()) return decoded;
  const std::span<const std::byte> bytes(data->data, static_cast<std::size_t>(data->rows * data->columns) * 4);
  Result<kernels::Buffer> memory = device.allocate(bytes.size(), false);
  if (!memory) return tl::unexpected(memory.error());
  if (Status copied = device.upload(memory->data(), bytes); !copied) return tl::unexpected(copied.error());
  decoded.memory = std::move(*memory);
  decoded.view.data = decoded.memory.data();
  return decoded;
}

Result<std::vector<float>> weight_values(const LoadedModel& model, const Weight& weight, kernels::Device& device) {
  const Result<DecodedWeight> decoded = decoded_weight(model, weight, device);
  if (!decoded) return tl::unexpected(decoded.error());
  const TensorView& view = decoded->view;
  const std::size_t width = info(view.format).storage_bytes();
  std::vector<std::byte> bytes(static_cast<std::size_t>(view.columns) * width);
  std::vector<float> values(static_cast<std::size_t>(view.rows * view.columns));
  for (std::int64_t row = 0; row < view.rows; ++row) {
    const auto* from = static_cast<const std::byte*>(view.data) + static_cast<std::size_t>(row * view.stride) * width;
    if (Status status = device.download(bytes, from); !status) return tl::unexpected(status.error());
    decode(view.format, bytes,
           std::span(values).subspan(static_cast<std::size_t>(row * view.columns),
                                     static_cast<std::size_t>(view.columns)));
  }
  return values;
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
