#pragma once
#include "gui/theme.h"

namespace nanscope::gui {

/// What is around the views looks like this.
struct Look {
  const Theme& theme;
  const Fonts& fonts;
  float scale = 1;
  float px(float pixels) const { return pixels * scale; }
};

}  // namespace nanscope::gui
