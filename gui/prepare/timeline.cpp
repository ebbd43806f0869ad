#include "gui/prepare/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/counted.h"

namespace nanscope::gui {
namespace {

/// Strings that are many times the same, each kept once.
class Words {
 public:
  std::uint32_t number(const std::string& word) {
    const auto [at, added] = numbers_.try_emplace(word, static_cast<std::uint32_t>(words_.size()));
    if (added) words_.push_back(word);
    return at->second;
  }
  const std::string& operator[](std::uint32_t number) const { return words_[number]; }

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<std::string> words_;
};

/// A kernel in few bytes: a recording may hold millions.
struct KernelSpan {
  std::int64_t op = 0;
  std::int64_t start_ns = 0;
  std::int64_t duration_ns = 0;
  std::uint32_t name = 0;
  std::uint32_t lane = 0;
};

bool is_bad(std::span<const std::int64_t> bad_ops, std::int64_t op) {
  return std::binary_search(bad_ops.begin(), bad_ops.end(), op);
}

/// Ends that overflow are no times that a clock gave: such rows count, but are not drawn.
bool sensible(const KernelRow& kernel) {
  return kernel.start_ns >= 0 && kernel.duration_ns >= 0 &&
         kernel.duration_ns <= std::numeric_limits<std::int64_t>::max() / 4 &&
         kernel.start_ns <= std::numeric_limits<std::int64_t>::max() / 4;
}

/// Of work that belongs to no op: copies, fills and waits by the first word of their names.
std::string kind_of(const std::string& name) {
  for (const std::string_view kind : {"memcpy", "memset", "synchronize"}) {
    if (name.starts_with(kind)) return std::string(kind);
  }
  return "other work";
}

void add_bar(TimelineLane& lane, std::int64_t first, std::int64_t last, const KernelSpan& kernel, const Words& names,
             bool bad) {
  lane.kernels += 1;
  lane.busy_ns += kernel.duration_ns;
  if (lane.bars.empty() || first > lane.bars.back().last) {
    lane.bars.push_back({first, last, 1, kernel.duration_ns, kernel.op, names[kernel.name], bad});
    return;
  }
  TimelineBar& bar = lane.bars.back();
  // The mean so far is a lower bound of the longest: enough to name the bar after a long kernel.
  if (kernel.duration_ns > bar.busy_ns / bar.kernels) {
    bar.op = kernel.op;
    bar.name = names[kernel.name];
  }
  bar.last = std::max(bar.last, last);
  bar.kernels += 1;
  bar.busy_ns += kernel.duration_ns;
  bar.bad = bar.bad || bad;
}

/// Takes rows one at a time, all ops before the first kernel, and keeps what a timeline is made of.
class TimelineMaker {
 public:
  explicit TimelineMaker(std::span<const std::int64_t> bad_ops) : bad_ops_(bad_ops) {}

  void add(const OpRow& op) {
    const std::uint32_t at = lane_of(op.kind);
    TimelineLane& lane = lanes_[at];
    if (lane.ops++ == 0) lane.first_op = op.id;
    if (is_bad(bad_ops_, op.id) && lane.bad_ops++ == 0) lane.first_bad = op.id;
    ops_.push_back({op.id, at});
  }

  void add(const KernelRow& kernel) {
    if (!sensible(kernel)) return;
    std::uint32_t lane = 0;
    if (kernel.op == 0) {
      if (kernel.start_ns == 0 && kernel.duration_ns == 0) return;  // a remark: it happened at no time
      lane = lane_of(kind_of(kernel.name));
    } else {
      const auto op = std::lower_bound(ops_.begin(), ops_.end(), std::pair(kernel.op, std::uint32_t{0}));
      if (op == ops_.end() || op->first != kernel.op) return;
      lane = op->second;
    }
    kernels_.push_back({kernel.op, kernel.start_ns, kernel.duration_ns, names_.number(kernel.name), lane});
  }

  Timeline make(std::int64_t columns) {
    Timeline timeline;
    timeline.columns = std::max<std::int64_t>(columns, 1);
    std::stable_sort(kernels_.begin(), kernels_.end(),
                     [](const KernelSpan& a, const KernelSpan& b) { return a.start_ns < b.start_ns; });
    draw_bars(timeline);
    timeline.kernels = static_cast<std::int64_t>(kernels_.size());
    timeline.lanes = std::move(lanes_);
    std::stable_sort(timeline.lanes.begin(), timeline.lanes.end(), [](const TimelineLane& a, const TimelineLane& b) {
      return std::pair(a.busy_ns, a.ops) > std::pair(b.busy_ns, b.ops);
    });
    return timeline;
  }

 private:
  std::uint32_t lane_of(const std::string& kind) {
    const std::uint32_t at = kinds_.number(kind);
    if (at == lanes_.size()) lanes_.emplace_back().kind = kind;
    return at;
  }

  void draw_bars(Timeline& timeline) {
    if (kernels_.empty()) return;
    const std::int64_t begin = kernels_.front().start_ns;
    for (const KernelSpan& kernel : kernels_) {
      timeline.span_ns = std::max(timeline.span_ns, kernel.start_ns - begin + kernel.duration_ns);
    }
    const double scale =
        static_cast<double>(timeline.columns) / static_cast<double>(std::max<std::int64_t>(timeline.span_ns, 1));
    const auto column = [&](std::int64_t at) {
      return std::min(static_cast<std::int64_t>(static_cast<double>(at - begin) * scale), timeline.columns - 1);
    };
    for (const KernelSpan& kernel : kernels_) {
      const std::int64_t end = kernel.start_ns + std::max<std::int64_t>(kernel.duration_ns - 1, 0);
      add_bar(lanes_[kernel.lane], column(kernel.start_ns), column(end), kernel, names_, is_bad(bad_ops_, kernel.op));
      timeline.busy_ns += kernel.duration_ns;
    }
  }

  std::span<const std::int64_t> bad_ops_;
  Words kinds_;  ///< numbered as the lanes
  Words names_;
  std::vector<TimelineLane> lanes_;
  std::vector<std::pair<std::int64_t, std::uint32_t>> ops_;  ///< id, lane; ascending
  std::vector<KernelSpan> kernels_;
};

/// A name that is no name of a scenario is left to whoever types the command.
std::string scenario_to_type(const std::string& scenario) {
  const bool plain = !scenario.empty() && std::all_of(scenario.begin(), scenario.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
  return plain && scenario.front() != '-' ? scenario : "SCENARIO";
}

TimelineWords words_of_times(const Timeline& timeline) {
  std::int64_t others = 0;
  for (const TimelineLane& lane : timeline.lanes) others += lane.ops > 0 ? 0 : lane.kernels;
  const std::string also = others > 0 ? " and " + counted(others, "other record") : "";
  return {
      fmt::format("{}{} in {}", counted(timeline.kernels - others, "kernel"), also, duration_text(timeline.span_ns)),
      fmt::format("{} of work; crossed where an output holds a NaN or an Inf", duration_text(timeline.busy_ns)), ""};
}

}  // namespace

TimelineWords words_of(const Timeline& timeline) {
  if (timeline.kernels > 0) return words_of_times(timeline);
  const std::string bars =
      "The length of a bar is a number of ops, not a time; its crossed end are those with a NaN or an Inf in an "
      "output.";
  const std::string live = "nanscope attach --run -o live.nanscope -- COMMAND";
  const std::string on_gpu = " On a GPU, this records when the kernels of the program itself run:";
  if (timeline.of_dump) {
    return {"No times: a dump holds none", bars + " It tells what was computed, not when." + on_gpu, live};
  }
  if (timeline.scenario.empty()) {
    return {"No times in this recording",
            bars + " It was made of a dump or under --watch, and neither tells when a kernel ran." + on_gpu, live};
  }
  const std::string what = timeline.on_cpu ? " This records when each op was launched on the CPU; with --device cuda, "
                                             "when each kernel ran on a GPU (CUPTI):"
                                           : " This records when each kernel ran (CUPTI):";
  return {"No times: run without --trace", bars + what,
          fmt::format("nanscope run {} --trace{}", scenario_to_type(timeline.scenario),
                      timeline.on_cpu ? "" : " --device cuda")};
}

Timeline lay_out_timeline(std::span<const OpRow> ops, std::span<const std::int64_t> bad_ops,
                          std::span<const KernelRow> kernels, std::int64_t columns) {
  TimelineMaker maker(bad_ops);
  for (const OpRow& op : ops) maker.add(op);
  for (const KernelRow& kernel : kernels) maker.add(kernel);
  return maker.make(columns);
}

Result<Timeline> make_timeline(const Recording& recording, std::int64_t columns) {
  std::vector<std::int64_t> bad;
  TensorFilter filter;
  filter.bad_only = true;
  Status visited = recording.for_each_tensor(filter, [&bad](const TensorRow& row) {
    bad.push_back(row.op);
    return true;
  });
  std::sort(bad.begin(), bad.end());
  TimelineMaker maker(bad);
  const auto take = [&maker](const auto& row) {
    maker.add(row);
    return true;
  };
  if (visited) visited = recording.for_each_op_name(take);
  if (visited) visited = recording.for_each_kernel(take);
  if (!visited) return tl::unexpected(visited.error());
  Timeline timeline = maker.make(columns);
  timeline.device = recording.info().device;
  timeline.isa = recording.info().isa;
  timeline.on_cpu = timeline.device.starts_with("cpu");
  timeline.scenario = recording.info().scenario;
  return timeline;
}

Result<Timeline> make_timeline(RunView& run, std::int64_t columns) {
  std::vector<std::int64_t> bad;
  std::vector<OpRow> ops;
  std::vector<StepId> steps{kBeforeSteps};
  for (const Step& step : run.steps()) steps.push_back(step.id);
  for (const StepId step : steps) {
    for (const Op& op : run.content(step).ops) {
      OpRow row;
      row.id = op.id;
      row.kind = name(op.kind);
      ops.push_back(std::move(row));
    }
    for (const Tensor& tensor : run.content(step).tensors) {
      if (tensor.known && RunView::symptomatic(tensor)) bad.push_back(tensor.op);
    }
  }
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  std::sort(bad.begin(), bad.end());
  Timeline timeline = lay_out_timeline(ops, bad, {}, columns);
  timeline.device = run.info().device;
  timeline.isa = run.info().isa;
  timeline.of_dump = true;
  return timeline;
}

Result<Timeline> make_timeline(RunFacts& facts, std::int64_t columns) {
  return facts.recording() != nullptr ? make_timeline(*facts.recording(), columns)
                                      : make_timeline(facts.view(), columns);
}

std::string duration_text(std::int64_t nanoseconds) {
  const auto value = static_cast<double>(nanoseconds);
  if (nanoseconds < 1000) return fmt::format("{} ns", nanoseconds);
  if (value < 1e6) return fmt::format("{:.3g} \u00B5s", value / 1e3);
  if (value < 1e9) return fmt::format("{:.3g} ms", value / 1e6);
  return fmt::format("{:.3g} s", value / 1e9);
}

}  // namespace nanscope::gui
