#include "instrument/train/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/blocks/presets.h"
#include "core/numbers/codec.h"
#include "core/numbers/decode_span.h"
#include "core/recording/weight_version.h"
#include "instrument/engine/transient.h"
#include "kernels/ops/adamw.h"
#include "kernels/ops/block_dequantise.h"
#include "kernels/ops/block_quantise.h"
#include "kernels/ops/cast.h"
#include "kernels/ops/sum_of_squares.h"

namespace nanscope::train {

using kernels::TensorView;

namespace {

std::size_t bytes_of(const TensorView& view) {
  return static_cast<std::size_t>(view.elements()) * info(view.format).storage_bytes();
}

Result<std::vector<float>> values_of(kernels::Device& device, const TensorView& view) {
  std::vector<std::byte> bytes(bytes_of(view));
  if (Status done = device.download(bytes, view.data); !done) return tl::unexpected(done.error());
  std::vector<float> values(static_cast<std::size_t>(view.elements()));
  decode(view.format, bytes, values);
  return values;
}

/// f32 values as their matrix keeps them, rounded where they did not come from there.
Status put(kernels::Device& device, const TensorView& view, const std::vector<float>& values, std::string_view what) {
  if (static_cast<std::int64_t>(values.size()) != view.elements()) {
    return fail(fmt::format("{}: expected {} x {} values, got {}", what, view.rows, view.columns, values.size()));
  }
  if (view.format == Format::f32) return device.upload(view.data, std::as_bytes(std::span(values)));
  std::vector<std::uint16_t> codes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    codes[i] = static_cast<std::uint16_t>(encode(view.format, values[i], Overflow::overflow));
  return device.upload(view.data, std::as_bytes(std::span(codes)));
}

/// A matrix that a layer's product reads: no embedding, head, router or norm.
bool is_projection(std::string_view name) { return name.ends_with("_proj.weight"); }

}  // namespace

std::pair<std::int64_t, std::string> place_of_weight(std::string_view weight, std::string_view what) {
  constexpr std::string_view kLayers = "layers.";
  std::int64_t layer = -1;
  if (weight.starts_with(kLayers)) {
    weight.remove_prefix(kLayers.size());
    const char* end = weight.data() + weight.size();
    const auto [after, error] = std::from_chars(weight.data(), end, layer);
    weight.remove_prefix(static_cast<std::size_t>(after - weight.data()) + (after != end ? 1 : 0));
  }
  std::string name(weight);
  std::replace(name.begin(), name.end(), '.', '_');
  return {layer, fmt::format("{}_{}", name, what)};
}

Result<std::unique_ptr<Optimizer>> Optimizer::create(const TrainConfig& config, std::shared_ptr<LoadedModel> model,
                                                     kernels::Device& device) {
  const auto spikes = [&](const Weight& one) { return matches(config.weight_spike_of, weight_of_version(one.name)); };
  if (config.weight_spike_step >= 0 && std::none_of(model->weights.begin(), model->weights.end(), spikes)) {
    return fail(fmt::format("train.weight_spike_of={} names no weight of the model", config.weight_spike_of));
  }
  std::unique_ptr<Optimizer> optimizer(new Optimizer(config, std::move(model), device));
  for (Weight& weight : optimizer->model_->weights) {
    if (Status taken = optimizer->take(weight); !taken) return tl::unexpected(taken.error());
  }
  return optimizer;
}

Result<TensorView> Optimizer::matrix(Format format, std::int64_t rows, std::int64_t columns, bool zeroed) {
  TensorView view{nullptr, format, rows, columns, columns};
  auto buffer = device_.allocate(bytes_of(view), zeroed);
  if (!buffer) return tl::unexpected(buffer.error());
  view.data = buffer->data();
  model_->memory.push_back(*buffer);
  return view;
}

Status Optimizer::take(Weight& weight) {
  if (weight.scaled.given()) {
    return fail(fmt::format("weight '{}' is stored in codes and scales; only weights in f32, f16 and bf16 are trained",
                            weight.name));
  }
  auto values = weight_values(*model_, weight, device_);
  if (!values) return tl::unexpected(values.error());
  const TensorView& view = weight.view;
  const bool rounds = !config_.weight_blocks.empty() && is_projection(weight_of_version(weight.name));
  const bool own = view.format == Format::f32 && !rounds;
  const auto master = matrix(Format::f32, view.rows, view.columns, false);
  const auto first = matrix(config_.state_format, view.rows, view.columns, true);
  const auto second = matrix(config_.state_format, view.rows, view.columns, true);
  const auto model = own ? master : matrix(view.format, view.rows, view.columns, false);
  for (const auto* one : {&master, &first, &second, &model}) {
    if (!*one) return tl::unexpected(one->error());
  }
  if (Status done = put(device_, *master, *values, weight.name); !done) return done;
  if (!own) {
    if (Status done = put(device_, *model, *values, weight.name); !done) return done;
  }
  weight.view = *model;
  weight.packed = {};
  by_name_.emplace(std::string(weight_of_version(weight.name)), held_.size());
  Held& held = held_.emplace_back(Held{&weight, *master, *first, *second, {}, {}});
  return rounds ? make_codes(held) : Status();
}

Status Optimizer::make_codes(Held& held) {
  if (held.weight->view.format != Format::f32) {
    return fail(fmt::format("train.weight_blocks rounds weights in f32, and '{}' is in {}", held.weight->name,
                            name(held.weight->view.format)));
  }
  const BlockFormat& format = find_block_preset(config_.weight_blocks)->format;
  const TensorView& master = held.master;
  const auto codes = matrix(format.element, master.rows, master.columns, false);
  if (!codes) return tl::unexpected(codes.error());
  const std::int64_t blocks = (master.columns + format.block.columns - 1) / format.block.columns;
  const auto scales = matrix(format.scale, master.rows, blocks, false);
  if (!scales) return tl::unexpected(scales.error());
  held.codes = *codes;
  held.scales = *scales;
  return round(held);
}

Status Optimizer::round(const Held& held) {
  if (!held.codes.given()) return {};
  const BlockFormat& format = find_block_preset(config_.weight_blocks)->format;
  Status made = device_.launch(
      kernels::BlockQuantiseArgs{.x = held.master, .codes = held.codes, .scales = held.scales, .format = format});
  if (!made) return made;
  return device_.launch(kernels::BlockDequantiseArgs{
      .codes = held.codes, .scales = held.scales, .out = held.weight->view, .format = format});
}

void Optimizer::emit_codes(const Held& held, std::int64_t master, Emitter& emitter) const {
  const BlockFormat& format = find_block_preset(config_.weight_blocks)->format;
  BlockAttributes attributes;
  attributes.format = config_.weight_blocks;
  attributes.block = format.block.columns;
  attributes.blocks = held.scales.columns;
  OpPlan plan;
  std::tie(plan.layer, plan.name) = place_of_weight(weight_of_version(held.weight->name), "codes");
  plan.kind = OpKind::block_quantise;
  plan.json = to_json(attributes);
  const ProbeInput input{"x", master, {}};
  const std::array outputs{emitter.output("codes", held.codes), emitter.output("scales", held.scales)};
  emitter.op(plan, std::span(&input, 1), outputs);
}

Result<double> Optimizer::norm(const Gradients& gradients, double loss_scale, Arena& scratch) {
  double total = 0;
  for (const auto& [name, gradient] : gradients) {
    const auto sums = scratch.matrix(Format::f32, gradient.view.rows, 1);
    if (!sums) return tl::unexpected(sums.error());
    if (Status done = device_.launch(kernels::SumOfSquaresArgs{.x = gradient.view, .out = *sums}); !done) {
      return tl::unexpected(done.error());
    }
    const auto rows = values_of(device_, *sums);
    if (!rows) return tl::unexpected(rows.error());
    for (const float one : *rows) total += double{one};
  }
  return std::sqrt(total) / loss_scale;
}

Status Optimizer::step(const Gradients& gradients, float scale, float learning_rate, std::int64_t done,
                       std::int64_t version, Emitter& emitter) {
  const auto correction = [&](float beta) {
    return static_cast<float>(1.0 - std::pow(double{beta}, static_cast<double>(done + 1)));
  };
  for (std::size_t i = 0; i < held_.size() && emitter.ok(); ++i) {
    Held& held = held_[i];
    const auto found = gradients.find(held.weight->name);
    if (found == gradients.end()) continue;
    const TensorView& gradient = found->second.view;
    const bool own = held.weight->view.data == held.master.data || held.codes.given();
    // Vectors (norms, biases) are not decayed, as is usual (Devlin et al. 2019).
    const float decay = held.master.rows > 1 ? config_.weight_decay : 0.0F;
    emitter.check(device_.launch(kernels::AdamWArgs{
        .gradient = gradient,
        .weight = held.master,
        .m = held.first,
        .v = held.second,
        .out = own ? TensorView{} : held.weight->view,
        .learning_rate = learning_rate,
        .beta1 = config_.beta1,
        .beta2 = config_.beta2,
        .eps = config_.eps,
        .weight_decay = decay,
        .gradient_scale = scale,
        .correction1 = correction(config_.beta1),
        .correction2 = correction(config_.beta2),
        .stochastic = config_.stochastic && !own,
        .seed = static_cast<std::uint32_t>(config_.seed + done) * 0x85ebca6bU + static_cast<std::uint32_t>(i)}));
    AdamWAttributes attributes;
    attributes.step = done + 1;
    attributes.learning_rate = double{learning_rate};
    attributes.beta1 = double{config_.beta1};
    attributes.beta2 = double{config_.beta2};
    attributes.eps = double{config_.eps};
    attributes.weight_decay = double{decay};
    attributes.gradient_scale = double{scale};
    attributes.state = std::string(name(config_.state_format));
    const std::string base(weight_of_version(held.weight->name));
    OpPlan plan;
    std::tie(plan.layer, plan.name) = place_of_weight(base, "adamw");
    plan.kind = OpKind::adamw;
    plan.json = to_json(attributes);
    const std::array inputs{ProbeInput{"gradient", found->second.id, {}}, ProbeInput{"weight", 0, found->first}};
    const std::array outputs{emitter.output("weight", own ? held.master : held.weight->view),
                             emitter.output("m", held.first), emitter.output("v", held.second)};
    emitter.op(plan, inputs, outputs);
    if (held.codes.given()) {
      emitter.check(round(held));
      emit_codes(held, outputs.front().id, emitter);
    }
    held.weight->name = weight_version(base, version);
  }
  return emitter.status();
}

Status Optimizer::multiply(std::string_view pattern, float factor, std::int64_t version) {
  for (const auto& [name, index] : by_name_) {
    if (!matches(pattern, name)) continue;
    Held& held = held_[index];
    auto values = values_of(device_, held.master);
    if (!values) return tl::unexpected(values.error());
    for (float& one : *values) one *= factor;
    if (Status done = put(device_, held.master, *values, name); !done) return done;
    if (held.weight->view.data != held.master.data) {
      if (Status done = put(device_, held.weight->view, *values, name); !done) return done;
    }
    if (Status done = round(held); !done) return done;
    if (version > 0) held.weight->name = weight_version(name, version);
  }
  return {};
}

Status Optimizer::save(TrainState& state) {
  for (const auto& [name, index] : by_name_) {
    const Held& held = held_[index];
    auto master = values_of(device_, held.master);
    auto first = values_of(device_, held.first);
    auto second = values_of(device_, held.second);
    for (const auto* one : {&master, &first, &second}) {
      if (!*one) return tl::unexpected(one->error());
    }
    state.weights[name] = std::move(*master);
    if (held.weight->view.data != held.master.data) {
      auto rounded = values_of(device_, held.weight->view);
      if (!rounded) return tl::unexpected(rounded.error());
      state.rounded[name] = std::move(*rounded);
    }
    state.moments[name] = {std::move(*first), std::move(*second)};
  }
  return {};
}

Status Optimizer::restore(const TrainState& state, std::int64_t version) {
  for (const auto& [name, index] : by_name_) {
    Held& held = held_[index];
    const auto weight = state.weights.find(name);
    const auto moments = state.moments.find(name);
    if (weight == state.weights.end() || moments == state.moments.end()) {
      return fail(fmt::format("the checkpoint has no weight '{}', or no moments of it", name));
    }
    if (Status done = put(device_, held.master, weight->second, name); !done) return done;
    if (held.weight->view.data != held.master.data) {
      const auto rounded = state.rounded.find(name);
      if (rounded == state.rounded.end()) return fail(fmt::format("the checkpoint has no rounded weight '{}'", name));
      if (Status done = put(device_, held.weight->view, rounded->second, name); !done) return done;
    }
    if (Status done = put(device_, held.first, moments->second.first, name); !done) return done;
    if (Status done = put(device_, held.second, moments->second.second, name); !done) return done;
    if (version > 0) held.weight->name = weight_version(name, version);
  }
  return {};
}

}  // namespace nanscope::train
