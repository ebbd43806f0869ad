#pragma once
#include "gui/prepare/front_image.h"

namespace nanscope::gui {

/// The part of a grid of columns x rows that is on screen, in fractions of cells. Pure.
class Viewport {
 public:
  /// Shows all of a grid, unless it is the same one as before.
  void set_grid(std::int64_t columns, std::int64_t rows);
  void show_all();
  /// Zooms by `factor` (above 1: closer) about a point given in fractions of the view, 0..1.
  void zoom(double factor_x, double factor_y, double at_x, double at_y);
  /// Moves by fractions of the view.
  void pan(double by_x, double by_y);

  /// Moves so that a cell is seen, and no further than needed when it is already.
  void reveal(std::int64_t column, std::int64_t row);

  double left() const { return left_; }
  double top() const { return top_; }
  double width() const { return width_; }    ///< columns in view
  double height() const { return height_; }  ///< rows in view
  bool shows_all() const;
  /// The whole cells that cover the view.
  FrontRange range() const;

 private:
  void keep_inside();

  double columns_ = 0;
  double rows_ = 0;
  double left_ = 0;
  double top_ = 0;
  double width_ = 0;
  double height_ = 0;
};

}  // namespace nanscope::gui
