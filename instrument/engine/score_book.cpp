#include "instrument/engine/score_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/recording/weight_version.h"
#include "instrument/engine/scheme_book.h"
#include "kernels/ops/absmax.h"

namespace nanscope {
namespace {

using kernels::TensorView;

ScaleSettings settings_of(const EngineConfig& config, std::int64_t layer) {
  const ScoresConfig& scores = config.scores;
  ScaleSettings settings;
  settings.delta = static_cast<double>(scores.delta);
  settings.length = scores.length;
  settings.utilization = static_cast<double>(scores.utilization);
  const auto schemes = kv_schemes(config, layer);
  settings.mixed_channels = schemes && schemes->k.transform == KvTransform::hadamard;
  return settings;
}

NamedWeights weights_of(const LoadedModel& model, kernels::Device& device) {
  return
      [&model, &device](std::string_view name, std::int64_t rows, std::int64_t columns) -> Result<std::vector<float>> {
        const auto found = std::find_if(model.weights.begin(), model.weights.end(),
                                        [&](const Weight& weight) { return weight_of_version(weight.name) == name; });
        if (found == model.weights.end()) return fail(fmt::format("no weight '{}'", name));
        if (found->view.rows != rows || found->view.columns != columns) {
          return fail(fmt::format("weight '{}' is not {} x {}", name, rows, columns));
        }
        return weight_values(model, *found, device);
      };
}

/// What a target's bounds are made of, a head each.
std::vector<HeadBounds> bounds_of(const LayerScales& layer, ScoreTarget target) {
  if (target == ScoreTarget::scores) return layer.heads;
  std::vector<HeadBounds> bounds;
  for (const ElementBounds& one : target == ScoreTarget::queries ? layer.queries : layer.keys) {
    bounds.push_back({.interaction = one.worst_case, .calibrated = one.calibrated});
  }
  return bounds;
}

const std::vector<float>& filed_scales(const FiledLayer& layer, ScoreTarget target) {
  return target == ScoreTarget::scores ? layer.scores : target == ScoreTarget::queries ? layer.queries : layer.keys;
}

std::int64_t heads_of(const ModelConfig& model, ScoreTarget target) {
  return target == ScoreTarget::keys ? model.kv_heads : model.heads;
}

float number_of(const ScoresConfig& scores, ScoreTarget target) {
  return target == ScoreTarget::scores    ? scores.scale
         : target == ScoreTarget::queries ? scores.q_scale
                                          : scores.k_scale;
}

std::string_view knob_of(ScoreTarget target) {
  return target == ScoreTarget::scores ? "scores.policy" : "scores.qk_policy";
}

std::string name_in_memory(std::size_t attention_rank, ScoreTarget target, std::size_t head) {
  return fmt::format("{}.{}.{}", attention_rank, name(target), head);
}

const std::string& policy_of(const ScoresConfig& scores, ScoreTarget target) {
  return target == ScoreTarget::scores ? scores.policy : scores.qk_policy;
}

bool any_target(const ScoresConfig& scores, const auto& has) {
  return std::any_of(kScoreTargets.begin(), kScoreTargets.end(), [&](ScoreTarget target) {
    return score_format(scores, target) != Format::f32 && has(policy_of(scores, target));
  });
}

bool of_weights(const std::string& policy) {
  const ScorePolicyEntry* entry = find_score_policy(policy);
  return entry != nullptr && entry->of_weights;
}

/// The layer of a file, whose scales are of these weights or may be of any.
Result<const FiledLayer*> filed_layer(const ScaleFile& file, const EngineConfig& config, std::int64_t layer,
                                      const NamedWeights& weights) {
  const FiledLayer* found = file.find(layer);
  if (found == nullptr) return fail(fmt::format("{}: no scales of layer {}", file.file, layer));
  if (config.scores.scales_of == ScalesOf::any) return found;
  const auto identity = layer_identity(config.model, layer, weights);
  if (!identity) return tl::unexpected(identity.error());
  if (*identity == found->identity) return found;
  return fail(other_weights_text(file, layer) + ": make them anew, or scores.scales_of=any takes them all the same");
}

/// Error: the file is not the one of the recorded run.
Status check_scale_file(const ScoresConfig& scores) {
  if (scores.scales_hash.empty()) return {};
  const auto found = scale_file_hash(scores.scales);
  if (!found) return fail("scores.scales: " + found.error().message);
  if (*found == scores.scales_hash) return {};
  return fail(fmt::format("scores.scales: {}: is not the file of this run, its hash is {} instead of {}", scores.scales,
                          *found, scores.scales_hash));
}

}  // namespace

std::string_view name(ScoreTarget target) {
  return target == ScoreTarget::scores ? "scores" : target == ScoreTarget::queries ? "queries" : "keys";
}

Format score_format(const ScoresConfig& scores, ScoreTarget target) {
  return target == ScoreTarget::scores ? scores.format : scores.qk_format;
}

bool quantizes_attention(const ScoresConfig& scores) {
  return any_target(scores, [](const std::string&) { return true; });
}

const std::string& ScoreBook::policy(ScoreTarget target) const { return policy_of(config_->scores, target); }

Result<ScoreBook> ScoreBook::create(const EngineConfig& config, kernels::Device& device, const LoadedModel& model,
                                    ScoreSteps steps) {
  const ScoresConfig& scores = config.scores;
  const NamedWeights weights = weights_of(model, device);
  const bool bounded = any_target(scores, of_weights);
  std::optional<ScaleFile> file;
  if (!scores.scales.empty() && any_target(scores, [](const std::string& policy) { return policy == "static"; })) {
    if (Status same = check_scale_file(scores); !same) return tl::unexpected(same.error());
    Result<ScaleFile> read = read_scale_file(scores.scales, config.model);
    if (!read) return fail("scores.scales: " + read.error().message);
    file = std::move(*read);
  }
  ScoreBook book(config, device, steps);
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    if (is_recurrent(config.model, layer)) continue;
    std::optional<LayerScales> bounds;
    if (bounded) {
      auto made = layer_scales(config.model, config.rope, layer, weights, settings_of(config, layer));
      if (!made) return tl::unexpected(made.error());
      bounds = std::move(*made);
    }
    const FiledLayer* filed = nullptr;
    if (file) {
      const auto found = filed_layer(*file, config, layer, weights);
      if (!found) return fail("scores.scales: " + found.error().message);
      filed = *found;
    }
    Layer& made = book.layers_.emplace_back();
    for (const ScoreTarget target : kScoreTargets) {
      if (score_format(scores, target) == Format::f32) continue;
      auto scales = book.scales_of(target, layer, bounds ? &*bounds : nullptr, filed);
      if (!scales) return tl::unexpected(scales.error());
      made[static_cast<std::size_t>(target)] = std::move(*scales);
    }
  }
  return book;
}

Result<std::vector<ScoreBook::Scale>> ScoreBook::scales_of(ScoreTarget target, std::int64_t layer,
                                                           const LayerScales* bounds, const FiledLayer* file) const {
  const ScoresConfig& scores = config_->scores;
  const ScorePolicyEntry* entry = find_score_policy(policy(target));
  if (entry == nullptr) return fail(fmt::format("{}='{}' is no policy", knob_of(target), policy(target)));
  const bool each = scores.per == ScoresPer::head;
  std::vector<Scale> scales(static_cast<std::size_t>(each ? heads_of(config_->model, target) : 1));
  for (std::size_t head = 0; head < scales.size(); ++head) {
    ScorePolicySettings settings{.largest = double{info(score_format(scores, target)).max_finite},
                                 .scale = static_cast<double>(number_of(scores, target)),
                                 .history = scores.history,
                                 .start = static_cast<double>(scores.start),
                                 .margin = static_cast<double>(scores.margin),
                                 .utilization = static_cast<double>(scores.utilization),
                                 .burn_in = scores.burn_in,
                                 .kappa = static_cast<double>(scores.kappa),
                                 .quantile = static_cast<double>(scores.quantile)};
    if (file != nullptr) {
      const std::vector<float>& all = filed_scales(*file, target);
      settings.scale = double{each ? all[head] : *std::max_element(all.begin(), all.end())};
    }
    scales[head].settings = settings;
  }
  if (entry->of_weights) {
    if (Status bounded = bound(target, layer, bounds, scales); !bounded) return tl::unexpected(bounded.error());
  }
  for (Scale& scale : scales) scale.policy = entry->make(scale.settings);
  return scales;
}

Status ScoreBook::bound(ScoreTarget target, std::int64_t layer, const LayerScales* bounds,
                        std::vector<Scale>& scales) const {
  if (bounds == nullptr || bounds->bound == ScoreBound::none) {
    return fail(
        fmt::format("{}={}: nothing bounds the {} of layer {}", knob_of(target), policy(target), name(target), layer));
  }
  const std::vector<HeadBounds> own = bounds_of(*bounds, target);
  const bool each = config_->scores.per == ScoresPer::head;
  for (std::size_t head = 0; head < scales.size(); ++head) {
    ScorePolicySettings& settings = scales[head].settings;
    settings.worst_case = settings.calibrated = 0;
    for (std::size_t i = each ? head : 0; i < (each ? head + 1 : own.size()); ++i) {
      settings.worst_case = std::max(settings.worst_case, own[i].interaction);
      settings.calibrated = std::max(settings.calibrated, own[i].calibrated);
    }
    scales[head].bound = settings.calibrated;
  }
  return {};
}

Status ScoreBook::weights_changed(const LoadedModel& model) {
  if (!any_target(config_->scores, of_weights)) return {};
  const NamedWeights weights = weights_of(model, *device_);
  std::size_t rank = 0;
  for (std::int64_t layer = 0; layer < config_->model.layers; ++layer) {
    if (is_recurrent(config_->model, layer)) continue;
    const auto bounds = layer_scales(config_->model, config_->rope, layer, weights, settings_of(*config_, layer));
    if (!bounds) return tl::unexpected(bounds.error());
    Layer& all = layers_[rank++];
    for (const ScoreTarget target : kScoreTargets) {
      std::vector<Scale>& scales = all[static_cast<std::size_t>(target)];
      if (scales.empty() || !of_weights(policy(target))) continue;
      if (Status bounded = bound(target, layer, &*bounds, scales); !bounded) return bounded;
      for (Scale& scale : scales) {
        scale.policy->weights_changed(scale.settings.worst_case, scale.settings.calibrated);
      }
    }
  }
  return {};
}

void ScoreBook::forget(double start) {
  for (Layer& layer : layers_) {
    for (const ScoreTarget target : kScoreTargets) {
      for (Scale& scale : layer[static_cast<std::size_t>(target)]) {
        scale.settings.start = start;
        scale.policy = find_score_policy(policy(target))->make(scale.settings);
        scale.before = {};
        scale.since = 0;
        scale.in_step.reset();
      }
    }
  }
}

std::vector<ScoreBook::StepUse> ScoreBook::end_step() {
  std::vector<StepUse> uses;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    for (const ScoreTarget target : kScoreTargets) {
      std::vector<Scale>& scales = layers_[layer][static_cast<std::size_t>(target)];
      for (std::size_t i = 0; i < scales.size(); ++i) {
        Scale& scale = scales[i];
        if (!scale.in_step) continue;
        uses.push_back({.layer = static_cast<std::int64_t>(layer),
                        .target = target,
                        .head = scales.size() > 1 ? static_cast<std::int64_t>(i) : -1,
                        .scale = double{scale.in_step->scale},
                        .absmax = scale.in_step->absmax,
                        .largest = scale.settings.largest});
        remember(target, scale, scale.in_step->origin);
        scale.in_step.reset();
      }
    }
  }
  return uses;
}

ScoreMemory ScoreBook::memory() const {
  ScoreMemory memory;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    for (const ScoreTarget target : kScoreTargets) {
      const std::vector<Scale>& scales = layers_[layer][static_cast<std::size_t>(target)];
      for (std::size_t i = 0; i < scales.size(); ++i) {
        memory[name_in_memory(layer, target, i)] = scales[i].policy->memory();
      }
    }
  }
  return memory;
}

Status ScoreBook::restore(const ScoreMemory& memory) {
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    for (const ScoreTarget target : kScoreTargets) {
      std::vector<Scale>& scales = layers_[layer][static_cast<std::size_t>(target)];
      for (std::size_t i = 0; i < scales.size(); ++i) {
        const std::string name = name_in_memory(layer, target, i);
        const auto found = memory.find(name);
        if (found == memory.end()) return fail(fmt::format("no memory of the scale '{}'", name));
        if (!scales[i].policy->restore(found->second)) {
          return fail(
              fmt::format("the memory of the scale '{}' is not of {}={}", name, knob_of(target), policy(target)));
        }
      }
    }
  }
  return {};
}

Result<std::vector<ScoreBook::Use>> ScoreBook::use(const ScaleContext& context, std::int64_t attention_rank,
                                                   ScoreTarget target, const TensorView& x, Workspace& workspace) {
  std::vector<Scale>& scales = layers_[static_cast<std::size_t>(attention_rank)][static_cast<std::size_t>(target)];
  const std::int64_t count = std::ssize(scales);
  const Result<TensorView> out = workspace.matrix(Slot::score_absmax, Format::f32, 1, count);
  if (!out) return tl::unexpected(out.error());
  const std::int64_t width = x.columns / count;
  for (std::int64_t i = 0; i < count; ++i) {
    const kernels::AbsmaxArgs args{
        .x = columns_of(x, i * width, width), .out = columns_of(*out, i, 1), .nan = kernels::NanRule::propagate};
    if (Status status = device_->launch(args); !status) return tl::unexpected(status.error());
  }
  std::vector<float> absmax(scales.size());
  if (Status status = device_->download(std::as_writable_bytes(std::span(absmax)), out->data); !status) {
    return tl::unexpected(status.error());
  }
  std::vector<Use> uses;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    uses.push_back(use_one(context, target, scales[i], double{absmax[i]}));
  }
  return uses;
}

ScoreBook::Use ScoreBook::use_one(const ScaleContext& context, ScoreTarget target, Scale& scale, double absmax) const {
  Use use;
  use.absmax = absmax;
  use.scale = static_cast<float>(scale.policy->scale(absmax));
  const ScaleOrigin now{.source = ScaleSource::calibrated,
                        .request = context.request,
                        .step = context.step,
                        .tokens = context.tokens,
                        .absmax = absmax};
  if (scale.bound > 0) {
    use.origin = {.source = ScaleSource::checkpoint, .absmax = scale.bound};
  } else if (policy(target) == "current") {
    use.origin = now;
  } else if (policy(target) == "static") {
    const bool filed = !config_->scores.scales.empty();
    use.origin = {.source = filed ? ScaleSource::checkpoint : ScaleSource::fixed, .locked = true};
  } else {
    use.origin = scale.before.step < 0 ? ScaleOrigin{.source = ScaleSource::fixed, .absmax = scale.settings.start}
                                       : scale.before;
  }
  if (steps_ == ScoreSteps::each_use) {
    remember(target, scale, now);
  } else if (!scale.in_step || !(absmax <= scale.in_step->absmax)) {
    scale.in_step = Use{use.scale, absmax, now};
  }
  return use;
}

void ScoreBook::remember(ScoreTarget target, Scale& scale, const ScaleOrigin& now) const {
  scale.policy->seen(now.absmax);
  ++scale.since;
  // Which of the steps before was the largest, as far as it is still remembered.
  const bool forgotten = policy(target) == "delayed" && scale.since >= config_->scores.history;
  if (scale.before.step >= 0 && !forgotten && now.absmax <= scale.before.absmax) return;
  scale.before = now;
  scale.since = 0;
}

std::vector<ScaleRow> ScoreBook::ledger_rows(const ScaleContext& context, std::int64_t op, ScoreTarget target,
                                             const std::vector<Use>& uses) const {
  std::vector<ScaleRow> rows;
  for (const Use& use : uses) {
    ScaleRow row = ledger_row_of(context, op, use.origin);
    row.target = config_->scores.per == ScoresPer::head ? fmt::format("x[{}]", rows.size()) : "x";
    row.policy = policy(target);
    row.format = score_format(config_->scores, target);
    row.scale = use.scale;
    row.absmax = use.absmax;
    row.headroom = headroom(row.format, row.scale, row.absmax);
    rows.push_back(std::move(row));
  }
  return rows;
}

Status check_scores(const EngineConfig& config) {
  const ScoresConfig& scores = config.scores;
  if (!quantizes_attention(scores)) return {};
  if (config.ranks.count > 1) {
    return fail(fmt::format("{} needs one rank", scores.format != Format::f32 ? "scores.format" : "scores.qk_format"));
  }
  if (scores.qk_format != Format::f32 && config.attention.fused) {
    return fail("scores.qk_format and attention.fused do not go together: fused attention reads codes of the cache");
  }
  if (!(scores.margin > 0 && scores.margin <= 1)) return fail("scores.margin must be above 0, at most 1");
  if (!(scores.utilization > 0 && scores.utilization <= 1))
    return fail("scores.utilization must be above 0, at most 1");
  if (!(scores.quantile >= 0 && scores.quantile <= 1)) return fail("scores.quantile must be from 0 to 1");
  if (!(scores.kappa > 0) || !std::isfinite(scores.kappa)) return fail("scores.kappa must be above 0");
  if (!(scores.delta > 0 && scores.delta < 1)) return fail("scores.delta must be between 0 and 1");
  return {};
}

}  // namespace nanscope
