#include <algorithm>
#include <cmath>
#include <set>

#include "core/diagnosis/detectors/births.h"

/// The statistics that norms took roots of.
namespace nanscope {
namespace {

// Without a birth to point at, so many steps are searched for the smallest variance.
constexpr std::size_t kStepsWithClips = 8;
constexpr std::size_t kStepsWithout = 2;

std::vector<OpRow> norms_worth_a_look(Facts& facts) {
  if (const SickOp* birth = first_norm_birth(facts)) return {birth->op};
  std::set<std::int64_t> steps;
  for (const Clip& clip : facts.clips()) {
    if (steps.size() < kStepsWithClips) steps.insert(clip.scale.step);
  }
  for (const StepRow& step : facts.run.steps()) {
    if (steps.size() >= kStepsWithout) break;
    steps.insert(step.id);
  }
  std::vector<OpRow> found;
  for (const std::int64_t step : steps) {
    OpFilter filter;
    filter.step = step;
    filter.kind = "layer_norm";
    for (OpRow& op : facts.run.ops(filter)) found.push_back(std::move(op));
  }
  return found;
}

}  // namespace

float NormRow::radicand() const { return (clamp ? std::max(variance, 0.0F) : variance) + static_cast<float>(eps); }

std::vector<NormRow> norm_rows(Facts& facts, const OpRow& op) {
  std::vector<NormRow> found;
  const std::optional<TensorRow> stats = facts.run.output(op.id, "stats");
  if (!stats) return found;
  const std::shared_ptr<const TensorData> data = facts.elements(*stats);
  if (!data) return found;
  const double eps = number_attribute(op, "eps").value_or(0);
  const bool clamp = number_attribute(op, "clamp").value_or(0) != 0;
  for (std::int64_t row = 0; row < data->tokens; ++row) {
    for (std::int64_t group = 0; 3 * group + 2 < data->channels; ++group) {
      found.push_back({op, *stats, row, group, data->value(row, 3 * group), data->value(row, 3 * group + 1),
                       data->value(row, 3 * group + 2), eps, clamp});
    }
  }
  return found;
}

NormScan scan_norms(Facts& facts) {
  NormScan scan;
  bool any_norm = false;
  for (const OpRow& op : norms_worth_a_look(facts)) {
    any_norm = true;
    for (NormRow& row : norm_rows(facts, op)) {
      if (std::isnan(row.variance)) continue;
      ++scan.rows;
      if (row.variance <= 0) ++scan.not_positive;
      if (std::isfinite(row.mean) && std::isnan(row.root)) ++scan.no_root;
      if (scan.lowest.empty()) {
        scan.lowest.push_back(std::move(row));
      } else if (row.variance < scan.lowest.front().variance) {
        scan.lowest.front() = std::move(row);
      }
    }
  }
  scan.available = scan.rows > 0 || !any_norm;
  return scan;
}

}  // namespace nanscope
