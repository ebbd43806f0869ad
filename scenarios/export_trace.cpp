#include "scenarios/export_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/files/output_file.h"
#include "core/parse_json.h"
#include "core/text/safe_text.h"

namespace nanscope::scenarios {
namespace {

using Json = nlohmann::json;

constexpr int kProcess = 1;
// Threads of the trace, in the order in which they are shown; streams follow.
constexpr std::int64_t kSteps = 1;
constexpr std::int64_t kOps = 2;
constexpr std::int64_t kMarkers = 3;
constexpr std::int64_t kLaunches = 4;  ///< work of no stream: the CPU's
constexpr std::int64_t kWaits = 5;
constexpr std::int64_t kFirstStream = 16;

/// Ends that overflow are no times that a clock gave.
bool sensible(const KernelRow& row) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 4;
  return row.start_ns >= 0 && row.duration_ns >= 0 && row.start_ns <= kMost && row.duration_ns <= kMost;
}

struct Span {
  std::int64_t begin = std::numeric_limits<std::int64_t>::max();
  std::int64_t end = 0;

  void cover(std::int64_t first, std::int64_t last) {
    begin = std::min(begin, first);
    end = std::max(end, last);
  }
  bool empty() const { return end < begin; }
};

/// Details are JSON that somebody may have written by hand.
Json details_of(const KernelRow& row) {
  Json details = parse_json_or_none<Json>(row.details);
  if (details.is_object()) return details;
  return Json{{"details", row.details}};
}

std::string word(const Json& details, const char* key) {
  const auto found = details.find(key);
  return found != details.end() && found->is_string() ? found->get<std::string>() : std::string();
}

class TraceText {
 public:
  explicit TraceText(std::int64_t origin_ns) : origin_(origin_ns) {}

  void complete(std::int64_t thread, const std::string& name, const Span& span, Json args, bool bad = false) {
    Json event = at(thread, name, "X", span.begin);
    event["dur"] = microseconds(span.end - span.begin);
    event["args"] = std::move(args);
    if (bad) event["cname"] = "terrible";
    add(event);
  }
  /// A point, or one end of a range that others may overlap.
  void marker(const KernelRow& row, Json args) {
    const std::string edge = word(args, "edge");
    Json event = at(kMarkers, row.name, edge == "begin" ? "b" : edge == "end" ? "e" : "i", row.start_ns);
    event["cat"] = "nvtx";
    if (edge == "begin" || edge == "end") event["id"] = args.value("id", Json(0));
    event["args"] = std::move(args);
    add(event);
  }
  void thread_name(std::int64_t thread, const std::string& name) {
    add({{"ph", "M"}, {"name", "thread_name"}, {"pid", kProcess}, {"tid", thread}, {"args", {{"name", name}}}});
    add({{"ph", "M"},
         {"name", "thread_sort_index"},
         {"pid", kProcess},
         {"tid", thread},
         {"args", {{"sort_index", thread}}}});
  }
  void process_name(const std::string& name) {
    add({{"ph", "M"}, {"name", "process_name"}, {"pid", kProcess}, {"args", {{"name", name}}}});
  }

  std::string finish(const Json& other) && {
    return fmt::format("{{\"displayTimeUnit\":\"ns\",\"otherData\":{},\n\"traceEvents\":[\n{}\n]}}\n", text_of(other),
                       text_);
  }

 private:
  static std::string text_of(const Json& json) {
    return visible_json(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  double microseconds(std::int64_t ns) const { return static_cast<double>(ns) / 1e3; }
  Json at(std::int64_t thread, const std::string& name, const char* phase, std::int64_t ns) const {
    return {{"name", name}, {"ph", phase}, {"pid", kProcess}, {"tid", thread}, {"ts", microseconds(ns - origin_)}};
  }
  void add(const Json& event) {
    if (!text_.empty()) text_ += ",\n";
    text_ += text_of(event);
  }

  std::int64_t origin_;
  std::string text_;
};

/// What is known before the first event is written.
struct Activity {
  std::vector<KernelRow> rows;  ///< sensible ones
  std::unordered_map<std::int64_t, Span> ops;
  std::unordered_set<std::int64_t> bad_ops;
  TraceCounts counts;
  std::int64_t origin_ns = std::numeric_limits<std::int64_t>::max();
};

Result<Activity> read_activity(const Recording& recording) {
  Activity activity;
  auto rows = recording.kernels();
  if (!rows) return tl::unexpected(rows.error());
  for (KernelRow& row : *rows) {
    const Json details = details_of(row);
    if (word(details, "kind") == "dropped") {
      const auto lost = details.find("records");
      if (lost != details.end() && lost->is_number_integer()) activity.counts.dropped += lost->get<std::int64_t>();
      continue;
    }
    if (!sensible(row)) {
      ++activity.counts.senseless;
      continue;
    }
    activity.origin_ns = std::min(activity.origin_ns, row.start_ns);
    if (row.op > 0) activity.ops[row.op].cover(row.start_ns, row.start_ns + row.duration_ns);
    activity.rows.push_back(std::move(row));
  }
  TensorFilter filter;
  filter.bad_only = true;
  const Status visited = recording.for_each_tensor(filter, [&](const TensorRow& tensor) {
    activity.bad_ops.insert(tensor.op);
    return true;
  });
  if (!visited) return tl::unexpected(visited.error());
  return activity;
}

std::int64_t thread_of(const Json& details, std::set<std::int64_t>& streams) {
  if (word(details, "kind") == "synchronization") return kWaits;
  const auto stream = details.find("stream");
  if (stream == details.end() || !stream->is_number_unsigned()) return kLaunches;
  const auto number = std::min<std::uint64_t>(stream->get<std::uint64_t>(), 1U << 30);
  streams.insert(static_cast<std::int64_t>(number));
  return kFirstStream + static_cast<std::int64_t>(number);
}

void write_work(TraceText& text, const Activity& activity) {
  std::set<std::int64_t> streams;
  for (const KernelRow& row : activity.rows) {
    Json details = details_of(row);
    if (row.op > 0) details["op"] = row.op;
    if (word(details, "kind") == "marker") {
      text.marker(row, std::move(details));
      continue;
    }
    const std::int64_t thread = thread_of(details, streams);
    text.complete(thread, row.name, {row.start_ns, row.start_ns + row.duration_ns}, std::move(details),
                  activity.bad_ops.contains(row.op));
  }
  for (const std::int64_t stream : streams) text.thread_name(kFirstStream + stream, fmt::format("stream {}", stream));
}

/// Steps and ops reach from the first start to the last end of their work.
Status write_ops(TraceText& text, const Recording& recording, Activity& activity) {
  const auto steps = recording.steps();
  if (!steps) return tl::unexpected(steps.error());
  std::unordered_map<std::int64_t, const StepRow*> by_id;
  for (const StepRow& step : *steps) by_id[step.id] = &step;
  std::unordered_map<std::int64_t, Span> step_spans;
  Status visited = recording.for_each_op_name([&](const OpRow& op) {
    const auto span = activity.ops.find(op.id);
    if (span == activity.ops.end()) return true;
    ++activity.counts.ops;
    step_spans[op.step].cover(span->second.begin, span->second.end);
    const auto step = by_id.find(op.step);
    Json args = {{"op", op.id}, {"kind", op.kind}, {"layer", op.layer}};
    if (step != by_id.end()) {
      args["request"] = step->second->request;
      args["step"] = step->second->index;
    }
    const bool bad = activity.bad_ops.contains(op.id);
    if (bad) args["bad"] = "NaN or Inf in an output";
    text.complete(kOps, op.name, span->second, std::move(args), bad);
    return true;
  });
  if (!visited) return visited;
  for (const StepRow& step : *steps) {
    const auto span = step_spans.find(step.id);
    if (span == step_spans.end()) continue;
    text.complete(kSteps, fmt::format("request {} step {}", step.request, step.index), span->second,
                  {{"tokens", step.tokens}, {"context", step.context}});
  }
  return {};
}

}  // namespace

Result<TraceCounts> export_trace(const Recording& recording, const std::filesystem::path& path,
                                 const OutputOptions& output) {
  auto activity = read_activity(recording);
  if (!activity) return tl::unexpected(activity.error());
  activity->counts.kernels = static_cast<std::int64_t>(activity->rows.size());
  if (activity->rows.empty()) {
    return fail(fmt::format("{}: no kernel activity is recorded; `nanscope run SCENARIO --trace` records it",
                            recording.path().string()));
  }
  TraceText text(activity->origin_ns);
  text.process_name(fmt::format("{} ({})", recording.info().device, recording.info().isa));
  text.thread_name(kSteps, "steps");
  text.thread_name(kOps, "ops");
  text.thread_name(kMarkers, "NVTX");
  text.thread_name(kLaunches, "launches");
  text.thread_name(kWaits, "synchronization");
  write_work(text, *activity);
  if (Status written = write_ops(text, recording, *activity); !written) return tl::unexpected(written.error());
  const Json other = {{"recording", recording.path().filename().string()},
                      {"nanscope", recording.info().nanscope_version},
                      {"scenario", recording.info().scenario},
                      {"dropped_records", activity->counts.dropped}};
  const std::string json = std::move(text).finish(other);
  if (Status written = write_output(path, json, output); !written) return tl::unexpected(written.error());
  return activity->counts;
}

}  // namespace nanscope::scenarios
