#pragma once
#include "gui/paint.h"

namespace nanscope::gui {

/// Where the parts of the top bar are.
struct TopBarAreas {
  Area home;
  Area file;
  Area back;
  Area forward;
  Area place;
  Area copy;
  Area play;
  Area scrubber;
  Area next;
  Area origin;
  Area find;
  bool words = true;  ///< the jumps have room for words; else they are icons
};

/// Narrow bars give the jumps icons, then take from the scrubber, the place and the file's name alike.
TopBarAreas lay_out_top_bar(Area bar, float scale);

}  // namespace nanscope::gui
