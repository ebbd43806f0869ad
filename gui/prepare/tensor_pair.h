#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gui/prepare/error_map.h"
#include "gui/prepare/reference.h"
#include "gui/prepare/tensor_sheet.h"
#include "instrument/diagnosis/compare.h"

/// A tensor beside its twin: the same place in another run.
namespace nanscope::gui {

/// How an element differs from its twin, in one byte; worse is larger, so that elements that share a texel
/// are shown as their maximum. Finite differences take a step of a ramp by their magnitude: the even code of
/// a step where the value here is the smaller one, the odd one where it is the larger.
inline constexpr Cell kDiffAbsent = 0;
inline constexpr Cell kDiffEqual = 1;
inline constexpr Cell kDiffBits = 2;  ///< other bits that mean the same: +0 and -0, two kinds of NaN
inline constexpr Cell kDiffFirst = 4;
inline constexpr int kDiffSteps = 23;
inline constexpr Cell kDiffLast = kDiffFirst + 2 * kDiffSteps - 1;
inline constexpr Cell kDiffInf = 51;       ///< infinite in one alone, or with the other sign
inline constexpr Cell kDiffNanThere = 52;  ///< NaN in the twin alone
inline constexpr Cell kDiffNanHere = 53;

enum class PairState : std::uint8_t {
  differs,
  equal,         ///< every element has equal bits
  no_twin,       ///< the other run has no such tensor
  other_shape,   ///< nothing says which elements belong together
  not_compared,  ///< a side's elements, or their scales, are not to be had
};

/// Here minus there, in real values or in another unit. In units of the bound, cells are those of error_map.h, `equal`
/// is what is within it everywhere, and `differing` counts what is beyond it.
struct TensorDifference {
  PairState state = PairState::not_compared;
  DifferenceUnit unit = DifferenceUnit::absolute;
  std::string words;      ///< what there is to know, in one sentence
  std::int64_t rows = 0;  ///< 0 unless elements could be compared
  std::int64_t columns = 0;
  std::vector<Cell> cells;                          ///< rows x columns
  double low = 0;                                   ///< |difference| where the ramp begins
  double high = 0;                                  ///< the largest finite one
  DifferenceUnit asked = DifferenceUnit::absolute;  ///< the unit that was asked for
  std::uint64_t judged = 0;                         ///< in units of the bound: elements that have one
  std::uint64_t differing = 0;                      ///< elements that are not kDiffEqual
  std::uint64_t nan_here = 0;                       ///< and no NaN there
  std::uint64_t nan_there = 0;
  std::optional<std::int64_t> largest;  ///< cell of the largest finite difference

  Cell cell(std::int64_t row, std::int64_t column) const {
    return cells[static_cast<std::size_t>(row * columns + column)];
  }
};

/// One element of both.
struct ElementPair {
  double here = 0;  ///< real values
  double there = 0;
  std::optional<double> difference;   ///< here - there, when both are finite
  std::optional<double> relative;     ///< |difference| / |there|, when that is not 0
  std::optional<std::uint64_t> ulps;  ///< steps of the format between them; nothing when formats or scales differ
  Cell cell = kDiffEqual;             ///< without the ramp: kDiffFirst or kDiffFirst + 1 for finite differences
};

/// Both must have elements, and the cell must be in both.
ElementPair pair_at(const TensorSheet& here, const TensorSheet& there, std::int64_t row, std::int64_t column);
/// "-0.5 (1.2 % of there), 3 ulp", "NaN here only", "equal bits".
std::string words_of(const ElementPair& pair);

/// `there` is null when the other run has no such tensor. `reference`: what `there` was made of, beside a model; then
/// rows that were not made are kDiffAbsent. Without one, the bound is no unit.
TensorDifference subtract(const TensorSheet& here, const TensorSheet* there, Ramp ramp,
                          DifferenceUnit unit = DifferenceUnit::absolute, const Reference* reference = nullptr);

/// The worst element of a range by its difference, the first of them in row-major order, as row and column.
std::pair<std::int64_t, std::int64_t> worst_difference(const TensorDifference& difference, const FrontRange& range);

/// A sheet, its twin and their difference, on one ramp.
struct SheetPair {
  std::shared_ptr<const TensorSheet> here;
  std::shared_ptr<const TensorSheet> there;  ///< null: no such tensor
  std::shared_ptr<const TensorDifference> difference;
  std::shared_ptr<const Reference> reference = nullptr;  ///< what `there` was made of; null beside a run
};

/// The tensor of a place beside what the model makes of it. Without a reference yet, or with a reason why there is
/// none, the pair has no `there`. Errors: as of make_tensor_sheet() for the tensor here.
Result<SheetPair> make_model_pair(RunView& run, ReferenceSource& model, const Place& place, const SheetOptions& options,
                                  const SheetPair& known);

/// `there` is the other run. `known` may be empty, or a pair of the same two runs whose parts are
/// used again. Errors: as of make_tensor_sheet() for the tensor here.
Result<SheetPair> make_sheet_pair(RunView& run, RunView& there, const Place& place, const SheetOptions& options,
                                  const SheetPair& known);

/// What a TensorPicture shows beside.
struct TwinPicture {
  std::string label;  ///< of the other run
  SheetPair pair;
  std::optional<TensorPicture> there;
  FrontImage difference;
};

/// Without a range, all of it; each of the pictures at the given resolution.
TensorPicture make_pair_picture(SheetPair pair, std::string label, std::optional<FrontRange> range, int width,
                                int height);

}  // namespace nanscope::gui
