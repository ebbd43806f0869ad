#pragma once
#include <optional>
#include <string>
#include <vector>

#include "gui/look.h"
#include "gui/menu_items.h"
#include "gui/paint.h"

namespace nanscope::gui {

/// The item that was drawn last was clicked with the right button, which was neither dragged nor clicked twice.
bool asked_for_menu();

/// Lines beside the pointer, above everything else while they are open. Arrows and Enter choose as the mouse does; a
/// click elsewhere or Esc closes it.
class ContextMenu {
 public:
  bool is_open() const { return open_; }
  /// At the pointer. Without items it stays closed.
  void open(MenuTarget target, std::vector<MenuItem> items, std::string view);
  /// What it is about; the view that it was opened in.
  const MenuTarget& target() const { return target_; }
  const std::string& view() const { return view_; }
  /// Answers what was chosen, once, and is closed then.
  std::optional<MenuItem> draw(const Look& look, Area window);

 private:
  Area place(const Look& look, Area window) const;
  bool draw_line(const Look& look, std::size_t index, Area line);

  bool open_ = false;
  MenuTarget target_;
  std::vector<MenuItem> items_;
  std::string view_;
  ImVec2 at_;
  std::optional<std::size_t> current_;
};

}  // namespace nanscope::gui
