#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/run/run_view.h"

namespace nanscope {

/// The scale of each element of a matrix of codes: one for all, one a row, channel, head, or row and head, or one a
/// block of rows by channels. A last block that is not full is a block: 576 rows in blocks of 128 have five scales.
class ScaleGrid {
 public:
  /// One number for all.
  static ScaleGrid uniform(double scale);
  /// Nothing when the scale's shape fits none of these, or it cannot be read. `rows` are the step's where the codes lie
  /// in a pool, whose rows map_rows() then puts in relation.
  static std::optional<ScaleGrid> of(RunView& run, const Tensor& scale, const Tensor& codes);

  double at(std::int64_t row, std::int64_t channel) const;
  /// Which of values() that is.
  std::size_t index_at(std::int64_t row, std::int64_t channel) const;
  /// The first element under one of values().
  struct Corner {
    std::int64_t row = 0;
    std::int64_t channel = 0;
  };
  Corner corner(std::int64_t index) const;
  bool single() const { return values_->size() == 1; }
  double first() const { return double{values_->front()}; }
  const std::vector<float>& values() const { return *values_; }
  /// "one", "a row", "a channel", "a head", "a row and head", "blocks of 128 x 128".
  std::string text() const;
  std::int64_t rows_a_cell() const { return rows_a_cell_; }
  std::int64_t channels_a_cell() const { return channels_a_cell_; }
  bool by_head() const { return period_ > 0; }

 private:
  std::shared_ptr<const std::vector<float>> values_;
  std::int64_t rows_ = 1;  ///< of the grid
  std::int64_t columns_ = 1;
  std::int64_t rows_a_cell_ = 0;  ///< 0: all
  std::int64_t channels_a_cell_ = 0;
  std::int64_t period_ = 0;  ///< width of a head, where scales are of heads
};

/// Rows or channels of a block, where `cells` cover `extent`: the usual sizes first. 0 when none fits.
std::int64_t block_extent(std::int64_t extent, std::int64_t cells);

}  // namespace nanscope
