#include "gui/text_field.h"

#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <utility>

#include "gui/drawn.h"

namespace nanscope::gui {
namespace {

constexpr float kLeastReason = 300;  ///< width of what is said below a narrow field
constexpr int kMostReasonLines = 4;
constexpr ImGuiWindowFlags kReasonFlags = ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove |
                                          ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoInputs |
                                          ImGuiWindowFlags_NoFocusOnAppearing | ImGuiWindowFlags_NoBackground;

/// A field that takes the focus selects all of its text: who mends it would type over it.
int put_cursor_at_end(ImGuiInputTextCallbackData* data) {
  if (std::exchange(*static_cast<bool*>(data->UserData), false)) {
    data->CursorPos = data->BufTextLen;
    data->ClearSelection();
  }
  return 0;
}

}  // namespace

void TextField::refuse(std::string why) {
  why_ = std::move(why);
  refused_ = text;
  focus(false);
}

bool TextField::draw(const Look& look, const char* id, const char* hint, ImFont* font, Area area) {
  ImGui::SetCursorScreenPos(area.min());
  ImGui::PushFont(font);
  ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2(look.px(10), (area.height - font->FontSize) / 2));
  ImGui::SetNextItemWidth(area.width);
  if (focus_) ImGui::SetKeyboardFocusHere();
  const bool entered = ImGui::InputTextWithHint(
      fmt::format("##{}", id).c_str(), hint, &text,
      ImGuiInputTextFlags_EnterReturnsTrue | ImGuiInputTextFlags_AutoSelectAll | ImGuiInputTextFlags_CallbackAlways,
      put_cursor_at_end, &to_end_);
  const bool was_active = std::exchange(active_, ImGui::IsItemActive());
  ImGui::PopStyleVar();
  ImGui::PopFont();
  tell_item(area, id);
  tell_text(area, text.empty() ? hint : text);
  if (active_) focus_ = false;
  if (entered || text != refused_ || (was_active && !active_)) why_.clear();
  if (!why_.empty()) draw_reason(look, area);
  return entered;
}

/// Above all else, as a tooltip is.
void TextField::draw_reason(const Look& look, Area area) const {
  const float pad = look.px(10);
  const float width = std::max(area.width, look.px(kLeastReason));
  const auto lines = wrap(look.fonts.small, printable(why_), width - 2 * pad, kMostReasonLines);
  const float pitch = look.px(17);
  const float height = pitch * static_cast<float>(lines.size()) + look.px(12);
  const float x = std::max(std::min(area.x, ImGui::GetIO().DisplaySize.x - width), 0.0F);
  const Area box{x, area.bottom() + look.px(4), width, height};
  ImGui::SetNextWindowPos(box.min());
  ImGui::SetNextWindowSize({box.width, box.height});
  ImGui::Begin("reason", nullptr, kReasonFlags);
  fill(box, look.theme.raised, look.px(5));
  outline(box, look.theme.cell(kNan), look.px(1), look.px(5));
  float y = box.y + look.px(6);
  for (const std::string& words : lines) {
    label(look.fonts.small, {box.x + pad, y, width - 2 * pad + look.px(2), pitch}, look.theme.text, words);
    y += pitch;
  }
  ImGui::End();
}

}  // namespace nanscope::gui
