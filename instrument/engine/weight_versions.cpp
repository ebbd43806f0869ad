#include "instrument/engine/weight_versions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/recording/weight_version.h"
#include "instrument/files/near_names.h"
#include "instrument/weights/random.h"

namespace nanscope {
namespace {

double norm_of(std::span<const float> values) {
  double squares = 0;
  for (const float one : values) squares += double{one} * double{one};
  return std::sqrt(squares);
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

void release(const kernels::TensorView& view, std::vector<kernels::Buffer>& memory) {
  std::erase_if(memory, [&view](const kernels::Buffer& one) { return view.given() && one.data() == view.data; });
}

using Changes = std::vector<WeightChange>;

Result<std::vector<float>> changed(const Changes& changes, std::string_view name, std::int64_t rows,
                                   std::int64_t columns, std::vector<float> values) {
  for (const WeightChange& change : changes) {
    if (!change.names(name)) continue;
    auto after = change.apply(name, rows, columns, std::move(values));
    if (!after) return after;
    values = std::move(*after);
  }
  return values;
}

Status add_changes(std::span<const Transient> transients, const ModelConfig& model, std::int64_t step,
                   Changes& changes) {
  for (const Transient& one : transients) {
    if (!one.changes_weights_before(step)) continue;
    auto change = WeightChange::make(one, model, step);
    if (!change) return tl::unexpected(change.error());
    changes.push_back(std::move(*change));
  }
  return {};
}

}  // namespace

std::shared_ptr<LoadedModel> copy_of(const LoadedModel& model) {
  auto copy = std::make_shared<LoadedModel>(model);
  copy->versions.reset();
  std::unordered_map<const Weight*, const Weight*> own;
  for (std::size_t i = 0; i < model.weights.size(); ++i) own.emplace(&model.weights[i], &copy->weights[i]);
  const auto lead = [&own](Affine& affine) {
    if (affine.weight != nullptr) affine.weight = own.at(affine.weight);
    if (affine.bias != nullptr) affine.bias = own.at(affine.bias);
  };
  const auto lead_mlp = [&lead](MlpWeights& mlp) {
    for (Affine* affine : {&mlp.gate_proj, &mlp.up_proj, &mlp.down_proj}) lead(*affine);
  };
  for (Affine* affine : {&copy->embed, &copy->positions, &copy->patch_embed, &copy->final_norm, &copy->lm_head}) {
    lead(*affine);
  }
  for (LayerWeights& layer : copy->layers) {
    for (Affine* affine :
         {&layer.attn_norm,    &layer.attn_post_norm, &layer.inner_norm, &layer.q_norm,      &layer.k_norm,
          &layer.mlp_norm,     &layer.mlp_post_norm,  &layer.q_a_proj,   &layer.q_a_norm,    &layer.kv_a_proj,
          &layer.kv_a_norm,    &layer.kv_b_proj,      &layer.q_proj,     &layer.k_proj,      &layer.v_proj,
          &layer.o_proj,       &layer.sinks,          &layer.router,     &layer.router_bias, &layer.shared_gate,
          &layer.recurrent_in, &layer.recurrent_out,  &layer.decay,      &layer.z_proj,      &layer.b_proj,
          &layer.a_proj,       &layer.q_conv,         &layer.k_conv,     &layer.v_conv,      &layer.a_log,
          &layer.dt_bias,      &layer.delta_norm,     &layer.attn_gate}) {
      lead(*affine);
    }
    lead_mlp(layer.mlp);
    lead_mlp(layer.shared_expert);
    for (MlpWeights& expert : layer.experts) lead_mlp(expert);
  }
  return copy;
}

Result<WeightChange> WeightChange::make(const Transient& transient, const ModelConfig& model, std::int64_t step) {
  WeightChange change(transient, step);
  if (transient.kind != TransientKind::load) return change;
  ModelConfig other = model;
  other.weights = transient.load;
  other.seed = transient.seed;
  other.init_scale = transient.init_scale;
  if (transient.load == "reference" || transient.load == "random") other.family.clear();
  auto source = make_weight_source(other);
  if (!source) return tl::unexpected(source.error());
  change.loaded_ = std::move(*source);
  return change;
}

Result<std::vector<float>> WeightChange::apply(std::string_view weight, std::int64_t rows, std::int64_t columns,
                                               std::vector<float> before) const {
  if (loaded_ != nullptr) return loaded_->tensor(weight, rows, columns);
  if (transient_.kind == TransientKind::multiply) {
    for (float& value : before) value *= static_cast<float>(transient_.size);
    return before;
  }
  if (before.empty()) return before;
  const auto part =
      static_cast<float>(transient_.size * norm_of(before) / std::sqrt(static_cast<double>(before.size())));
  const std::uint64_t stream = stream_of(weight_version(weight, step_));
  std::uint32_t signs = 0;
  for (std::size_t i = 0; i < before.size(); ++i, signs >>= 1U) {
    if (i % 32 == 0) signs = random_bits(transient_.seed, stream, i / 32);
    before[i] += (signs & 1U) != 0 ? part : -part;
  }
  return before;
}

Status check_names(std::span<const Transient> transients, const LoadedModel& model) {
  for (std::size_t i = 0; i < transients.size(); ++i) {
    for (const std::string& pattern : transients[i].weights) {
      const bool found = std::any_of(model.weights.begin(), model.weights.end(),
                                     [&](const Weight& weight) { return matches(pattern, weight.name); });
      if (found) continue;
      std::vector<std::string> names;
      for (const Weight& weight : model.weights) names.push_back(weight.name);
      return fail(fmt::format("transient {}: no weight is called '{}'{}", i, pattern, did_you_mean(pattern, names)));
    }
  }
  return {};
}

Result<ModelVersion> next_version(const LoadedModel& before, std::span<const Transient> transients, std::int64_t step,
                                  kernels::Device& device) {
  Changes changes;
  if (Status made = add_changes(transients, before.config, step, changes); !made) return tl::unexpected(made.error());
  ModelVersion version;
  const std::shared_ptr<LoadedModel> model = copy_of(before);
  for (Weight& weight : model->weights) {
    const std::string name(weight_of_version(weight.name));
    const bool named = std::any_of(changes.begin(), changes.end(), [&](const auto& one) { return one.names(name); });
    if (!named) continue;
    auto values = weight_values(before, weight, device);
    if (!values) return tl::unexpected(values.error());
    const auto after = changed(changes, name, weight.view.rows, weight.view.columns, *values);
    if (!after) return tl::unexpected(after.error());
    if (same_bits(*values, *after)) continue;
    auto uploaded = upload_weight(weight_version(name, step), *after, weight.view.rows, weight.view.columns,
                                  weight.packed.given(), device, model->memory);
    if (!uploaded) return tl::unexpected(uploaded.error());
    release(weight.view, model->memory);
    release(weight.packed, model->memory);
    weight = std::move(*uploaded);
    version.changed.push_back(&weight);
  }
  version.model = model;
  return version;
}

Result<ModelVersion> remembered_version(const LoadedModel& first, const LoadedModel& before,
                                        std::span<const Transient> transients, std::int64_t step,
                                        kernels::Device& device) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  VersionMemo& memo = *first.versions;
  if (std::string text = to_json(transients); memo.transients != text) memo = {std::move(text), {}, 0};
  if (const auto found = memo.by_step.find(step); found != memo.by_step.end()) return found->second;
  auto made = next_version(before, transients, step, device);
  if (!made) return made;
  std::size_t bytes = 0;
  for (const Weight* weight : made->changed) {
    bytes += static_cast<std::size_t>(weight->view.elements() + weight->packed.elements()) * sizeof(float);
  }
  if (memo.bytes + bytes > kMostBytes) return made;
  memo.bytes += bytes;
  memo.by_step.emplace(step, *made);
  return made;
}

std::vector<std::int64_t> steps_of_change(std::span<const Transient> transients, std::int64_t last) {
  std::set<std::int64_t> steps;
  for (const Transient& one : transients) {
    if (!one.of_weights()) continue;
    for (std::int64_t step = one.step; step <= std::min(one.until, last); ++step) steps.insert(step);
  }
  return {steps.begin(), steps.end()};
}

Result<NamedWeights> weights_at(const ModelConfig& model, std::span<const Transient> transients, std::int64_t step) {
  auto source = make_weight_source(model);
  if (!source) return tl::unexpected(source.error());
  const auto changes = std::make_shared<Changes>();
  for (const std::int64_t before : steps_of_change(transients, step)) {
    if (Status made = add_changes(transients, model, before, *changes); !made) return tl::unexpected(made.error());
  }
  return [first = std::shared_ptr<WeightSource>(std::move(*source)), changes](
             std::string_view name, std::int64_t rows, std::int64_t columns) -> Result<std::vector<float>> {
    auto values = first->tensor(name, rows, columns);
    return values ? changed(*changes, name, rows, columns, std::move(*values)) : values;
  };
}

}  // namespace nanscope
