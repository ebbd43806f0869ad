#include "scenarios/score_run.h"

#include <algorithm>
#include <set>
#include <utility>

#include "instrument/engine/weight_versions.h"
#include "scenarios/replay.h"

namespace nanscope::scenarios {
namespace {

/// Bounds of a layer from a step on, unless they are what they were before.
void add(const LayerScales& layer, StepId from, std::vector<ScoreBounds>& bounds) {
  if (layer.bound == ScoreBound::none) return;
  const HeadBounds all = layer.whole();
  const auto before =
      std::find_if(bounds.rbegin(), bounds.rend(), [&](const ScoreBounds& one) { return one.layer == layer.layer; });
  const bool same =
      before != bounds.rend() && before->worst_case == all.interaction && before->calibrated == all.calibrated;
  if (!same) bounds.push_back({from, layer.layer, all.interaction, all.calibrated});
}

Status add_recorded(const RunSpec& spec, const std::set<std::int64_t>& layers, const ScoreRunOptions& options,
                    ScoreRun& run) {
  const StepId last = run.points.back().step;
  const ScoresConfig& scores = spec.config.scores;
  if (scores.format != Format::f32) run.start = static_cast<double>(scores.start);
  if (const TrainConfig& train = spec.config.train; train.steps > 0) {
    // A training step is three steps of the run.
    if (train.forget_scales_step >= 0) run.losses.push_back({3 * train.forget_scales_step + 1, 1.0});
    run.unbounded = "each training step changes the weights; nanscope train --set scores.policy=geometry follows them";
    return {};
  }
  run.weights.model = spec.config.model;
  run.weights.alpha = calibration(tail_shape(spec.config.model, options.settings.length), options.settings);
  std::vector<StepId> steps = steps_of_change(spec.transients, last);
  steps.insert(steps.begin(), 0);
  for (const StepId from : steps) {
    const auto weights = weights_at(spec.config.model, spec.transients, from);
    if (!weights) return tl::unexpected(weights.error());
    for (const std::int64_t layer : layers) {
      auto made = layer_scales(spec.config.model, spec.config.rope, layer, *weights, options.settings, options.stop);
      if (!made) return tl::unexpected(made.error());
      add(*made, from, run.bounds);
      if (from == 0) run.weights.layers.push_back(std::move(*made));
    }
  }
  for (const Transient& one : spec.transients) {
    if (one.kind != TransientKind::forget_scores) continue;
    run.losses.push_back({one.step, one.start > 0 ? one.start : run.start});
  }
  std::sort(run.losses.begin(), run.losses.end(),
            [](const ScoreLoss& a, const ScoreLoss& b) { return a.from < b.from; });
  return {};
}

/// All sequences of a training step have one point a layer.
void add_to_step(const ScorePoint& point, std::vector<ScorePoint>& points) {
  const auto same = std::find_if(points.rbegin(), points.rend(), [&](const ScorePoint& one) {
    return one.step != point.step || one.layer == point.layer;
  });
  if (same == points.rend() || same->step != point.step) return points.push_back(point);
  same->absmax = std::max(same->absmax, point.absmax);
  same->finite = same->finite && point.finite;
}

}  // namespace

std::vector<ScorePoint> scores_of(RunView& run) {
  std::vector<ScorePoint> points;
  for (const Step& step : run.steps()) {
    if (step.rank != 0) continue;
    for (const Op& op : run.content(step.id).ops) {
      if (op.kind != OpKind::attention_scores || !op.layer) continue;
      const Tensor* scores = run.result(op);
      if (scores == nullptr || !scores->known || scores->stated) continue;
      const ScorePoint point{step.id, *op.layer, double{scores->health.absmax},
                             scores->health.bad() == 0 || scores->hides};
      if (step.kind == StepKind::forward) {
        add_to_step(point, points);
      } else {
        points.push_back(point);
      }
    }
  }
  return points;
}

Result<ScoreRun> score_run(RunView& view, const Recording* recording, const ScoreRunOptions& options) {
  ScoreRun run;
  run.points = scores_of(view);
  run.weights.settings = options.settings;
  if (Status read = view.status(); !read) return tl::unexpected(read.error());
  if (run.points.empty()) return run;
  std::set<std::int64_t> layers;
  for (const ScorePoint& point : run.points) layers.insert(point.layer);
  if (!options.checkpoint.empty()) {
    ModelScalesOptions of_checkpoint;
    of_checkpoint.settings = options.settings;
    of_checkpoint.layers.assign(layers.begin(), layers.end());
    of_checkpoint.stop = options.stop;
    auto made = model_scales(options.checkpoint, of_checkpoint);
    if (!made) return tl::unexpected(made.error());
    run.weights = std::move(*made);
    for (const LayerScales& layer : run.weights.layers) add(layer, 0, run.bounds);
    return run;
  }
  if (recording == nullptr) return run;
  const auto spec = run_spec_of(*recording);
  if (!spec) return run;  // an attached dump has no weights
  if (Status added = add_recorded(*spec, layers, options, run); !added) return tl::unexpected(added.error());
  return run;
}

}  // namespace nanscope::scenarios
