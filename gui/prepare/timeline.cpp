#include "gui/prepare/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

namespace nanscope::gui {
namespace {

struct Lanes {
  std::vector<TimelineLane> lanes;
  std::map<std::string, std::size_t, std::less<>> by_kind;
  std::map<std::int64_t, std::size_t> by_op;

  TimelineLane& of(const std::string& kind) {
    const auto [at, added] = by_kind.try_emplace(kind, lanes.size());
    if (added) lanes.emplace_back().kind = kind;
    return lanes[at->second];
  }
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

void add_bar(TimelineLane& lane, std::int64_t first, std::int64_t last, const KernelRow& kernel, bool bad) {
  lane.kernels += 1;
  lane.busy_ns += kernel.duration_ns;
  if (lane.bars.empty() || first > lane.bars.back().last) {
    lane.bars.push_back({first, last, 1, kernel.duration_ns, kernel.op, kernel.name, bad});
    return;
  }
  TimelineBar& bar = lane.bars.back();
  // The mean so far is a lower bound of the longest: enough to name the bar after a long kernel.
  if (kernel.duration_ns > bar.busy_ns / bar.kernels) {
    bar.op = kernel.op;
    bar.name = kernel.name;
  }
  bar.last = std::max(bar.last, last);
  bar.kernels += 1;
  bar.busy_ns += kernel.duration_ns;
  bar.bad = bar.bad || bad;
}

}  // namespace

Timeline lay_out_timeline(std::span<const OpRow> ops, std::span<const std::int64_t> bad_ops,
                          std::span<const KernelRow> kernels, std::int64_t columns) {
  Timeline timeline;
  timeline.columns = std::max<std::int64_t>(columns, 1);
  Lanes lanes;
  for (const OpRow& op : ops) {
    TimelineLane& lane = lanes.of(op.kind);
    if (lane.ops++ == 0) lane.first_op = op.id;
    if (is_bad(bad_ops, op.id) && lane.bad_ops++ == 0) lane.first_bad = op.id;
    lanes.by_op[op.id] = lanes.by_kind[op.kind];
  }
  std::vector<const KernelRow*> by_time;
  for (const KernelRow& kernel : kernels) {
    if (sensible(kernel) && lanes.by_op.contains(kernel.op)) by_time.push_back(&kernel);
  }
  std::stable_sort(by_time.begin(), by_time.end(),
                   [](const KernelRow* a, const KernelRow* b) { return a->start_ns < b->start_ns; });
  if (!by_time.empty()) {
    const std::int64_t begin = by_time.front()->start_ns;
    for (const KernelRow* kernel : by_time) {
      timeline.span_ns = std::max(timeline.span_ns, kernel->start_ns - begin + kernel->duration_ns);
    }
    const double scale =
        static_cast<double>(timeline.columns) / static_cast<double>(std::max<std::int64_t>(timeline.span_ns, 1));
    for (const KernelRow* kernel : by_time) {
      const auto column = [&](std::int64_t at) {
        return std::min(static_cast<std::int64_t>(static_cast<double>(at - begin) * scale), timeline.columns - 1);
      };
      const std::int64_t end = kernel->start_ns + std::max<std::int64_t>(kernel->duration_ns - 1, 0);
      TimelineLane& lane = lanes.lanes[lanes.by_op[kernel->op]];
      add_bar(lane, column(kernel->start_ns), column(end), *kernel, is_bad(bad_ops, kernel->op));
      timeline.busy_ns += kernel->duration_ns;
    }
  }
  timeline.kernels = static_cast<std::int64_t>(by_time.size());
  timeline.lanes = std::move(lanes.lanes);
  std::stable_sort(timeline.lanes.begin(), timeline.lanes.end(), [](const TimelineLane& a, const TimelineLane& b) {
    return std::pair(a.busy_ns, a.ops) > std::pair(b.busy_ns, b.ops);
  });
  return timeline;
}

Result<Timeline> make_timeline(const Recording& recording, std::int64_t columns) {
  const Result<std::vector<OpRow>> ops = recording.ops();
  if (!ops) return tl::unexpected(ops.error());
  std::vector<std::int64_t> bad;
  TensorFilter filter;
  filter.bad_only = true;
  const Status visited = recording.for_each_tensor(filter, [&bad](const TensorRow& row) {
    bad.push_back(row.op);
    return true;
  });
  if (!visited) return tl::unexpected(visited.error());
  std::sort(bad.begin(), bad.end());
  const Result<std::vector<KernelRow>> kernels = recording.kernels();
  if (!kernels) return tl::unexpected(kernels.error());
  Timeline timeline = lay_out_timeline(*ops, bad, *kernels, columns);
  timeline.device = recording.info().device;
  timeline.isa = recording.info().isa;
  timeline.on_cpu = timeline.device.starts_with("cpu");
  return timeline;
}

std::string duration_text(std::int64_t nanoseconds) {
  const auto value = static_cast<double>(nanoseconds);
  if (nanoseconds < 1000) return fmt::format("{} ns", nanoseconds);
  if (value < 1e6) return fmt::format("{:.3g} \u00B5s", value / 1e3);
  if (value < 1e9) return fmt::format("{:.3g} ms", value / 1e6);
  return fmt::format("{:.3g} s", value / 1e9);
}

}  // namespace nanscope::gui
