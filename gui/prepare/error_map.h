#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/run/kv_cache.h"
#include "gui/cell.h"
#include "gui/prepare/front_image.h"
#include "gui/prepare/reference.h"
#include "gui/prepare/run_map.h"
#include "gui/selection.h"

/// The map of a dump, coloured by how far its ops are from the model's.
namespace nanscope::gui {

/// How far an element, a row or a cell of the map is off, in one byte; worse is larger. Distances are in units of the
/// bound on a logarithmic ramp: up to kErrorWithin what rounding explains, beyond it what it does not.
inline constexpr Cell kErrorAbsent = kAbsent;
inline constexpr Cell kErrorWaits = 1;       ///< not checked yet
inline constexpr Cell kErrorNotChecked = 2;  ///< and will not be
inline constexpr Cell kErrorNotSeen = 3;     ///< a row that was left out, as the op has too many
inline constexpr Cell kErrorFirst = 4;       ///< a distance of 2^-8, or less
inline constexpr Cell kErrorWithin = 11;     ///< up to 1
inline constexpr Cell kErrorBeyond = 12;     ///< from 1 on
inline constexpr Cell kErrorLast = 47;       ///< 10^4.5, or more
inline constexpr Cell kErrorNotFinite = 53;  ///< a NaN or an Inf where the model has a number
inline constexpr int kErrorStepsPerDecade = 8;

/// Of a distance in units of the bound; kErrorAbsent for NaN.
Cell error_cell(double distance);
/// Distance at the lower end of a step, from kErrorFirst on; 0 for that one.
double error_from(Cell cell);
/// "2.6 to 3.5 times the bound", "not checked yet"
std::string error_words(Cell cell);

/// Of all elements that were looked at, in units of the bound; infinite where one is not finite and should be.
double worst_distance(const VerifiedOutput& one);
bool is_unexplained(const VerifiedOutput& one);

/// An output in the map: of a row of it, the columns of a step.
struct ErrorSpan {
  std::uint32_t row = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;                           ///< not included
  std::shared_ptr<const VerifiedOutput> checked;  ///< or
  std::shared_ptr<const NotChecked> skipped;
};

/// On the columns and rows of the map.
struct ErrorMap final : Prepared {
  std::int64_t columns = 0;
  std::vector<Cell> cells;  ///< rows x columns, kError...
  std::vector<ErrorSpan> spans;
  std::shared_ptr<const Findings> findings;
  /// Of each of Findings::checked, the element that is furthest off; nothing where the run has no such output.
  std::vector<std::optional<Selection>> places;

  Cell cell(std::int64_t column, std::size_t row) const {
    return cells[row * static_cast<std::size_t>(columns) + static_cast<std::size_t>(column)];
  }
  /// Of the outputs of a cell the one that is furthest off; null when there is none.
  const ErrorSpan* span_at(std::int64_t column, std::size_t row) const;
  /// Outputs that are off and that nothing known explains.
  std::size_t unexplained() const;
  /// In one sentence.
  std::string words() const;
  /// Where the first output is that is off.
  std::optional<Selection> first() const;
};

/// What is said of an output that was checked, in a few words: "2.6e+04 times the bound at [9,17], shown: the cap ...".
std::string verified_words(const VerifiedOutput& one);

/// Follows a check: what it found since the last call is added to the map.
class ErrorMapMaker {
 public:
  /// `map` is exact, and of `run`, which must outlive it.
  ErrorMapMaker(std::shared_ptr<const RunMap> map, RunView& run);

  void add(std::shared_ptr<const Findings> findings);
  const ErrorMap& map() const { return out_; }

 private:
  struct Known {
    TensorId tensor = 0;
    std::string op;
    std::string role;
  };
  const Tensor* find(const std::string& name, const std::string& op, const std::string& role) const;
  void add(ErrorSpan span, const Tensor& tensor);
  Selection place_of(const VerifiedOutput& one, const Tensor& tensor) const;

  std::shared_ptr<const RunMap> map_;
  RunView& run_;
  KvCache cache_;
  std::unordered_map<StepId, std::uint32_t> first_of_step_;  ///< index in RunMap::steps
  std::unordered_map<OpId, std::uint32_t> row_of_;           ///< of the map
  std::unordered_multimap<std::string, Known> by_name_;
  std::size_t checked_ = 0;
  std::size_t skipped_ = 0;
  ErrorMap out_;
};

}  // namespace nanscope::gui
