#include "gui/context_menu.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <imgui.h>

#include <algorithm>
#include <utility>

#include "gui/platform/keys.h"

namespace nanscope::gui {
namespace {

constexpr float kMenuLine = 24;
constexpr float kMenuGap = 7;  ///< around a line that divides
constexpr float kMenuPad = 12;
constexpr float kFromPointer = 3;  ///< so that a second click is none on a line
constexpr ImGuiWindowFlags kMenuFlags = ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove |
                                        ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoBackground |
                                        ImGuiWindowFlags_NoScrollWithMouse;

}  // namespace

bool asked_for_menu() {
  constexpr float kStill = 16;  ///< pixels, squared
  const ImGuiIO& io = ImGui::GetIO();
  return ImGui::IsMouseReleased(ImGuiMouseButton_Right) && ImGui::IsItemHovered() &&
         io.MouseClickedLastCount[ImGuiMouseButton_Right] < 2 &&
         io.MouseDragMaxDistanceSqr[ImGuiMouseButton_Right] < kStill;
}

void ContextMenu::open(MenuTarget target, std::vector<MenuItem> items, std::string view) {
  target_ = std::move(target);
  items_ = std::move(items);
  view_ = std::move(view);
  at_ = ImGui::GetIO().MousePos;
  open_ = !items_.empty();
  current_.reset();
}

Area ContextMenu::place(const Look& look, Area window) const {
  float width = 0;
  float height = look.px(kMenuPad);
  for (const MenuItem& item : items_) {
    width = std::max(width, text_size(look.fonts.text, item.words).x);
    height += look.px(kMenuLine + (item.divided ? kMenuGap : 0));
  }
  Area card{at_.x + look.px(kFromPointer), at_.y + look.px(kFromPointer), width + look.px(2 * kMenuPad), height};
  if (card.right() > window.right()) card.x = at_.x - look.px(kFromPointer) - card.width;
  if (card.bottom() > window.bottom()) card.y = at_.y - look.px(kFromPointer) - card.height;
  card.x = std::max(card.x, window.x);
  card.y = std::max(card.y, window.y);
  return card;
}

bool ContextMenu::draw_line(const Look& look, std::size_t index, Area line) {
  ImGui::SetCursorScreenPos(line.min());
  ImGui::PushID(static_cast<int>(index));
  const bool pressed = ImGui::InvisibleButton("line", {line.width, line.height});
  ImGui::PopID();
  const ImGuiIO& io = ImGui::GetIO();
  if (ImGui::IsItemHovered() && (io.MouseDelta.x != 0 || io.MouseDelta.y != 0)) current_ = index;
  if (current_ == index) fill(line.inset(look.px(4), 0), look.theme.hovered, look.px(4));
  label(look.fonts.text, line.inset(look.px(kMenuPad), 0), look.theme.text, printable(items_[index].words));
  return pressed;
}

std::optional<MenuItem> ContextMenu::draw(const Look& look, Area window) {
  if (!open_) return std::nullopt;
  ImGui::SetNextWindowPos(window.min());
  ImGui::SetNextWindowSize({window.width, window.height});
  ImGui::SetNextWindowFocus();
  ImGui::Begin("menu", nullptr, kMenuFlags);
  const Area card = place(look, window);
  fill(card, look.theme.raised, look.px(6));
  outline(card, look.theme.line, 1, look.px(6));
  const std::size_t count = items_.size();
  if (key_pressed(GLFW_KEY_DOWN)) current_ = current_ ? (*current_ + 1) % count : 0;
  if (key_pressed(GLFW_KEY_UP)) current_ = (current_.value_or(0) + count - 1) % count;
  std::optional<std::size_t> chosen;
  float y = card.y + look.px(kMenuPad / 2);
  for (std::size_t i = 0; i < count; ++i) {
    if (items_[i].divided) {
      if (i > 0) fill({card.x, y + look.px(kMenuGap / 2), card.width, 1}, look.theme.line);
      y += look.px(kMenuGap);
    }
    if (draw_line(look, i, {card.x, y, card.width, look.px(kMenuLine)})) chosen = i;
    y += look.px(kMenuLine);
  }
  if (current_ && key_pressed(GLFW_KEY_ENTER)) chosen = current_;
  const bool outside =
      (ImGui::IsMouseClicked(ImGuiMouseButton_Left) || ImGui::IsMouseClicked(ImGuiMouseButton_Right)) &&
      !card.holds(ImGui::GetIO().MousePos);
  ImGui::End();
  if (outside || key_pressed(GLFW_KEY_ESCAPE)) open_ = false;
  if (!chosen) return std::nullopt;
  open_ = false;
  return items_[*chosen];
}

}  // namespace nanscope::gui
