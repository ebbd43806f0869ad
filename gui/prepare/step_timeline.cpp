#include "gui/prepare/step_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/counted.h"
#include "gui/prepare/requests_told.h"

namespace nanscope::gui {
namespace {

/// What is not healthy before what is, then the larger one.
bool tells_more(const ModuleStep& one, const ModuleStep& other) {
  const auto severity = [](const ModuleStep& step) { return step.health >= kLowHeadroom ? step.health : kAbsent; };
  if (severity(one) != severity(other)) return severity(one) > severity(other);
  return one.absmax > other.absmax;
}

void add(ModuleStep& step, const ModuleStep& one) {
  if (step.tensor == ModuleStep::kNoTensor || tells_more(one, step)) step.tensor = one.tensor;
  step.absmax = std::max(step.absmax, one.absmax);
  step.health = std::max(step.health, one.health);
  step.nan += one.nan;
  step.inf += one.inf;
  step.clipped += one.clipped;
}

class TimelineBuilder {
 public:
  TimelineBuilder(RunView& run, const RunMap& map, std::shared_ptr<const TensorIndex> index,
                  std::optional<std::int64_t> layer)
      : run_(run), map_(map), index_(*index) {
    made_.index = std::move(index);
    made_.layer = layer;
  }

  Result<StepTimeline> make() {
    add_columns();
    add_requests();
    add_modules();
    for (ModuleLane& lane : made_.modules) sum_up(lane);
    say();
    if (Status status = run_.status(); !status) return tl::unexpected(status.error());
    return std::move(made_);
  }

 private:
  void add_columns() {
    column_of_.resize(index_.steps.size());
    for (std::size_t i = 0; i < index_.steps.size(); ++i) {
      const Step* step = run_.step(index_.steps[i].id);
      if (step == nullptr || step->spans.empty()) continue;
      column_of_[i] = made_.columns.size();
      StepColumn column{static_cast<std::uint32_t>(i), index_.steps[i].rank, {}};
      for (const Span& span : step->spans) column.spans.emplace_back(span.request, span.index);
      made_.columns.push_back(std::move(column));
    }
  }

  void add_requests() {
    std::map<std::int64_t, std::size_t> lanes;
    for (std::size_t i = 0; i < made_.columns.size(); ++i) {
      for (const auto& [request, index] : made_.columns[i].spans) {
        const auto [lane, added] = lanes.try_emplace(request, made_.requests.size());
        if (added) {
          made_.requests.push_back({request, request_name(run_, request), {}});
          made_.requests.back().cells.assign(made_.columns.size(), kAbsent);
        }
        const MapStep* step = map_.find_step(request, index, made_.columns[i].rank);
        if (step != nullptr) made_.requests[lane->second].cells[i] = step->worst;
      }
    }
  }

  void add_modules() {
    std::vector<std::size_t> lane_of(index_.rows.size(), index_.rows.size());
    std::map<std::string, std::size_t> lanes;
    for (std::size_t row = 0; row < index_.rows.size(); ++row) {
      const MapRow& op = index_.rows[row];
      if (made_.layer && op.layer != *made_.layer) continue;
      const auto [lane, added] = lanes.try_emplace(op.op, made_.modules.size());
      if (added) {
        made_.modules.emplace_back().module = op.op;
        made_.modules.back().steps.resize(made_.columns.size());
      }
      lane_of[row] = lane->second;
    }
    for (std::size_t i = 0; i < index_.size(); ++i) {
      const std::optional<std::size_t>& column = column_of_[index_.step[i]];
      const std::size_t lane = lane_of[index_.row[i]];
      if (!column || lane >= made_.modules.size() || index_.cell[i] == kAbsent) continue;
      const TensorCounts& counts = index_.counts_of(i);
      add(made_.modules[lane].steps[*column],
          {index_.magnitude[i], counts.nan, counts.inf, counts.clipped + counts.clipped_rows, index_.cell[i],
           static_cast<std::uint32_t>(i)});
    }
    std::erase_if(made_.modules, [](const ModuleLane& lane) {
      return std::all_of(lane.steps.begin(), lane.steps.end(),
                         [](const ModuleStep& step) { return step.health == kAbsent; });
    });
  }

  static void sum_up(ModuleLane& lane) {
    double before = 0;
    for (std::size_t i = 0; i < lane.steps.size(); ++i) {
      const ModuleStep& step = lane.steps[i];
      lane.nan += step.nan;
      lane.inf += step.inf;
      lane.clipped += step.clipped;
      const auto now = static_cast<double>(step.absmax);
      lane.range.cover(now);
      if (!(now > 0)) continue;
      const double ratio = before > 0 ? now / before : 1;
      if (ratio > lane.jump) {
        lane.jump = ratio;
        lane.jumps_at = i;
      }
      before = now;
    }
  }

  void say() {
    made_.headline =
        fmt::format("{} of {}", counted(made_.columns.size(), "step"), counted(made_.requests.size(), "request"));
    const auto most = std::max_element(made_.modules.begin(), made_.modules.end(),
                                       [](const ModuleLane& a, const ModuleLane& b) { return a.jump < b.jump; });
    if (most == made_.modules.end() || !most->jumps_at) return;
    const auto& [request, index] = made_.columns[*most->jumps_at].spans.front();
    made_.headline += fmt::format("; the largest jump of absmax: {} grows {:.3g} times in request {} step {}",
                                  most->module, most->jump, request, index);
  }

  RunView& run_;
  const RunMap& map_;
  const TensorIndex& index_;
  std::vector<std::optional<std::size_t>> column_of_;  ///< of each of the index's steps
  StepTimeline made_;
};

}  // namespace

std::optional<std::size_t> StepTimeline::find(const Place& place) const {
  if (!place.request || !place.step) return std::nullopt;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto& spans = columns[i].spans;
    if (columns[i].rank != place.rank) continue;
    if (std::find(spans.begin(), spans.end(), std::pair(*place.request, *place.step)) != spans.end()) return i;
  }
  return std::nullopt;
}

Result<StepTimeline> make_step_timeline(RunView& run, const RunMap& map, std::shared_ptr<const TensorIndex> index,
                                        std::optional<std::int64_t> layer) {
  return TimelineBuilder(run, map, std::move(index), layer).make();
}

ModuleStep together(const ModuleLane& lane, std::size_t begin, std::size_t end) {
  ModuleStep all;
  for (std::size_t i = begin; i < std::min(end, lane.steps.size()); ++i) {
    if (lane.steps[i].health != kAbsent) add(all, lane.steps[i]);
  }
  return all;
}

}  // namespace nanscope::gui
