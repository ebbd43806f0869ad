#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/recording/reader.h"
#include "core/result.h"
#include "gui/facts.h"
#include "gui/prepare/prepared.h"

namespace nanscope::gui {

/// Kernels that are drawn as one bar: those of a lane that touch the same columns.
struct TimelineBar {
  std::int64_t first = 0;  ///< column, 0 to columns - 1
  std::int64_t last = 0;
  std::int64_t kernels = 0;
  std::int64_t busy_ns = 0;
  std::int64_t op = 0;  ///< of the longest of them
  std::string name;     ///< of that one
  bool bad = false;     ///< one of their ops has a NaN or an Inf in an output
};

/// All ops of one kind, or the copies, fills or waits that belong to no op.
struct TimelineLane {
  std::string kind;
  std::int64_t ops = 0;
  std::int64_t bad_ops = 0;    ///< with a NaN or an Inf in an output
  std::int64_t first_bad = 0;  ///< OpRow::id, 0: none
  std::int64_t first_op = 0;
  std::int64_t kernels = 0;
  std::int64_t busy_ns = 0;
  std::vector<TimelineBar> bars;  ///< by time
};

/// What ran when, and how much of what. Without recorded kernels only the ops are counted.
struct Timeline final : Prepared {
  std::vector<TimelineLane> lanes;  ///< the busiest first; without kernels, the most frequent first
  std::int64_t columns = 0;
  std::int64_t kernels = 0;
  std::int64_t span_ns = 0;  ///< from the first start to the last end
  std::int64_t busy_ns = 0;
  std::string device;  ///< as recorded
  std::string isa;
  bool on_cpu = true;
  bool of_dump = false;
  std::string scenario;  ///< as recorded; empty: no scenario was run
};

/// What is said above the lanes. Where no times are known: why, what the bars are instead, and what records them.
struct TimelineWords {
  std::string title;
  std::string words;
  std::string command;  ///< empty: none is needed
};
TimelineWords words_of(const Timeline& timeline);

/// Lays kernels out over `columns` columns of time, none sampled away. `bad_ops` are ids in ascending order.
Timeline lay_out_timeline(std::span<const OpRow> ops, std::span<const std::int64_t> bad_ops,
                          std::span<const KernelRow> kernels, std::int64_t columns);

/// Errors: rows cannot be read.
Result<Timeline> make_timeline(const Recording& recording, std::int64_t columns);
/// Of a run that has no kernels.
Result<Timeline> make_timeline(RunView& run, std::int64_t columns);
Result<Timeline> make_timeline(RunFacts& facts, std::int64_t columns);

/// "812 ns", "4.2 µs", "1.3 ms", "2.1 s".
std::string duration_text(std::int64_t nanoseconds);

}  // namespace nanscope::gui
