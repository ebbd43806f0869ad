#pragma once
#include <string_view>

#include "gui/paint.h"

/// Who looks at the screen by program, as scripts do, hears here what is on it.
namespace nanscope::gui {

class DrawnListener {
 public:
  virtual ~DrawnListener() = default;
  /// Words as they are shown, cut ones with their ellipsis.
  virtual void on_text(Area where, std::string_view words) = 0;
  /// Something to press or to drag that shows no words.
  virtual void on_item(Area where, std::string_view name) = 0;
};

/// Hears all that is drawn on ImGui's current context and not clipped away; null ends it.
void listen_to_drawing(DrawnListener* listener);
/// Whether there is somebody to tell.
bool listened_to();

/// To be called where something without words can be pressed or dragged.
void tell_item(Area where, std::string_view name);
void tell_text(Area where, std::string_view words);

}  // namespace nanscope::gui
