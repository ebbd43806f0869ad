#include "gui/views/twin_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "gui/marks.h"
#include "gui/model_check.h"

namespace nanscope::gui {
namespace {

constexpr float kChipHeight = 22;
constexpr float kPartsGap = 6;
constexpr float kMostChip = 220;  ///< settings of several knobs are long

}  // namespace

ViewContext with_theme(const ViewContext& context, const Theme& theme) {
  return {theme,           context.fonts,    context.scale,      context.selection, context.map,
          context.story,   context.playhead, context.unattended, context.beside,    context.difference,
          context.printed, context.pins,     context.errors,     context.numbers,   context.checkable};
}

std::string beside_key(const BesideRunPtr& beside) {
  if (!beside) return {};
  return beside->check ? fmt::format("{} {}", beside->path.string(), beside->check->references())
                       : beside->path.string();
}

std::string part_name(TwinPart part, std::string_view label, std::string_view difference) {
  if (part == TwinPart::here) return "this run";
  return std::string(part == TwinPart::there ? label : difference);
}

ChipPress chip_button(const ViewContext& context, float left, float most, float y, float height,
                      const std::string& words, bool chosen) {
  const Area area{left, y, std::min(chip_width(context, words), most - left), height};
  ImGui::SetCursorScreenPos(area.min());
  const bool pressed = ImGui::InvisibleButton(words.c_str(), {std::max(area.width, 1.0F), area.height});
  const Theme& theme = context.theme;
  const Color ground = chosen ? theme.accent : ImGui::IsItemHovered() ? theme.hovered : theme.raised;
  chip(context, area, words, ground, chosen ? theme.panel : theme.text);
  return {area.right(), pressed};
}

float choose_part(const ViewContext& context, Area row, std::span<const TwinPart> parts, std::string_view label,
                  TwinPart& chosen, std::string_view difference) {
  float x = row.x;
  const float height = std::min(row.height, kChipHeight * context.scale);
  const float y = row.y + (row.height - height) / 2;
  for (const TwinPart part : parts) {
    const std::string name = printable(part_name(part, label, difference));
    const float most = std::min(row.right(), x + kMostChip * context.scale);
    const ChipPress chip = chip_button(context, x, most, y, height, name, chosen == part);
    if (chip.pressed) chosen = part;
    x = chip.right + kPartsGap * context.scale;
  }
  return x;
}

}  // namespace nanscope::gui
