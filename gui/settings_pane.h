#pragma once
#include <optional>

#include "gui/look.h"
#include "gui/paint.h"
#include "gui/preferences.h"

namespace nanscope::gui {

/// What can be set, above everything else while it is open.
class SettingsPane {
 public:
  bool is_open() const { return open_; }
  void open() { open_ = true; }
  void close() { open_ = false; }
  /// Answers what they are now, when something was changed.
  std::optional<Preferences> draw(const Look& look, Area window, const Preferences& now);

 private:
  bool open_ = false;
};

}  // namespace nanscope::gui
