#include "instrument/engine/shard.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "kernels/ops/gemm.h"

namespace nanscope {
namespace {

using kernels::TensorView;

/// The rank's part of a model's shapes.
ModelConfig part_of(ModelConfig model, std::int64_t ranks) {
  model.heads /= ranks;
  model.kv_heads /= ranks;
  model.mlp_width /= ranks;
  model.expert_width /= ranks;
  model.shared_expert_width /= ranks;
  return model;
}

/// What a rank has of a matrix.
struct Part {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t first_column = 0;
  std::int64_t columns = 0;
};

TensorView part_of(TensorView view, const Part& part) {
  if (view.given()) {
    view.data = static_cast<std::byte*>(view.data) +
                (part.first_row * view.stride + part.first_column) * kernels::storage_size(view.format);
  }
  view.rows = part.rows;
  view.columns = part.columns;
  return view;
}

/// Cuts weights of a whole model for one rank.
class Cutter {
 public:
  Cutter(LoadedModel& part, std::int64_t rank, std::int64_t ranks) : part_(part), rank_(rank), ranks_(ranks) {}

  /// Some of the outputs, with their biases.
  Affine by_outputs(const Affine& affine) {
    if (affine.weight == nullptr) return {};
    const TensorView& whole = affine.weight->view;
    const std::int64_t rows = whole.rows / ranks_;
    return {cut(*affine.weight, {rank_ * rows, rows, 0, whole.columns}), by_channels(affine.bias)};
  }

  /// Some of the inputs; what the rank makes of them is its part of a sum, to which rank 0 adds the bias.
  Affine by_inputs(const Affine& affine) {
    if (affine.weight == nullptr) return {};
    const TensorView& whole = affine.weight->view;
    const std::int64_t columns = whole.columns / ranks_;
    return {cut(*affine.weight, {0, whole.rows, rank_ * columns, columns}), rank_ == 0 ? affine.bias : nullptr};
  }

  /// Of a vector.
  const Weight* by_channels(const Weight* weight) {
    if (weight == nullptr) return nullptr;
    const std::int64_t columns = weight->view.columns / ranks_;
    return cut(*weight, {0, weight->view.rows, rank_ * columns, columns});
  }

  MlpWeights mlp(const MlpWeights& whole) {
    return {by_outputs(whole.gate_proj), by_outputs(whole.up_proj), by_inputs(whole.down_proj)};
  }

  LayerWeights layer(const LayerWeights& whole) {
    LayerWeights layer = whole;
    layer.q_proj = by_outputs(whole.q_proj);
    layer.k_proj = by_outputs(whole.k_proj);
    layer.v_proj = by_outputs(whole.v_proj);
    layer.kv_b_proj = by_outputs(whole.kv_b_proj);
    layer.o_proj = by_inputs(whole.o_proj);
    layer.sinks.weight = by_channels(whole.sinks.weight);
    layer.recurrent_in = by_outputs(whole.recurrent_in);
    layer.decay.weight = by_channels(whole.decay.weight);
    layer.recurrent_out = by_inputs(whole.recurrent_out);
    layer.mlp = mlp(whole.mlp);
    for (MlpWeights& expert : layer.experts) expert = mlp(expert);
    layer.shared_expert = mlp(whole.shared_expert);
    return layer;
  }

 private:
  const Weight* cut(const Weight& whole, const Part& part) {
    Weight& weight = part_.weights.emplace_back();
    weight.name = whole.name;
    weight.view = part_of(whole.view, part);
    weight.packed = panels_of(whole, part);
    weight.scaled = whole.scaled;
    weight.scaled.first_row += part.first_row;
    weight.scaled.first_column += part.first_column;
    return &weight;
  }

  /// Whole panels of the outputs, where the part is made of such; else gemm reads the plain weight: the bits are the
  /// same.
  static TensorView panels_of(const Weight& whole, const Part& part) {
    const bool all_inputs = part.columns == whole.view.columns;
    if (!whole.packed.given() || !all_inputs || part.first_row % kernels::kPanelColumns != 0) return {};
    const std::int64_t panels = (part.rows + kernels::kPanelColumns - 1) / kernels::kPanelColumns;
    return part_of(whole.packed, {part.first_row * part.columns / kernels::kPanelColumns, panels * part.columns, 0,
                                  whole.packed.columns});
  }

  LoadedModel& part_;
  std::int64_t rank_;
  std::int64_t ranks_;
};

std::shared_ptr<const LoadedModel> part_of(std::shared_ptr<const LoadedModel> whole, std::int64_t rank,
                                           std::int64_t ranks) {
  auto part = std::make_shared<LoadedModel>();
  part->config = whole->config;
  part->vocabulary = whole->vocabulary;
  part->device = whole->device;
  part->checkpoint = whole->checkpoint;
  part->embed = whole->embed;
  part->positions = whole->positions;
  part->patch_embed = whole->patch_embed;
  part->final_norm = whole->final_norm;
  part->lm_head = whole->lm_head;
  Cutter cutter(*part, rank, ranks);
  for (const LayerWeights& layer : whole->layers) part->layers.push_back(cutter.layer(layer));
  part->owners.push_back(std::move(whole));
  return part;
}

Status check_settings(const EngineConfig& config) {
  const auto refuse = [&](std::string_view what) {
    return fail(fmt::format("engine.ranks={}: {}", config.ranks.count, what));
  };
  if (config.model.inner_norm) return refuse("model.inner_norm goes over the heads of all ranks; it needs one rank");
  if (config.model.qk_norm && config.model.qk_norm_over == QkNormOver::projection) {
    return refuse("model.qk_norm_over=projection goes over the heads of all ranks; it needs one rank");
  }
  if (config.blocks.format != ActivationBlocks::none) return refuse("activation.blocks needs one rank");
  if (config.kv.memory == KvMemory::recycled) return refuse("kv.memory=recycled needs one rank");
  if (config.kv.wake == WakeScales::stale && config.kv.sleep_after > 0) {
    return refuse("kv.wake=stale needs one rank");
  }
  return {};
}

}  // namespace

Status check_shards(const EngineConfig& config) {
  const std::int64_t ranks = config.ranks.count;
  if (ranks == 1) return {};
  const ModelConfig& model = config.model;
  const auto divides = [&](std::string_view knob, std::int64_t value) {
    if (value % ranks == 0) return Status();
    return Status(fail(fmt::format("engine.ranks={} does not divide {}={}", ranks, knob, value)));
  };
  Status status = divides("model.heads", model.heads);
  if (status) status = divides("model.kv_heads", model.kv_heads);
  if (status) status = divides("model.mlp_width", model.mlp_width);
  if (status) status = divides("model.expert_width", model.expert_width);
  if (status) status = divides("model.shared_expert_width", model.shared_expert_width);
  if (status && !model.recurrent_layers.empty()) status = divides("model.width", model.width);
  return status ? check_settings(config) : status;
}

std::vector<Shard> make_shards(const EngineConfig& config, std::shared_ptr<const LoadedModel> model) {
  const std::int64_t ranks = config.ranks.count;
  std::vector<Shard> shards;
  if (ranks == 1) {
    ModelPlan plan = make_plan(config, model.get());
    shards.push_back({config, std::move(model), std::move(plan)});
    return shards;
  }
  EngineConfig part = config;
  part.model = part_of(config.model, ranks);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    shards.push_back({part, part_of(model, rank, ranks), make_plan(part)});
  }
  return shards;
}

}  // namespace nanscope
