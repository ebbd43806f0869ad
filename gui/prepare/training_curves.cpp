#include "gui/prepare/training_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "core/counted.h"
#include "core/run/op_attributes.h"

namespace nanscope::gui {
namespace {

constexpr double kNotTold = std::numeric_limits<double>::quiet_NaN();

std::optional<OpRow> op_of_kind(RunData& rows, const StepRow& step, OpKind kind) {
  OpFilter filter;
  filter.step = step.id;
  filter.kind = std::string(name(kind));
  filter.limit = 1;
  std::vector<OpRow> found = rows.ops(filter);
  if (found.empty()) return std::nullopt;
  return std::move(found.front());
}

/// The one number of a tensor, by its health.
double only_value(const Health& health) {
  if (health.nan > 0) return std::numeric_limits<double>::quiet_NaN();
  if (health.pos_inf > 0) return std::numeric_limits<double>::infinity();
  return health.min > health.max ? 0.0 : double{health.max};
}

class CurveMaker {
 public:
  explicit CurveMaker(RunData& rows) : rows_(rows) {}

  /// Ranks of data parallelism train alike: the first is drawn.
  void take(const StepRow& step) {
    if (step.rank > 0) return;
    if (step.kind == StepKind::forward) curves_.points.emplace_back();
    if (curves_.points.empty()) return;
    if (step.kind == StepKind::forward) take_forward(step);
    if (step.kind == StepKind::backward) take_backward(step);
    if (step.kind == StepKind::optimizer) take_optimizer(step);
  }

  TrainingCurves finish() {
    say();
    return std::move(curves_);
  }

 private:
  void tell(TrainingCurve curve, const StepRow& step, const OpRow& op, std::string role, std::optional<double> value) {
    const auto at = static_cast<std::size_t>(curve);
    TrainingPoint& point = curves_.points.back();
    point.values[at] = value.value_or(kNotTold);
    point.told[at] = value.has_value();
    Place place;
    place.request = step.request;
    place.step = step.index;
    place.layer = op.layer;
    place.op = op.name;
    place.role = std::move(role);
    point.places[at] = std::move(place);
    if (value) curves_.ranges[at].cover(*value);
  }

  void take_forward(const StepRow& step) {
    const auto op = op_of_kind(rows_, step, OpKind::cross_entropy);
    if (!op) return;
    const OpAttributes attributes = attributes_from_json(OpKind::cross_entropy, op->attributes);
    const auto* loss = std::get_if<LossAttributes>(&attributes);
    if (loss != nullptr) tell(TrainingCurve::loss, step, *op, "loss", loss->mean);
  }

  void take_backward(const StepRow& step) {
    const auto op = op_of_kind(rows_, step, OpKind::cross_entropy_gradient);
    if (!op) return;
    const OpAttributes attributes = attributes_from_json(OpKind::cross_entropy_gradient, op->attributes);
    const auto* loss = std::get_if<LossAttributes>(&attributes);
    if (loss != nullptr) tell(TrainingCurve::loss_scale, step, *op, "dlogits", loss->loss_scale);
  }

  void take_optimizer(const StepRow& step) {
    if (const auto op = op_of_kind(rows_, step, OpKind::gradient_norm)) {
      const OpAttributes attributes = attributes_from_json(OpKind::gradient_norm, op->attributes);
      if (const auto* norm = std::get_if<GradientNormAttributes>(&attributes)) {
        curves_.points.back().skipped = norm->skipped.value_or(false);
      }
      const auto out = rows_.output(op->id, "norm");
      if (out) tell(TrainingCurve::gradient_norm, step, *op, "norm", only_value(out->health));
    }
    // All weights of a step have one.
    if (const auto op = op_of_kind(rows_, step, OpKind::adamw)) {
      const OpAttributes attributes = attributes_from_json(OpKind::adamw, op->attributes);
      const auto* adamw = std::get_if<AdamWAttributes>(&attributes);
      if (adamw != nullptr) tell(TrainingCurve::learning_rate, step, *op, "weight", adamw->learning_rate);
    }
  }

  void say() {
    const auto loss = static_cast<std::size_t>(TrainingCurve::loss);
    const auto norm = static_cast<std::size_t>(TrainingCurve::gradient_norm);
    const std::vector<TrainingPoint>& points = curves_.points;
    if (points.empty()) return;
    const auto bad = std::find_if(points.begin(), points.end(), [&](const TrainingPoint& point) {
      return (point.told[loss] && !std::isfinite(point.values[loss])) ||
             (point.told[norm] && !std::isfinite(point.values[norm]));
    });
    const auto skipped = std::count_if(points.begin(), points.end(), [](const auto& point) { return point.skipped; });
    curves_.headline = fmt::format("{}, loss {} to {}", counted(points.size(), "training step"),
                                   short_number(points.front().values[loss]), short_number(points.back().values[loss]));
    if (skipped > 0) curves_.headline += fmt::format(", {} skipped", skipped);
    if (bad != points.end()) {
      curves_.headline += fmt::format("; not finite first in step {}", bad - points.begin());
    }
  }

  RunData& rows_;
  TrainingCurves curves_;
};

}  // namespace

std::string_view name_of(TrainingCurve curve) {
  switch (curve) {
    case TrainingCurve::loss:
      return "loss";
    case TrainingCurve::gradient_norm:
      return "gradient norm";
    case TrainingCurve::learning_rate:
      return "learning rate";
    case TrainingCurve::loss_scale:
      return "loss scale";
  }
  return {};
}

Result<TrainingCurves> make_training_curves(RunData& rows, const std::stop_token& stop) {
  CurveMaker maker(rows);
  for (const StepRow& step : rows.steps()) {
    if (stop.stop_requested()) return fail("stopped");
    maker.take(step);
  }
  if (Status status = rows.status(); !status) return tl::unexpected(status.error());
  return maker.finish();
}

}  // namespace nanscope::gui
