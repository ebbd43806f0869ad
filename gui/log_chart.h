#pragma once
#include <optional>

#include "gui/prepare/ledger.h"
#include "gui/views/view.h"

/// What charts on a logarithmic axis share.
namespace nanscope::gui {

/// From 1 to 2 where nothing above 0 was seen.
LogAxis axis_of(const LogRange& range);

/// The ground of a plot, with a line at each tick of its axis, numbered to the left from `left` on.
void draw_ground(const ViewContext& context, const Area& plot, const LogAxis& axis, float left);

/// A curve drawn point by point. Of thousands of steps many share a pixel: those are drawn once.
class CurveLine {
 public:
  /// A dot of `radius` where the curve begins; on every point with `dots`.
  CurveLine(Color color, float width, float radius, bool dots)
      : color_(color), width_(width), radius_(radius), dots_(dots) {}

  void to(ImVec2 here);
  /// The next point begins the curve anew.
  void interrupt() { before_.reset(); }

 private:
  Color color_;
  float width_;
  float radius_;
  bool dots_;
  std::optional<ImVec2> before_;
};

}  // namespace nanscope::gui
