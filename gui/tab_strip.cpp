#include "gui/tab_strip.h"

#include <imgui.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "gui/commands.h"
#include "gui/drawn.h"

namespace nanscope::gui {
namespace {

constexpr float kTabPad = 11;
constexpr float kLeastPad = 8;
constexpr float kDigitGap = 6;
constexpr float kTabButton = 26;
constexpr float kLeastCaption = 140;
constexpr std::string_view kOthers = "more";

/// Of each tab; without their digits, then nearer to each other, when there is no room.
struct Widths {
  std::vector<float> tabs;
  float pad = kTabPad;
  bool digits = true;
  float sum() const { return std::accumulate(tabs.begin(), tabs.end(), 0.0F); }
};

Widths widths_of(const Look& look, std::span<const std::string_view> titles, float room) {
  Widths widths;
  const auto measure = [&] {
    widths.tabs.clear();
    for (std::size_t i = 0; i < titles.size(); ++i) {
      float width = text_size(look.fonts.text, titles[i]).x + look.px(2 * widths.pad);
      if (widths.digits) width += text_size(look.fonts.mono_small, tab_digit(i)).x + look.px(kDigitGap);
      widths.tabs.push_back(width);
    }
  };
  measure();
  if (widths.sum() > room) {
    widths.digits = false;
    measure();
  }
  if (widths.sum() > room) {
    widths.pad = kLeastPad;
    measure();
  }
  return widths;
}

void draw_tab(const Look& look, std::string_view title, const std::string& digit, float pad, Area box, bool current,
              bool hovered) {
  const Theme& theme = look.theme;
  if (current) fill({box.x, box.bottom() - look.px(3), box.width, look.px(2)}, theme.accent, look.px(1));
  if (hovered && !current) fill(box.inset(look.px(2), look.px(5)), theme.raised, look.px(5));
  Area words = box.inset(look.px(pad), 0);
  if (!digit.empty()) {
    label(look.fonts.mono_small, words, theme.muted.alpha(170), digit);
    const float taken = text_size(look.fonts.mono_small, digit).x + look.px(kDigitGap);
    words = {words.x + taken, words.y, words.width - taken, words.height};
  }
  words.width += look.px(2);  // so that rounding does not cut what was measured to fit
  label(look.fonts.text, words, current || hovered ? theme.text : theme.muted, title);
}

/// A button for the tabs that are not shown, and what it opens.
std::optional<std::size_t> list_others(const Look& look, std::span<const std::string_view> titles,
                                       std::span<const std::size_t> shown, Area box) {
  ImGui::SetCursorScreenPos(box.min());
  if (ImGui::InvisibleButton("others", {box.width, box.height})) ImGui::OpenPopup("other tabs");
  draw_tab(look, kOthers, "", kLeastPad, box, false, ImGui::IsItemHovered());
  std::optional<std::size_t> chosen;
  ImGui::SetNextWindowPos({box.x, box.bottom()});
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(look.px(8), look.px(8)));
  ImGui::PushFont(look.fonts.text);
  if (ImGui::BeginPopup("other tabs")) {
    for (std::size_t i = 0; i < titles.size(); ++i) {
      if (std::find(shown.begin(), shown.end(), i) != shown.end()) continue;
      const float height = look.px(26);
      const Area row{ImGui::GetCursorScreenPos().x, ImGui::GetCursorScreenPos().y, look.px(150), height};
      ImGui::PushID(static_cast<int>(i));
      if (ImGui::InvisibleButton("other", {row.width, height})) {
        chosen = i;
        ImGui::CloseCurrentPopup();
      }
      ImGui::PopID();
      if (ImGui::IsItemHovered()) fill(row, look.theme.hovered, look.px(5));
      const Area words = row.inset(look.px(10), 0);
      label(look.fonts.text, words, look.theme.text, titles[i]);
      label(look.fonts.mono_small, words, look.theme.muted, tab_digit(i), 1);
    }
    ImGui::EndPopup();
  }
  ImGui::PopFont();
  ImGui::PopStyleVar();
  return chosen;
}

/// Two corners that point outwards, or inwards when it is large already.
bool enlarge_button(const Look& look, Area box, bool enlarged) {
  ImGui::SetCursorScreenPos(box.min());
  const bool pressed = ImGui::InvisibleButton("enlarge", {box.width, box.height});
  tell_item(box, "enlarge");
  const bool hovered = ImGui::IsItemHovered();
  if (hovered) fill(box, look.theme.hovered, look.px(5));
  const ImVec2 middle(box.x + box.width / 2, box.y + box.height / 2);
  const float arm = look.px(4);
  for (const float way : {-1.0F, 1.0F}) {
    const float outer = enlarged ? look.px(1.5F) : look.px(5.5F);
    const ImVec2 corner(middle.x + way * outer, middle.y - way * outer);
    const float back = enlarged ? -way : way;
    const ImVec2 points[] = {{corner.x - back * arm, corner.y}, corner, {corner.x, corner.y + back * arm}};
    ImGui::GetWindowDrawList()->AddPolyline(points, 3, (hovered ? look.theme.text : look.theme.muted).packed(), 0,
                                            look.px(1.6F));
  }
  if (hovered) {
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(look.px(10), look.px(7)));
    ImGui::SetTooltip("%s", enlarged ? "Back to all panes (F)" : "Enlarge this view (F)");
    ImGui::PopStyleVar();
  }
  return pressed;
}

}  // namespace

std::vector<std::size_t> tabs_that_fit(std::span<const float> widths, std::size_t current, float room, float others) {
  std::vector<std::size_t> shown(widths.size());
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  float sum = std::accumulate(widths.begin(), widths.end(), 0.0F);
  if (sum <= room) return shown;
  while (shown.size() > 1 && sum + others > room) {
    const auto last = shown.back() == current ? shown.end() - 2 : shown.end() - 1;
    sum -= widths[*last];
    shown.erase(last);
  }
  return shown;
}

TabClicks draw_tabs(const Look& look, std::span<const std::string_view> titles, std::size_t current, bool enlarged,
                    std::string_view caption, Area area) {
  fill(area, look.theme.panel);
  fill({area.x, area.bottom() - 1, area.width, 1}, look.theme.line);
  const float button = look.px(kTabButton);
  const float room = area.width - look.px(10 + 18 - kTabPad) - button;
  const Widths widths = widths_of(look, titles, room);
  const float start = area.x + look.px(18 - widths.pad);
  const float others = text_size(look.fonts.text, kOthers).x + look.px(2 * kLeastPad);
  const std::vector<std::size_t> shown = tabs_that_fit(widths.tabs, current, room, others);
  TabClicks clicks;
  float x = start;
  for (const std::size_t i : shown) {
    const Area box{x, area.y, widths.tabs[i], area.height};
    ImGui::SetCursorScreenPos(box.min());
    ImGui::PushID(static_cast<int>(i));
    if (ImGui::InvisibleButton("tab", {box.width, box.height})) clicks.chosen = i;
    const bool hovered = ImGui::IsItemHovered();
    if (hovered && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left)) clicks.enlarge = true;
    ImGui::PopID();
    draw_tab(look, titles[i], widths.digits ? tab_digit(i) : "", widths.pad, box, i == current, hovered);
    x += box.width;
  }
  if (shown.size() < titles.size()) {
    if (const auto chosen = list_others(look, titles, shown, {x, area.y, others, area.height})) clicks.chosen = chosen;
    x += others;
  }
  const float left = start + room - x - look.px(24);
  if (left >= look.px(kLeastCaption)) {
    label(look.fonts.small, {x + look.px(12), area.y + look.scale, left, area.height}, look.theme.muted, caption, 1);
  }
  const Area corner{area.right() - look.px(8) - button, area.y + (area.height - button) / 2, button, button};
  clicks.enlarge = enlarge_button(look, corner, enlarged) || clicks.enlarge;
  return clicks;
}

}  // namespace nanscope::gui
