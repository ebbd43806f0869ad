#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gui/bars.h"

namespace nanscope::gui {

struct TabClicks {
  std::optional<std::size_t> chosen;
  bool enlarge = false;  ///< the button at the end, or a double click on a tab
};

/// Which of the tabs are shown, in their order: all of them, or as many as leave room for a button that lists the
/// others, the current one among them.
std::vector<std::size_t> tabs_that_fit(std::span<const float> widths, std::size_t current, float room, float others);

/// The titles of views that share one place, with the digit that chooses each, and a button that
/// enlarges the one that is shown.
TabClicks draw_tabs(const Look& look, std::span<const std::string_view> titles, std::size_t current, bool enlarged,
                    std::string_view caption, Area area);

}  // namespace nanscope::gui
