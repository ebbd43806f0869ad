#include "core/run/scale_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace nanscope {

std::int64_t block_extent(std::int64_t extent, std::int64_t cells) {
  if (cells <= 0 || extent <= 0 || cells > extent) return 0;
  if (cells == extent) return 1;
  if (cells == 1) return extent;
  constexpr std::array<std::int64_t, 9> kUsual = {128, 32, 16, 64, 256, 512, 8, 1024, 4};
  for (const std::int64_t size : kUsual) {
    if ((extent + size - 1) / size == cells) return size;
  }
  return extent % cells == 0 ? extent / cells : 0;
}

ScaleGrid ScaleGrid::uniform(double scale) {
  ScaleGrid grid;
  grid.values_ = std::make_shared<const std::vector<float>>(1, static_cast<float>(scale));
  return grid;
}

std::optional<ScaleGrid> ScaleGrid::of(RunView& run, const Tensor& scale, const Tensor& codes) {
  ScaleGrid grid;
  grid.values_ = run.values(scale);
  if (!grid.values_ || grid.values_->empty()) return std::nullopt;
  const auto count = static_cast<std::int64_t>(grid.values_->size());
  const std::int64_t rows = codes.tokens;
  const std::int64_t channels = codes.channels;
  if (count == 1) return grid;
  const bool table = scale.tokens > 1 && scale.channels > 1;
  if (!table) {
    const bool of_heads = count == codes.heads;
    // Of as many rows as heads, it says itself that it is of heads.
    const bool says_heads = of_heads && scale.heads == count && scale.tokens == 1;
    if (count == rows && (count != channels || scale.channels == 1) && !says_heads) {
      grid.rows_ = count;
      grid.rows_a_cell_ = 1;
    } else if (of_heads) {
      grid.columns_ = count;
      grid.channels_a_cell_ = codes.width();
      grid.period_ = codes.width();
    } else if (const std::int64_t block = block_extent(channels, count); block > 0) {
      grid.columns_ = count;
      grid.channels_a_cell_ = block;
    } else if (rows > 0 && count % rows == 0 && block_extent(channels, count / rows) > 0) {
      grid.rows_ = rows;
      grid.columns_ = count / rows;
      grid.rows_a_cell_ = 1;
      grid.channels_a_cell_ = block_extent(channels, count / rows);
    } else {
      return std::nullopt;
    }
    return grid;
  }
  grid.rows_ = scale.tokens;
  grid.columns_ = scale.channels;
  grid.rows_a_cell_ = block_extent(rows, grid.rows_);
  grid.channels_a_cell_ =
      grid.columns_ == codes.heads && codes.heads > 1 ? codes.width() : block_extent(channels, grid.columns_);
  if (grid.columns_ == codes.heads && codes.heads > 1) grid.period_ = codes.width();
  if (grid.rows_a_cell_ == 0 || grid.channels_a_cell_ == 0) return std::nullopt;
  return grid;
}

std::size_t ScaleGrid::index_at(std::int64_t row, std::int64_t channel) const {
  if (values_->size() == 1) return 0;
  const std::int64_t r = rows_a_cell_ > 0 ? std::clamp<std::int64_t>(row / rows_a_cell_, 0, rows_ - 1) : 0;
  const std::int64_t c =
      channels_a_cell_ > 0 ? std::clamp<std::int64_t>(channel / channels_a_cell_, 0, columns_ - 1) : 0;
  return static_cast<std::size_t>(r * columns_ + c);
}

double ScaleGrid::at(std::int64_t row, std::int64_t channel) const {
  return double{(*values_)[index_at(row, channel)]};
}

ScaleGrid::Corner ScaleGrid::corner(std::int64_t index) const {
  return {index / columns_ * rows_a_cell_, index % columns_ * channels_a_cell_};
}

std::string ScaleGrid::text() const {
  if (values_->size() == 1) return "one";
  if (period_ > 0) return rows_a_cell_ == 1 ? "one a row and head" : "one a head";
  if (columns_ == 1 && rows_a_cell_ == 1) return "one a row";
  if (rows_ == 1 && channels_a_cell_ == 1) return "one a channel";
  return fmt::format("one a block of {} x {}", rows_a_cell_ > 0 ? fmt::format("{}", rows_a_cell_) : "all",
                     channels_a_cell_ > 0 ? fmt::format("{}", channels_a_cell_) : "all");
}

}  // namespace nanscope
