#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/place.h"
#include "core/result.h"
#include "core/run/run_data.h"
#include "core/run/run_view.h"
#include "gui/cell.h"
#include "gui/prepare/prepared.h"

namespace nanscope::gui {

/// An op of the model; the same op of another step is the same row.
struct MapRow {
  std::string op;
  std::int64_t layer = -1;
  std::string group;         ///< "embed", "layer 3", "head"
  bool once_a_span = false;  ///< of several ops of a step, whose names end in the number of their span
};

/// What a step does for one request. Its columns are the request's tokens: rows that are nobody's have none.
struct MapStep {
  StepRow row;
  std::int64_t rank = 0;
  std::int64_t first_column = 0;
  std::int64_t tokens = 0;
  std::size_t first_op = 0;  ///< index in RunMap::ops
  Cell worst = kAbsent;
};

/// Neighbouring steps of one request and kind.
struct MapSpan {
  std::int64_t rank = 0;
  std::int64_t request = 0;
  StepKind kind = StepKind::prefill;
  std::int64_t begin = 0;  ///< columns, the end not included
  std::int64_t end = 0;
  std::int64_t steps = 0;
};

/// One executed op, in logical order.
struct MapOp {
  std::int64_t id = 0;
  std::uint32_t step = 0;  ///< index in RunMap::steps: of the first request that the op worked for
  std::uint32_t row = 0;   ///< index in RunMap::rows
  std::int32_t span = -1;  ///< of those of a row that runs once a span: which
};

struct MapRequest {
  RequestRow row;
  std::map<std::int64_t, std::string> token_text;  ///< by position; bytes, not to be trusted
  std::vector<std::uint32_t> steps;                ///< indices in RunMap::steps
  Cell worst = kAbsent;
};

/// Rows of codes that hold clipped values, ascending.
using ClippedRows = std::map<TensorId, std::vector<std::int64_t>>;

/// The whole run at a glance: token x (layer, op) over all requests and steps.
struct RunMap final : Prepared {
  bool exact = true;  ///< else tokens of steps that are not read yet show the worst of their tensor
  RecordingCounts counts;
  std::vector<MapRequest> requests;
  std::vector<MapStep> steps;
  std::vector<MapSpan> spans;
  std::vector<MapOp> ops;
  std::vector<MapRow> rows;
  std::int64_t columns = 0;
  std::vector<Cell> cells;  ///< rows x columns, row-major
  /// By rank, request and index in it.
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::size_t> step_of;
  ClippedRows clipped_rows;  ///< where no recording counts what casts clipped; whole when the map is exact

  std::span<const Cell> row(std::size_t index) const {
    return std::span(cells).subspan(index * static_cast<std::size_t>(columns), static_cast<std::size_t>(columns));
  }
  const MapRequest* request(std::int64_t id) const;
  /// The step whose column it is; nothing outside the map.
  const MapStep* step_at(std::int64_t column) const;
  const MapStep* find_step(std::int64_t request, std::int64_t index, std::int64_t rank = 0) const;
  const MapStep* find_step(const Place& place) const;
  /// Columns of all requests that share a step; the end is not included.
  std::pair<std::int64_t, std::int64_t> columns_of(const MapStep& step) const;
  /// The row of an op by its name.
  std::optional<std::size_t> find_row(std::int64_t layer, const std::string& op) const;
  /// Index in `ops` of the op that the place names in full.
  std::optional<std::size_t> find_op(const Place& place) const;
  /// Column of the place's token, of its step's first token when it names none.
  std::optional<std::int64_t> find_column(const Place& place) const;
  std::string name_of(const MapOp& op) const;
  Place place_of_op(std::size_t op) const;
  /// As one of the requests that share its step sees it.
  Place place_of_op(std::size_t op, const MapStep& step) const;
  Place place_at(std::int64_t column, std::size_t row) const;

 private:
  const MapStep* first_of(const MapStep& step) const;
};

/// Makes a map in two parts, so that there is something to see of a large run at once. The run must outlive it.
class RunMapMaker {
 public:
  using Clock = std::chrono::steady_clock;

  /// `rows` are those of `view`.
  RunMapMaker(RunView& view, RunData& rows, std::stop_token stop);
  RunMapMaker(const RunMapMaker&) = delete;
  RunMapMaker& operator=(const RunMapMaker&) = delete;
  ~RunMapMaker();

  /// All of the map but the cells of single tokens. To be called once, first. Errors: rows cannot be read, a map
  /// beyond any screen's use, stopped.
  Status begin();
  /// Reads the health of tokens, of the worst steps first, until the deadline or until the map is exact.
  Status refine(Clock::time_point deadline);
  const RunMap& map() const;
  /// Gives the map away; nothing else may be called afterwards.
  RunMap take();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// The exact map. Errors: as of RunMapMaker::begin().
Result<RunMap> make_run_map(RunView& view, RunData& rows, std::stop_token stop = {});

}  // namespace nanscope::gui
