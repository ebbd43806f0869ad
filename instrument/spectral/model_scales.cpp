#include "instrument/spectral/model_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/numbers/decode_span.h"
#include "instrument/model/checkpoint.h"
#include "instrument/model/model_spec.h"

namespace nanscope {
namespace {

Result<std::vector<std::int64_t>> chosen_layers(const ModelConfig& model, const std::vector<std::int64_t>& asked) {
  std::vector<std::int64_t> layers = asked;
  if (layers.empty()) {
    layers.resize(static_cast<std::size_t>(model.layers));
    std::iota(layers.begin(), layers.end(), 0);
    std::erase_if(layers, [&](std::int64_t layer) { return is_recurrent(model, layer); });
  }
  for (const std::int64_t layer : layers) {
    if (layer < 0 || layer >= model.layers) {
      return fail(fmt::format("no layer {}: the model has 0 to {}", layer, model.layers - 1));
    }
    if (is_recurrent(model, layer)) return fail(fmt::format("layer {} has no attention", layer));
  }
  return layers;
}

NamedWeights weights_of(std::shared_ptr<const Checkpoint> checkpoint) {
  return [checkpoint = std::move(checkpoint)](std::string_view name, std::int64_t rows,
                                              std::int64_t columns) -> Result<std::vector<float>> {
    const Result<WeightData> data = checkpoint->weight(name, rows, columns);
    if (!data) return tl::unexpected(data.error());
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    const std::size_t bytes = info(data->format).storage_bytes();
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::span<const std::byte> from(data->data + static_cast<std::size_t>(row * data->stride) * bytes,
                                            static_cast<std::size_t>(columns) * bytes);
      decode(data->format, from,
             std::span(values).subspan(static_cast<std::size_t>(row * columns), static_cast<std::size_t>(columns)));
    }
    return values;
  };
}

}  // namespace

bool ModelScales::any_warning() const {
  return std::any_of(layers.begin(), layers.end(), [](const LayerScales& one) { return !one.warnings.empty(); });
}

Result<ModelScales> model_scales(const std::filesystem::path& folder, const ModelScalesOptions& options) {
  const Result<ModelSpec> spec = read_model_spec(folder);
  if (!spec) return tl::unexpected(spec.error());
  const ModelFamily* family = find_family(spec->model.family);
  if (family == nullptr) return fail(fmt::format("{}: no family '{}'", folder.string(), spec->model.family));
  const auto checkpoint = Checkpoint::open(folder, *family, spec->model);
  if (!checkpoint) return tl::unexpected(checkpoint.error());
  const auto layers = chosen_layers(spec->model, options.layers);
  if (!layers) return fail(fmt::format("{}: {}", folder.string(), layers.error().message));

  ModelScales all;
  all.model = spec->model;
  all.settings = options.settings;
  all.shape = tail_shape(spec->model, options.settings.length);
  all.gamma = typicality(all.shape, options.settings.delta);
  all.alpha_min = smallest_alpha(all.shape, options.settings.delta);
  all.alpha = calibration(all.shape, options.settings);
  all.chance = overflow_chance(all.shape, all.alpha);
  const NamedWeights weights = weights_of(*checkpoint);
  for (const std::int64_t layer : *layers) {
    if (options.progress) {
      options.progress(static_cast<std::int64_t>(all.layers.size()), static_cast<std::int64_t>(layers->size()));
    }
    auto scales = layer_scales(spec->model, spec->rope, layer, weights, options.settings, options.stop);
    if (!scales) return fail(fmt::format("{}: {}", folder.string(), scales.error().message));
    all.layers.push_back(std::move(*scales));
  }
  if (Status same = (*checkpoint)->check_unchanged(); !same) return tl::unexpected(same.error());
  return all;
}

Status use_policy(ModelScales& scales, std::string_view name, const ScorePolicyEntry& policy,
                  const ScorePolicySettings& settings) {
  if (policy.name == "current" || policy.name == "static") {
    return fail(fmt::format("{} has no scale before a step's scores are there: give a run", name));
  }
  const auto first_scale = [&](double worst_case, double calibrated) {
    ScorePolicySettings own = settings;
    own.worst_case = worst_case;
    own.calibrated = calibrated;
    return policy.make(own)->scale(0);
  };
  scales.policy = name;
  for (LayerScales& layer : scales.layers) {
    for (HeadBounds& head : layer.heads) head.scale = first_scale(head.interaction, head.calibrated);
    for (auto* elements : {&layer.queries, &layer.keys}) {
      for (ElementBounds& one : *elements) one.scale = first_scale(one.worst_case, one.calibrated);
    }
  }
  return {};
}

}  // namespace nanscope
