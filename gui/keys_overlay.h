#pragma once
#include "gui/bars.h"

namespace nanscope::gui {

/// Lists all keys above everything else. Answers whether it was clicked away.
bool draw_keys_overlay(const Look& look, Area window, std::size_t tabs);

/// "?" or F1 was pressed in this frame.
bool keys_asked_for();

}  // namespace nanscope::gui
