#pragma once
#include <string_view>

#include "gui/background.h"
#include "gui/bars.h"

/// What is pressed and what moves, for the views and for the start screen.
namespace nanscope::gui {

/// True when it was pressed. The main thing to do is in the accent's colour.
bool button(const Look& look, const char* id, std::string_view words, Area box, bool main = false);
float button_width(const Look& look, std::string_view words);

/// What runs, how far it is, and a button that cancels it; true when that was pressed. 44 pixels high.
bool draw_progress(const Look& look, const JobProgress& progress, std::string_view noun, bool cancelled, Area area);

}  // namespace nanscope::gui
