#include "gui/drawn.h"

#include <imgui.h>

namespace nanscope::gui {
namespace {

/// ImGui keeps it with its context, so that there is none of the program.
DrawnListener* listener() { return static_cast<DrawnListener*>(ImGui::GetIO().UserData); }

/// The middle can be seen.
bool seen(Area where) {
  const ImDrawList* list = ImGui::GetWindowDrawList();
  const ImVec2 low = list->GetClipRectMin();
  const ImVec2 high = list->GetClipRectMax();
  const ImVec2 middle(where.x + where.width / 2, where.y + where.height / 2);
  return middle.x >= low.x && middle.x < high.x && middle.y >= low.y && middle.y < high.y;
}

}  // namespace

void listen_to_drawing(DrawnListener* listener) { ImGui::GetIO().UserData = listener; }

bool listened_to() { return listener() != nullptr; }

void tell_item(Area where, std::string_view name) {
  if (listener() != nullptr && seen(where)) listener()->on_item(where, name);
}

void tell_text(Area where, std::string_view words) {
  if (listener() != nullptr && seen(where)) listener()->on_text(where, words);
}

}  // namespace nanscope::gui
