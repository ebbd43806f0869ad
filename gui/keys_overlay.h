#pragma once
#include <span>

#include "gui/bars.h"
#include "gui/commands.h"

namespace nanscope::gui {

/// Lists the keys above everything else, in as many columns as there is room for. Answers whether it was
/// clicked away.
bool draw_keys_overlay(const Look& look, Area window, std::span<const KeyRow> rows);

}  // namespace nanscope::gui
