#pragma once
#include "gui/bars.h"

namespace nanscope::gui {

/// The run as a line: where it is bad, its steps as ticks with the requests' numbers, the events of the story below,
/// and a knob that can be dragged. What is pointed at is told beside the pointer.
void draw_scrubber(const Look& look, Navigator& navigator, Area area);

}  // namespace nanscope::gui
