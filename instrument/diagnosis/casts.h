#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/run/scale_grid.h"
#include "instrument/recompute/values.h"

namespace nanscope {

/// A cast to codes of 8 bits or fewer, of activations or of what goes into a cache, and what it did to the values that
/// are somebody's. What it was cast of may not have been dumped: then the codes alone tell.
struct Cast {
  OpId op = 0;
  StepId step = 0;
  std::optional<std::int64_t> layer;
  std::string target;  ///< k, v or x
  TensorId codes = 0;
  TensorId source = 0;  ///< 0: neither dumped nor to be computed
  TensorId scale = 0;   ///< 0: none was dumped
  const ScaleRow* ledger = nullptr;
  Format format = Format::e4m3;
  std::optional<ScaleGrid> grid;
  double zero_point = 0;  ///< the code of 0, where one for all was dumped
  bool implied = false;   ///< no scale was dumped: the one that source and codes show

  std::int64_t rows = 0;  ///< that were looked at
  std::int64_t elements = 0;
  std::int64_t cells = 0;          ///< of the grid that were used: each may have one value at the top
  std::int64_t top = 0;            ///< codes of the largest finite magnitude
  std::int64_t beside_top = 0;     ///< codes of the next smaller magnitudes, an eighth of the range
  std::int64_t zero = 0;           ///< codes that are zero
  std::int64_t coarse = 0;         ///< codes below the smallest normal number, or of one or two steps
  std::int64_t bad = 0;            ///< codes of NaN and Inf
  std::int64_t bad_of_finite = 0;  ///< of them, made of finite values
  std::int64_t clipped = 0;        ///< values that lie beyond what rounds to the largest code
  std::int64_t elsewhere = 0;      ///< of them, whose code is another than the largest: something else made it
  std::int64_t lost = 0;           ///< nonzero values that became zero
  std::int64_t nonzero = 0;        ///< values
  double absmax = 0;               ///< of the values
  double median = 0;               ///< magnitude of the nonzero values
  std::int64_t at_row = -1;        ///< of absmax, in the codes
  std::int64_t at_channel = -1;
  double reach = 0;                        ///< largest |value / scale| over the largest finite code
  double cut_by_design = 0;                ///< share of values that whoever chose the scale leaves out: a percentile's
  double clip_error = 0;                   ///< root of the squares that clipping lost over the root of all squares
  std::vector<std::int64_t> clipped_rows;  ///< of the codes
  std::vector<std::int64_t> top_rows;      ///< with codes at the top

  /// Largest finite code times the scale over the largest value; below 1 clips. 0 when it is not known.
  double headroom() const { return reach > 0 ? 1 / reach : 0; }
  /// The scale that says most: of several the ledger's, which clips first.
  double telling_scale() const { return ledger != nullptr ? ledger->scale : grid->first(); }
  /// Clipping lost more than rounding does anyway, and it is clipping that did: codes of what is clipped are at the
  /// top.
  bool clips() const;
  double share(std::int64_t part) const {
    return elements > 0 ? static_cast<double>(part) / static_cast<double>(elements) : 0;
  }
  bool has_source() const { return source != 0; }
};

/// Of all steps, in order of execution.
std::vector<Cast> casts_of(Values& values);

/// Relative error of rounding to a format, or to the steps of an integer one over its range.
double rounding_error(Format format);

}  // namespace nanscope
