#include "gui/controls.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

namespace nanscope::gui {

float button_width(const Look& look, std::string_view words) {
  return text_size(look.fonts.small, words).x + look.px(30);
}

bool button(const Look& look, const char* id, std::string_view words, Area box, bool main) {
  ImGui::SetCursorScreenPos(box.min());
  const bool pressed = ImGui::InvisibleButton(id, {box.width, box.height});
  const bool hovered = ImGui::IsItemHovered();
  if (hovered) ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
  const Theme& theme = look.theme;
  const Color rest = main ? theme.accent : theme.raised;
  const Color pointed = main ? mix(theme.accent, theme.text, 0.2F) : theme.hovered;
  fill(box, hovered ? pointed : rest, look.px(5));
  label(look.fonts.small, box, main ? theme.panel : theme.text, words, 0.5F);
  return pressed;
}

bool draw_progress(const Look& look, const JobProgress& progress, std::string_view noun, bool cancelled, Area area) {
  const float cancel = button_width(look, "Cancel");
  const Area bar{area.x, area.y + look.px(26), area.width - cancel - look.px(16), look.px(6)};
  const Area words{bar.x, area.y, bar.width, look.px(20)};
  const std::string count =
      progress.total > 0 ? fmt::format("{} of {} {}", progress.done, progress.total, noun) : std::string("starting");
  const float taken = text_size(look.fonts.small, count).x + look.px(16);
  label(look.fonts.small, words, look.theme.muted, cancelled ? "stopping" : count, 1);
  label(look.fonts.small, {words.x, words.y, words.width - taken, words.height}, look.theme.text, progress.what);
  fill(bar, look.theme.raised, look.px(3));
  const float share = std::clamp(progress.share(), 0.0F, 1.0F);
  if (share > 0)
    fill({bar.x, bar.y, std::max(bar.width * share, bar.height), bar.height}, look.theme.accent, look.px(3));
  const float height = look.px(30);
  return button(look, "cancel", "Cancel", {area.right() - cancel, area.y + look.px(6), cancel, height});
}

}  // namespace nanscope::gui
