#pragma once
#include "gui/prepare/tensor_statistics.h"
#include "gui/views/view.h"

namespace nanscope::gui {

/// Beside a tensor: what can be counted of it or of the part that was chosen, and its histogram.
class TensorPanel {
 public:
  static constexpr float kWidth = 300;       ///< at scale 1
  static constexpr float kBesideFrom = 700;  ///< narrower views show it instead of the grid

  /// True when the part is to be given up for the whole.
  bool draw(const ViewContext& context, const TensorSheet& sheet, const TensorStatistics& statistics, Area area);

 private:
  bool of_codes_ = false;
};

/// "rows 3 to 7, channels 10 to 40" of a part of a sheet.
std::string part_words(const TensorSheet& sheet, const FrontRange& range);

}  // namespace nanscope::gui
