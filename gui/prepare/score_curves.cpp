#include "gui/prepare/score_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/counted.h"

namespace nanscope::gui {
namespace {

void add_steps(RunView& run, ScoreCurves& curves) {
  for (const scenarios::ScorePoint& point : curves.points) {
    if (curves.steps.empty() || curves.steps.back().id != point.step) {
      LedgerStep step;
      step.id = point.step;
      if (const Step* found = run.step(point.step)) {
        step.index = found->index();
        if (found->spans.size() == 1) step.request = found->request();
        const RequestRow* request = step.request ? run.request(*step.request) : nullptr;
        step.title = request != nullptr ? request->name : fmt::format("{} requests", found->spans.size());
      }
      const bool same = !curves.steps.empty() && curves.steps.back().request == step.request;
      if (!same) curves.bands.push_back({curves.steps.size(), curves.steps.size()});
      curves.bands.back().last = curves.steps.size();
      curves.steps.push_back(std::move(step));
    }
    curves.step_of.push_back(curves.steps.size() - 1);
  }
}

void add_layers(ScoreCurves& curves) {
  std::map<std::int64_t, ScoreLayerCurves> layers;
  for (std::size_t i = 0; i < curves.points.size(); ++i) {
    ScoreLayerCurves& layer = layers[curves.points[i].layer];
    layer.layer = curves.points[i].layer;
    layer.points.push_back(i);
  }
  for (auto& [id, layer] : layers) curves.layers.push_back(std::move(layer));
  for (const scenarios::ScoreTrial& trial : curves.trials) {
    const auto by_layer = scenarios::by_layer(trial, curves.points, curves.largest);
    for (ScoreLayerCurves& layer : curves.layers) {
      const auto found =
          std::find_if(by_layer.begin(), by_layer.end(), [&](const auto& one) { return one.layer == layer.layer; });
      layer.overflows.push_back(found == by_layer.end() ? 0 : found->overflows);
    }
    for (const scenarios::ScoreTrialPoint& point : trial.points) {
      curves.scaled.cover(point.scaled);
      curves.scales.cover(point.scale);
    }
  }
  curves.scaled.cover(curves.largest);
}

std::string headline_of(const ScoreCurves& curves) {
  std::string bad;
  for (const scenarios::ScoreTrial& trial : curves.trials) {
    if (trial.overflows == 0) continue;
    bad += fmt::format("{}{} in {}", bad.empty() ? "" : ", ", trial.policy, trial.overflows);
  }
  const std::string all = counted(curves.points.size(), "step") + " of a layer";
  if (bad.empty())
    return fmt::format("under no policy a score is beyond {:g} times its scale, in {}", curves.largest, all);
  return fmt::format("of {}, scores are beyond {:g} times their scale under {}", all, curves.largest, bad);
}

}  // namespace

Result<ScoreCurves> make_score_curves(RunView& run, const Recording* recording, std::stop_token stop) {
  scenarios::ScoreRunOptions options;
  options.stop = std::move(stop);
  auto scores = scenarios::score_run(run, recording, options);
  if (!scores) return tl::unexpected(scores.error());
  ScoreCurves curves;
  for (scenarios::ScoreTrial& trial : scenarios::try_score_policies(*scores, scenarios::policy_candidates({}))) {
    if (trial.problem.empty()) {
      curves.trials.push_back(std::move(trial));
    } else {
      curves.caveat =
          fmt::format("{}{}: {}", curves.caveat.empty() ? "" : curves.caveat + ", ", trial.policy, trial.problem);
    }
  }
  curves.points = std::move(scores->points);
  add_steps(run, curves);
  add_layers(curves);
  curves.headline = headline_of(curves);
  return curves;
}

}  // namespace nanscope::gui
