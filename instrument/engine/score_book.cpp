#include "instrument/engine/score_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/numbers/decode_span.h"
#include "instrument/spectral/layer_scales.h"
#include "kernels/ops/absmax.h"

namespace nanscope {
namespace {

using kernels::TensorView;

ScaleSettings settings_of(const ScoresConfig& scores) {
  ScaleSettings settings;
  settings.delta = static_cast<double>(scores.delta);
  settings.length = scores.length;
  settings.utilization = static_cast<double>(scores.utilization);
  settings.largest = double{info(scores.format).max_finite};
  return settings;
}

NamedWeights weights_of(const LoadedModel& model, kernels::Device& device) {
  return [&model, &device](std::string_view name, std::int64_t rows,
                           std::int64_t columns) -> Result<std::vector<float>> {
    const auto found = std::find_if(model.weights.begin(), model.weights.end(),
                                    [&](const Weight& weight) { return weight.name == name; });
    if (found == model.weights.end()) return fail(fmt::format("no weight '{}'", name));
    const Result<DecodedWeight> decoded = decoded_weight(model, *found, device);
    if (!decoded) return tl::unexpected(decoded.error());
    const TensorView& view = decoded->view;
    const std::size_t width = info(view.format).storage_bytes();
    std::vector<std::byte> bytes(static_cast<std::size_t>(columns) * width);
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto* from = static_cast<const std::byte*>(view.data) + static_cast<std::size_t>(row * view.stride) * width;
      if (Status status = device.download(bytes, from); !status) return tl::unexpected(status.error());
      decode(view.format, bytes,
             std::span(values).subspan(static_cast<std::size_t>(row * columns), static_cast<std::size_t>(columns)));
    }
    return values;
  };
}

}  // namespace

Result<ScoreBook> ScoreBook::create(const EngineConfig& config, kernels::Device& device, const LoadedModel& model) {
  const ScoresConfig& scores = config.scores;
  const ScorePolicyEntry* entry = find_score_policy(scores.policy);
  if (entry == nullptr) return fail(fmt::format("scores.policy='{}' is no policy", scores.policy));
  ScoreBook book(config, device);
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    if (is_recurrent(config.model, layer)) continue;
    ScorePolicySettings settings{.largest = double{info(scores.format).max_finite},
                                 .scale = static_cast<double>(scores.scale),
                                 .history = scores.history,
                                 .start = static_cast<double>(scores.start),
                                 .margin = static_cast<double>(scores.margin),
                                 .utilization = static_cast<double>(scores.utilization)};
    Layer one;
    if (entry->of_weights) {
      const auto bounds =
          layer_scales(config.model, config.rope, layer, weights_of(model, device), settings_of(scores));
      if (!bounds) return tl::unexpected(bounds.error());
      if (bounds->bound == ScoreBound::none) {
        return fail(fmt::format("scores.policy={}: nothing bounds the scores of layer {}", scores.policy, layer));
      }
      settings.worst_case = bounds->whole().interaction;
      settings.calibrated = one.bound = bounds->whole().calibrated;
    }
    one.policy = entry->make(settings);
    book.layers_.push_back(std::move(one));
  }
  return book;
}

Result<ScoreBook::Use> ScoreBook::use(const ScaleContext& context, std::int64_t attention_rank,
                                      const TensorView& scores, Workspace& workspace) {
  const Result<TensorView> out = workspace.matrix(Slot::score_absmax, Format::f32, 1, 1);
  if (!out) return tl::unexpected(out.error());
  if (Status status =
          device_->launch(kernels::AbsmaxArgs{.x = scores, .out = *out, .nan = kernels::NanRule::propagate});
      !status) {
    return tl::unexpected(status.error());
  }
  float absmax = 0;
  if (Status status = device_->download(std::as_writable_bytes(std::span(&absmax, 1)), out->data); !status) {
    return tl::unexpected(status.error());
  }
  Layer& layer = layers_[static_cast<std::size_t>(attention_rank)];
  Use use;
  use.absmax = double{absmax};
  use.scale = static_cast<float>(layer.policy->scale(use.absmax));
  const ScaleOrigin now{.source = ScaleSource::calibrated,
                        .request = context.request,
                        .step = context.step,
                        .tokens = context.tokens,
                        .absmax = use.absmax};
  if (layer.bound > 0) {
    use.origin = {.source = ScaleSource::checkpoint, .absmax = layer.bound};
  } else if (config_->scores.policy == "current") {
    use.origin = now;
  } else if (config_->scores.policy == "static") {
    use.origin = {.source = ScaleSource::fixed, .locked = true};
  } else {
    use.origin = layer.before.step < 0
                     ? ScaleOrigin{.source = ScaleSource::fixed, .absmax = static_cast<double>(config_->scores.start)}
                     : layer.before;
    // Which of the steps before was the largest, as far as it is still remembered.
    const bool forgotten =
        config_->scores.policy == "delayed" && context.step - layer.before.step >= config_->scores.history;
    if (layer.before.step < 0 || forgotten || !(use.absmax <= layer.before.absmax)) layer.before = now;
  }
  return use;
}

ScaleRow ScoreBook::ledger_row(const ScaleContext& context, std::int64_t op, const Use& use) const {
  ScaleRow row = ledger_row_of(context, op, use.origin);
  row.target = "x";
  row.policy = config_->scores.policy;
  row.format = config_->scores.format;
  row.scale = use.scale;
  row.absmax = use.absmax;
  row.headroom = headroom(row.format, row.scale, row.absmax);
  return row;
}

Status check_scores(const EngineConfig& config) {
  if (config.scores.format == Format::f32) return {};
  if (config.ranks.count > 1) return fail("scores.format needs one rank");
  if (!(config.scores.margin > 0 && config.scores.margin <= 1)) return fail("scores.margin must be above 0, at most 1");
  if (!(config.scores.utilization > 0 && config.scores.utilization <= 1)) {
    return fail("scores.utilization must be above 0, at most 1");
  }
  if (!(config.scores.delta > 0 && config.scores.delta < 1)) return fail("scores.delta must be between 0 and 1");
  return {};
}

}  // namespace nanscope
