#include "gui/settings_pane.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "gui/platform/keys.h"

namespace nanscope::gui {
namespace {

constexpr float kSettingsWidth = 620;
constexpr float kSettingsRow = 40;
constexpr float kSettingsName = 130;
constexpr float kSettingsPad = 24;
constexpr float kChoiceHeight = 26;
constexpr int kSettingsRows = 5;
constexpr int kSettingsShade = 120;
constexpr ImGuiWindowFlags kSettingsFlags = ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove |
                                            ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoBackground;

/// A line of choices.
class Choices {
 public:
  Choices(const Look& look, std::string_view name, Area row) : look_(look), row_(row), x_(row.x) {
    label(look.fonts.text, {row.x, row.y, look.px(kSettingsName), row.height}, look.theme.muted, name);
    x_ += look.px(kSettingsName);
  }

  /// True when it was pressed.
  bool choice(std::string_view words, bool chosen) {
    const float width = text_size(look_.fonts.small, words).x + look_.px(24);
    const float height = look_.px(kChoiceHeight);
    const Area box{x_, row_.y + (row_.height - height) / 2, width, height};
    x_ += width + look_.px(6);
    ImGui::SetCursorScreenPos(box.min());
    ImGui::PushID(row_.y > 0 ? static_cast<int>(row_.y) : 0);
    ImGui::PushID(words.data(), words.data() + words.size());
    const bool pressed = ImGui::InvisibleButton("choice", {box.width, box.height});
    ImGui::PopID();
    ImGui::PopID();
    const Theme& theme = look_.theme;
    const Color ground = chosen ? theme.accent : ImGui::IsItemHovered() ? theme.hovered : theme.raised;
    fill(box, ground, look_.px(5));
    label(look_.fonts.small, box, chosen ? theme.panel : theme.text, words, 0.5F);
    return pressed;
  }

 private:
  const Look& look_;
  Area row_;
  float x_;
};

std::string_view short_name(Vision vision) {
  switch (vision) {
    case Vision::protan:
      return "protanopia";
    case Vision::deutan:
      return "deuteranopia";
    case Vision::tritan:
      return "tritanopia";
    case Vision::usual:
      break;
  }
  return "usual";
}

void choose(const Look& look, Area row, Preferences& set) {
  Choices theme(look, "Theme", row);
  if (theme.choice("dark", set.dark)) set.dark = true;
  if (theme.choice("light", !set.dark)) set.dark = false;
  row.y += row.height;
  Choices colors(look, "Colours for", row);
  for (const Vision vision : kVisions) {
    if (colors.choice(short_name(vision), vision == set.vision)) set.vision = vision;
  }
  row.y += row.height;
  Choices size(look, "Text size", row);
  if (size.choice("smaller", false)) set.zoom = std::max(set.zoom - kZoomStep, kLeastZoom);
  if (size.choice(fmt::format("{} %", set.zoom), set.zoom == 100)) set.zoom = 100;
  if (size.choice("larger", false)) set.zoom = std::min(set.zoom + kZoomStep, kMostZoom);
  row.y += row.height;
  Choices digits(look, "Numbers with", row);
  for (const int count : kDigitChoices) {
    if (digits.choice(fmt::format("{} digits", count), count == set.numbers.digits)) set.numbers.digits = count;
  }
  row.y += row.height;
  Choices notation(look, "Values as", row);
  for (const Notation one : kNotations) {
    if (notation.choice(name(one), one == set.numbers.notation)) set.numbers.notation = one;
  }
}

}  // namespace

std::optional<Preferences> SettingsPane::draw(const Look& look, Area window, const Preferences& now) {
  if (!open_) return std::nullopt;
  ImGui::SetNextWindowPos(window.min());
  ImGui::SetNextWindowSize({window.width, window.height});
  ImGui::SetNextWindowFocus();
  ImGui::Begin("settings", nullptr, kSettingsFlags);
  fill(window, Color::hex(0x000000).alpha(kSettingsShade));
  const float width = std::min(look.px(kSettingsWidth), window.width - look.px(20));
  const float height = look.px(2 * kSettingsPad + (kSettingsRows + 1) * kSettingsRow);
  const Area card{window.x + (window.width - width) / 2, window.y + std::max(0.0F, (window.height - height) / 2), width,
                  height};
  fill(card, look.theme.panel, look.px(10));
  outline(card, look.theme.line, 1, look.px(10));
  Area row = {card.x + look.px(kSettingsPad), card.y + look.px(kSettingsPad), card.width - look.px(2 * kSettingsPad),
              look.px(kSettingsRow)};
  label(look.fonts.title, {row.x, row.y, row.width, look.px(20)}, look.theme.text, "Settings");
  label(look.fonts.small, {row.x, row.y, row.width, look.px(20)}, look.theme.muted, "kept for the next window", 1);
  row.y += row.height;
  Preferences set = now;
  choose(look, row, set);
  const bool beside = ImGui::IsMouseClicked(ImGuiMouseButton_Left) && !card.holds(ImGui::GetIO().MousePos);
  ImGui::End();
  if (beside || key_pressed(GLFW_KEY_ESCAPE)) open_ = false;
  if (set == now) return std::nullopt;
  return set;
}

}  // namespace nanscope::gui
