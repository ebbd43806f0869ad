#pragma once
#include <string>

#include "gui/prepare/tensor_sheet.h"
#include "gui/views/view.h"

namespace nanscope::gui {

/// How healthy values are coloured, and the chips that choose it.
class RampChoice {
 public:
  Ramp ramp() const { return ramp_; }
  bool signs() const { return signs_; }
  const RampRange& range() const { return range_; }

  /// Chips that end at `right`, which then moves to their left. `shown` is what is in view.
  void draw(const ViewContext& context, const TensorSheet& sheet, const FrontRange& shown, float& right, float y,
            float height);

 private:
  void draw_popup(const ViewContext& context, const TensorSheet& sheet, const FrontRange& shown);
  void field(const ViewContext& context, const char* name, std::string& typed, float width);
  void apply();

  Ramp ramp_ = Ramp::log;
  bool signs_ = false;
  RampRange range_;
  std::string from_;
  std::string to_;
  std::string mistake_;
};

/// Negative values in one colour, positive ones in another.
Theme signed_theme(const Theme& theme);

/// 0.00352, 448, 1e+09
std::string ramp_end(double value);

}  // namespace nanscope::gui
