#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "gui/prepare/ledger.h"
#include "gui/prepare/run_map.h"
#include "gui/prepare/tensor_index.h"

namespace nanscope::gui {

/// A step that works for somebody.
struct StepColumn {
  std::uint32_t at = 0;  ///< index in TensorIndex::steps
  std::int64_t rank = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> spans;  ///< request, and index of the step in it
};

struct RequestLane {
  std::int64_t request = 0;
  std::string title;
  std::vector<Cell> cells;  ///< the worst of each column; kAbsent where the step is another's
};

/// What a module put out in a step.
struct ModuleStep {
  static constexpr std::uint32_t kNoTensor = std::numeric_limits<std::uint32_t>::max();

  float absmax = 0;  ///< the largest finite magnitude; 0: not recorded
  std::uint64_t nan = 0;
  std::uint64_t inf = 0;
  std::uint64_t clipped = 0;  ///< elements, or rows of a dump
  Cell health = kAbsent;
  std::uint32_t tensor = kNoTensor;  ///< index in TensorIndex: the worst one, among healthy ones the largest
};

/// One op of the model, of one layer or of all.
struct ModuleLane {
  std::string module;
  std::vector<ModuleStep> steps;  ///< a column each
  LogRange range;
  std::uint64_t nan = 0;
  std::uint64_t inf = 0;
  std::uint64_t clipped = 0;
  double jump = 1;                      ///< how many times absmax grows at most from one step to the next
  std::optional<std::size_t> jumps_at;  ///< the next one; nothing where it never grows
};

/// The run over its steps.
struct StepTimeline final : Prepared {
  std::shared_ptr<const TensorIndex> index;
  std::optional<std::int64_t> layer;  ///< that modules are of; nothing: of all
  std::vector<StepColumn> columns;
  std::vector<RequestLane> requests;
  std::vector<ModuleLane> modules;  ///< in the order of the model
  std::string headline;
  /// The column of a step; nothing where it is not there.
  std::optional<std::size_t> find(const Place& place) const;
};

/// Errors: rows cannot be read.
Result<StepTimeline> make_step_timeline(RunView& run, const RunMap& map, std::shared_ptr<const TensorIndex> index,
                                        std::optional<std::int64_t> layer);

/// Of some columns, as what is drawn at one pixel: the largest magnitude, the sum of what is counted, the worst health.
ModuleStep together(const ModuleLane& lane, std::size_t begin, std::size_t end);

}  // namespace nanscope::gui
