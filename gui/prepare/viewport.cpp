#include "gui/prepare/viewport.h"

#include <algorithm>
#include <cmath>

namespace nanscope::gui {

namespace {
constexpr double kFewestCells = 4;  // closer than this shows nothing more
}  // namespace

void Viewport::set_grid(std::int64_t columns, std::int64_t rows) {
  const auto wide = static_cast<double>(columns);
  const auto high = static_cast<double>(rows);
  if (wide == columns_ && high == rows_) return;
  columns_ = wide;
  rows_ = high;
  show_all();
}

void Viewport::show_all() {
  left_ = 0;
  top_ = 0;
  width_ = columns_;
  height_ = rows_;
}

void Viewport::zoom(double factor_x, double factor_y, double at_x, double at_y) {
  const double wide = std::clamp(width_ / factor_x, std::min(kFewestCells, columns_), columns_);
  const double high = std::clamp(height_ / factor_y, std::min(kFewestCells, rows_), rows_);
  left_ += (width_ - wide) * at_x;
  top_ += (height_ - high) * at_y;
  width_ = wide;
  height_ = high;
  keep_inside();
}

void Viewport::pan(double by_x, double by_y) {
  left_ += by_x * width_;
  top_ += by_y * height_;
  keep_inside();
}

void Viewport::reveal(std::int64_t column, std::int64_t row) {
  const auto x = static_cast<double>(column);
  const auto y = static_cast<double>(row);
  if (x < left_ || x + 1 > left_ + width_) left_ = x + 0.5 - width_ / 2;
  if (y < top_ || y + 1 > top_ + height_) top_ = y + 0.5 - height_ / 2;
  keep_inside();
}

void Viewport::keep_inside() {
  left_ = std::clamp(left_, 0.0, columns_ - width_);
  top_ = std::clamp(top_, 0.0, rows_ - height_);
}

bool Viewport::shows_all() const { return width_ >= columns_ && height_ >= rows_; }

FrontRange Viewport::range() const {
  return {static_cast<std::int64_t>(std::floor(left_)), static_cast<std::int64_t>(std::ceil(left_ + width_)),
          static_cast<std::int64_t>(std::floor(top_)), static_cast<std::int64_t>(std::ceil(top_ + height_))};
}

}  // namespace nanscope::gui
