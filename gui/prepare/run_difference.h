#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/run/run_view.h"
#include "gui/cell.h"
#include "gui/prepare/prepared.h"
#include "gui/prepare/run_map.h"

/// The map of a run against that of the run beside it.
namespace nanscope::gui {

/// How a cell differs from the same cell of the other run, in one byte; worse is larger. A cell whose health here is
/// the worse one keeps the code of that health, from kLowHeadroom on.
inline constexpr Cell kCellNowhere = kAbsent;
inline constexpr Cell kCellEqual = 1;
inline constexpr Cell kCellOnlyHere = 2;  ///< the other run recorded nothing there
inline constexpr Cell kCellOnlyThere = 3;
inline constexpr Cell kCellOtherBits = 4;  ///< healthy alike, or as bad: the hashes of the op's outputs differ
inline constexpr Cell kCellWorseThere = 5;

/// Healthy magnitudes are one class, each kind of trouble is its own.
Cell health_class(Cell cell);

/// "worse here", "equal bits"
std::string_view difference_name(Cell difference);

/// On the columns and rows of the run here. Hashes are of whole tensors: a cell has other bits when any token of its
/// step has. Where none was recorded, elements are read.
struct RunDifference final : Prepared {
  std::int64_t columns = 0;
  std::vector<Cell> cells;  ///< rows x columns, kCell...
  std::vector<Cell> there;  ///< the other run's health, kAbsent where it has none
  std::int64_t equal = 0;   ///< cells
  std::int64_t other_bits = 0;
  std::int64_t worse_here = 0;
  std::int64_t worse_there = 0;
  std::int64_t only_here = 0;
  std::int64_t only_there = 0;

  Cell cell(std::int64_t column, std::size_t row) const { return cells[index(column, row)]; }
  Cell cell_there(std::int64_t column, std::size_t row) const { return there[index(column, row)]; }
  /// In one sentence.
  std::string words() const;

 private:
  std::size_t index(std::int64_t column, std::size_t row) const {
    return row * static_cast<std::size_t>(columns) + static_cast<std::size_t>(column);
  }
};

/// Compares step by step, so that others have their turn. The runs must outlive it.
class RunDifferenceMaker {
 public:
  using Clock = std::chrono::steady_clock;

  /// Both maps are exact.
  RunDifferenceMaker(std::shared_ptr<const RunMap> here, RunView& here_run, std::shared_ptr<const RunMap> there,
                     RunView& there_run, std::stop_token stop);

  /// At least one step. Errors: rows cannot be read, stopped.
  Status refine(Clock::time_point deadline);
  bool done() const { return next_ >= here_->steps.size(); }
  /// Gives it away, once it is done.
  RunDifference take() { return std::move(out_); }

 private:
  void compare_step(const MapStep& step);
  /// Of all outputs of each row's op in one step, in their order; 0 where it recorded none.
  std::vector<std::uint64_t> fingerprints(RunView& run, const RunMap& map, const MapStep& step) const;
  void count(Cell cell);

  std::shared_ptr<const RunMap> here_;
  RunView& here_run_;
  std::shared_ptr<const RunMap> there_;
  RunView& there_run_;
  std::stop_token stop_;
  std::vector<std::size_t> row_there_;  ///< of each row here; rows.size() of the other map where it has none
  std::size_t next_ = 0;                ///< step
  RunDifference out_;
};

}  // namespace nanscope::gui
