#pragma once
#include <string>

#include "gui/look.h"
#include "gui/paint.h"

namespace nanscope::gui {

/// A line to type into. What was typed and cannot be used stays, with the reason below it, until it is changed.
class TextField {
 public:
  /// The keyboard goes to it with the next frame; `all`: what is typed then replaces what is there.
  void focus(bool all = true) {
    focus_ = true;
    to_end_ = !all;
  }
  /// What is there cannot be used: it stays to be mended.
  void refuse(std::string why);
  /// True when Enter was pressed. `id` names the field for scripts, too.
  bool draw(const Look& look, const char* id, const char* hint, ImFont* font, Area area);
  /// Somebody types into it, or has to look at what went wrong.
  bool engaged() const { return active_ || focus_ || !why_.empty(); }
  bool active() const { return active_; }

  std::string text;

 private:
  void draw_reason(const Look& look, Area area) const;

  std::string refused_;  ///< the text that the reason is about
  std::string why_;      ///< empty: nothing is wrong
  bool focus_ = false;
  bool to_end_ = false;  ///< with the cursor behind the text, none of it selected
  bool active_ = false;
};

}  // namespace nanscope::gui
