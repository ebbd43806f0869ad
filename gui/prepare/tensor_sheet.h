#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gui/cell.h"
#include "gui/prepare/front_image.h"
#include "gui/prepare/prepared.h"
#include "gui/prepare/ramp_scale.h"
#include "gui/prepare/subject.h"

/// A tensor as a grid of cells, one an element.
namespace nanscope::gui {

/// Of non-zero finite values.
struct MagnitudeRange {
  double smallest = std::numeric_limits<double>::infinity();
  double largest = 0;
  void cover(double value);
  void cover(const MagnitudeRange& other);
  bool operator==(const MagnitudeRange&) const = default;
};

/// A number about the whole tensor; `tone` is its colour when it is bad news.
struct SheetNumber {
  std::string name;
  std::string value;
  Cell tone = kHealthyFirst;
};

/// Shares of a row or column, 0..1, and its largest healthy magnitude.
struct LineHealth {
  float nan = 0;
  float inf = 0;
  float clipped = 0;
  float low_headroom = 0;
  Cell largest = kAbsent;
};

/// What the ramp covers instead of all elements.
struct RampRange {
  std::optional<MagnitudeRange> typed;  ///< from somebody
  std::optional<FrontRange> part;       ///< of these elements; `typed` comes first
  bool operator==(const RampRange&) const = default;
};

/// What is shown of a tensor. Scores and probabilities are shown one head at a time: a query a row, a
/// key a column.
struct TensorSheet {
  Subject subject;
  std::string problem;         ///< why elements cannot be shown; then the cells are the health of whole rows
  Elements elements;           ///< null when there is a problem
  std::optional<float> scale;  ///< of codes that share one: real = code value x scale
  bool coded = false;          ///< these are codes under scales, be they known or not
  std::optional<Storing> storing;
  Ramp ramp = Ramp::log;
  bool query_by_key = false;
  std::int64_t head = 0;
  std::int64_t heads = 1;          ///< to choose from
  std::int64_t first_channel = 0;  ///< in column 0
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<Cell> cells;  ///< rows x columns
  std::vector<LineHealth> row_health;
  std::vector<LineHealth> column_health;
  MagnitudeRange magnitudes;  ///< that the ramp covers
  bool real = false;          ///< the ramp is of real values, else of the codes' own
  bool signs = false;         ///< healthy cells tell the sign too: see signed_cell()
  RampRange range;            ///< that was asked for
  double low = 0;             ///< |x| where the ramp begins; what is smaller takes its first colour
  double high = 0;
  std::vector<SheetNumber> numbers;
  std::uint64_t nan = 0;      ///< elements of rows that are somebody's
  std::uint64_t inf = 0;      ///< of them, where Inf hides nothing
  std::uint64_t clipped = 0;  ///< elements that were beyond what the format holds when they were stored

  /// The scale of one of the codes; nothing when it is not known.
  std::optional<float> scale_at(std::int64_t row, std::int64_t channel) const {
    return storing ? storing->scale(row, channel) : std::nullopt;
  }
  std::int64_t channel(std::int64_t column) const { return first_channel + column; }
  Cell cell(std::int64_t row, std::int64_t column) const {
    return cells[static_cast<std::size_t>(row * columns + column)];
  }
};

/// The ramp that a sheet shares with what stands beside.
struct CommonRamp {
  MagnitudeRange magnitudes;
  bool real = false;  ///< magnitudes are of real values: code value x scale
  bool operator==(const CommonRamp&) const = default;
};

/// What the difference from what stands beside is measured in.
enum class DifferenceUnit : std::uint8_t {
  absolute,
  ulp,    ///< steps of the format; of codes that mean different things, absolute
  bound,  ///< what rounding can explain; beside a model
};

struct SheetOptions {
  Ramp ramp = Ramp::log;
  std::optional<std::int64_t> head;  ///< nothing: that of the selected channel, else the first
  std::optional<CommonRamp> beside = std::nullopt;
  bool signs = false;
  RampRange range = {};
  DifferenceUnit unit = DifferenceUnit::absolute;
  std::int64_t call = 0;  ///< as of Selection
  bool operator==(const SheetOptions&) const = default;
};

/// How far up the ramp a healthy cell stands, 0..1.
double ramp_part(Cell cell, bool signs);

/// `known` may be null, or a sheet of the same recording: its elements are used again. Errors: as of
/// find_subject(), rows that cannot be read.
Result<std::shared_ptr<const TensorSheet>> make_tensor_sheet(RunView& run, const Place& place,
                                                             const SheetOptions& options, const TensorSheet* known);

/// The largest cell of a range, the first of them in row-major order, as row and column.
std::pair<std::int64_t, std::int64_t> worst_cell(const CellGrid& grid, const FrontRange& range);
/// The worst element of a range.
std::pair<std::int64_t, std::int64_t> worst_element(const TensorSheet& sheet, const FrontRange& range);

/// The next element in row-major order that is NaN, infinite or clipped, or the one before; beyond the end it goes on
/// at the other one. Nothing where there is none, or no elements.
std::optional<std::pair<std::int64_t, std::int64_t>> next_bad(const TensorSheet& sheet,
                                                              std::pair<std::int64_t, std::int64_t> from, bool forward);

struct TwinPicture;
struct TensorStatistics;

/// Part of a sheet at the resolution of a screen.
struct TensorPicture final : Prepared {
  std::string notice;  ///< why there is no sheet
  std::shared_ptr<const TensorSheet> sheet;
  FrontImage image;
  std::vector<LineHealth> row_bars;         ///< one a texel: of the whole rows in it the largest of each share
  std::vector<LineHealth> column_bars;      ///< of the whole columns
  std::shared_ptr<const TwinPicture> twin;  ///< what stands beside; null when nothing does
  std::shared_ptr<const TensorStatistics> statistics;  ///< null where they were not asked for, or cannot be had
};

/// Without a range, all of it.
TensorPicture make_tensor_picture(std::shared_ptr<const TensorSheet> sheet, std::optional<FrontRange> range, int width,
                                  int height);

}  // namespace nanscope::gui
