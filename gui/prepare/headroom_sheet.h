#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "gui/cell.h"
#include "gui/prepare/front_image.h"
#include "gui/prepare/ledger.h"
#include "gui/prepare/tensor_index.h"

namespace nanscope::gui {

/// What a strip is coloured by.
enum class StripBy : std::uint8_t { headroom, absmax };

struct HeadroomStep {
  std::uint32_t at = 0;                 ///< index in TensorIndex::steps
  std::optional<std::int64_t> request;  ///< nothing where it works for several
  std::int64_t index = 0;
  std::string title;  ///< the request's name; "4 requests"
};

/// The largest values of each layer over the steps, against the largest that could be stored.
struct HeadroomSheet {
  static constexpr std::uint32_t kNoTensor = std::numeric_limits<std::uint32_t>::max();

  std::shared_ptr<const TensorIndex> index;
  std::vector<HeadroomStep> steps;  ///< columns
  std::vector<std::string> groups;  ///< rows: "embed", "layer 3", "head"
  std::vector<LedgerBand> bands;    ///< neighbouring steps of one request
  std::vector<Cell> by_headroom;    ///< rows x columns, row-major
  std::vector<Cell> by_absmax;
  std::vector<std::uint32_t> closest;    ///< the tensor that is worst or, among healthy ones, has the least headroom
  std::vector<std::uint32_t> largest;    ///< the one with the largest |x|
  std::vector<std::uint32_t> group_of;   ///< of each of the index's rows; kNoTensor: none
  std::vector<std::uint32_t> column_of;  ///< of each of the index's steps; kNoTensor: none
  std::optional<std::size_t> warning;    ///< the first tensor that is not healthy
  std::optional<std::size_t> first_bad;  ///< the first with a NaN or an Inf
  std::optional<std::size_t> least;      ///< of healthy ones, the one with the least headroom
  std::string headline;                  ///< the earliest warning, in a sentence
  std::string rule;                      ///< its numbers, in another

  std::int64_t columns() const { return static_cast<std::int64_t>(steps.size()); }
  std::int64_t rows() const { return static_cast<std::int64_t>(groups.size()); }
  const std::vector<Cell>& cells(StripBy by) const { return by == StripBy::headroom ? by_headroom : by_absmax; }
  std::size_t cell(std::int64_t column, std::int64_t row) const {
    return static_cast<std::size_t>(row) * steps.size() + static_cast<std::size_t>(column);
  }
  /// The tensor that a cell shows; nothing where nothing was recorded.
  std::optional<std::size_t> tensor(StripBy by, std::int64_t column, std::int64_t row) const;
  std::optional<std::int64_t> column(std::size_t tensor) const;
  std::optional<std::int64_t> row(std::size_t tensor) const;
};

/// Colour of healthy headroom, by powers of two: the brightest at 1, the finer told apart the nearer to it.
Cell headroom_cell(double headroom);
inline constexpr int kRampPowers = kFarPowers;  ///< from here on all are alike

/// The largest that can be stored where the tensor is; NaN where it means nothing.
double limit_of(const TensorIndex& index, std::size_t tensor);

/// Errors: rows cannot be read.
Result<HeadroomSheet> make_headroom_sheet(RunView& run, std::shared_ptr<const TensorIndex> index);

/// One tensor of a layer over the steps, and the layer's largest |x|.
struct HeadroomCurve {
  struct Point {
    double absmax = 0;  ///< the largest of its steps; 0: not recorded
    double limit = 0;   ///< the lowest; 0 or NaN: none
    double layer = 0;
    Cell health = kAbsent;
  };
  std::string name;  ///< "layer 1 kv_store.v_codes"
  std::vector<Point> points;
  LogRange range;
  double limit = 0;   ///< the lowest; 0: none
  bool near = false;  ///< the limit is so near that it is in the range
};
/// `tensor` in the other steps too, over the columns [begin, end), squeezed into at most so many points.
HeadroomCurve make_headroom_curve(const HeadroomSheet& sheet, std::size_t tensor, std::int64_t begin, std::int64_t end,
                                  std::size_t most);

}  // namespace nanscope::gui
