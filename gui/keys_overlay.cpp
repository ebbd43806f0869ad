#include "gui/keys_overlay.h"

#include <imgui.h>

#include <algorithm>
#include <vector>

namespace nanscope::gui {
namespace {

constexpr float kColumn = 470;
constexpr float kLeastColumn = 350;
constexpr float kKeysRow = 26;
constexpr float kGroup = 12;  ///< above the title of a group
constexpr float kKeysPad = 28;
constexpr float kKeysWidth = 160;
constexpr int kKeysShade = 150;  ///< of what is behind, 0 to 255

float height_of(const KeyRow& row) { return row.keys.empty() ? kKeysRow + kGroup : kKeysRow; }

float height_of(std::span<const KeyRow> rows) {
  float height = 0;
  for (const KeyRow& row : rows) height += height_of(row);
  return height;
}

/// Two columns of about the same height, cut where a group begins.
std::size_t middle_of(std::span<const KeyRow> rows) {
  std::size_t best = rows.size();
  float least = height_of(rows);
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const float higher = std::max(height_of(rows.first(i)), height_of(rows.subspan(i)));
    if (!rows[i].keys.empty() || higher >= least) continue;
    best = i;
    least = higher;
  }
  return best;
}

/// `squeeze`: of the height of a row, where the window is too low for all.
void draw_column(const Look& look, std::span<const KeyRow> rows, Area area, float squeeze) {
  float y = area.y;
  for (const KeyRow& row : rows) {
    const float height = look.px(kKeysRow) * squeeze;
    if (row.keys.empty()) {
      y += look.px(kGroup) * squeeze;
      label(look.fonts.title, {area.x, y, area.width, height}, look.theme.text, row.words);
    } else {
      label(look.fonts.mono_small, {area.x, y, look.px(kKeysWidth), height}, look.theme.accent, row.keys);
      const float room = area.width - look.px(kKeysWidth);
      label(look.fonts.small, {area.x + look.px(kKeysWidth), y, room, height}, look.theme.text, row.words);
    }
    y += height;
  }
}

}  // namespace

bool draw_keys_overlay(const Look& look, Area window, std::span<const KeyRow> rows) {
  ImGui::SetNextWindowPos(window.min());
  ImGui::SetNextWindowSize({window.width, window.height});
  ImGui::SetNextWindowFocus();
  ImGui::Begin("keys", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings |
                   ImGuiWindowFlags_NoBackground);
  fill(window, Color::hex(0x000000).alpha(kKeysShade));
  const float pad = look.px(kKeysPad);
  const float most = window.width - look.px(40);
  const bool two = most >= 2 * look.px(kLeastColumn) + 3 * pad;
  const std::size_t cut = two ? middle_of(rows) : rows.size();
  const float column =
      two ? std::min(look.px(kColumn), (most - 3 * pad) / 2) : std::min(look.px(kColumn), most - 2 * pad);
  const float wanted = look.px(std::max(height_of(rows.first(cut)), height_of(rows.subspan(cut))));
  const float listed = std::min(wanted, window.height - look.px(16) - 2 * pad + look.px(kGroup));
  const float width = two ? 2 * column + 3 * pad : column + 2 * pad;
  const float height = listed + 2 * pad - look.px(kGroup);
  const Area card{window.x + (window.width - width) / 2, window.y + (window.height - height) / 2, width, height};
  fill(card, look.theme.panel, look.px(10));
  outline(card, look.theme.line, 1, look.px(10));
  const float top = card.y + pad - look.px(kGroup);
  draw_column(look, rows.first(cut), {card.x + pad, top, column, listed}, listed / wanted);
  draw_column(look, rows.subspan(cut), {card.x + 2 * pad + column, top, column, listed}, listed / wanted);
  const bool clicked = ImGui::IsMouseClicked(ImGuiMouseButton_Left) && ImGui::IsWindowHovered();
  ImGui::End();
  return clicked;
}

}  // namespace nanscope::gui
