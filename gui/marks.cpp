#include "gui/marks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gui/drawn.h"

namespace nanscope::gui {
namespace {

constexpr float kChipPad = 8;
constexpr float kNumberLine = 15;
constexpr float kTipWidth = 360;

constexpr std::pair<std::string_view, std::string_view> kMeanings[] = {
    {"shape", "Tokens or rows, and channels. A token is a row."},
    {"format", "The number format that the elements are stored in."},
    {"scale", "What the stored codes are multiplied by: real value = code x scale."},
    {"scales", "What the stored codes are multiplied by, a scale for each part: real value = code x scale."},
    {"min", "The least finite element, as stored."},
    {"max", "The largest finite element, as stored."},
    {"largest |x|", "The largest magnitude of a finite element, as stored. Headroom is measured from it."},
    {"NaN", "Elements that are no number."},
    {"Inf", "Elements that are infinite."},
    {"clipped", "Elements whose value before the store was beyond the largest finite one of the format."},
    {"at largest finite", "Elements at the largest finite value of the format. They may have been clipped."},
    {"zero", "Elements that are 0."},
    {"subnormal", "Elements below the least normal number of the format: they have fewer significant bits."},
    {"padding rows", "Rows that belong to no token."},
    {"elements", "Elements that are counted here."},
    {"mean", "The mean of the finite elements."},
    {"standard deviation", "Of the finite elements, from their mean."},
    {"+Inf", "Elements that are plus infinity."},
    {"-Inf", "Elements that are minus infinity."},
    {"tensor", "request/step/layer/op.role; a dump has the name that its producer gave."},
    {"headroom", "Largest finite value of the format x scale / largest magnitude. Below 1, values clip."},
    {"|max|", "The largest magnitude of a finite element."},
    {"largest", "The largest finite value of the format, times the scale."},
    {"KV B/token", "Bytes of KV cache for a token, and how many times those of the recorded run."},
    {"top-1", "How often the most likely token is that of the unquantized cache."},
    {"max error", "The largest error of the logits against the unquantized cache."},
    {"links", "The links of the chain of events: full where this run has them as well."},
    {"still NaN", "The requests whose answers come from NaN."},
};

}  // namespace

float chip_width(const ViewContext& context, std::string_view words) {
  return text_size(context.fonts.small, words).x + 2 * kChipPad * context.scale;
}

void chip(const ViewContext& context, Area area, std::string_view words, Color ground, Color ink) {
  fill(area, ground, 4 * context.scale);
  label(context.fonts.small, area, ink, words, 0.5F);
}

bool chip_button(const ViewContext& context, Area area, std::string_view words, bool on) {
  ImGui::SetCursorScreenPos(area.min());
  ImGui::PushID(words.data(), words.data() + words.size());
  const bool clicked = ImGui::InvisibleButton("chip", {area.width, area.height});
  const bool pointed = ImGui::IsItemHovered();
  ImGui::PopID();
  const Theme& theme = context.theme;
  chip(context, area, words, on || pointed ? theme.raised : theme.panel, on ? theme.text : theme.muted);
  if (on) outline(area, theme.accent, 1, 4 * context.scale);
  return clicked;
}

float chip_left_of(const ViewContext& context, float right, float y, float height, std::string_view words, Color ground,
                   Color ink) {
  const float width = chip_width(context, words);
  chip(context, {right - width, y, width, height}, words, ground, ink);
  return width;
}

void draw_sign(const ViewContext& context, Area area, Cell cell) {
  const Theme& theme = context.theme;
  const Color ink = pattern_ink(theme.pattern(cell), theme.cell(cell)).alpha(255);
  fill(area, theme.cell(cell));
  const float pixel = std::max(std::floor(context.scale), 1.0F);
  const Area box{std::floor(area.x), std::floor(area.y), std::ceil(area.right()) - std::floor(area.x),
                 std::ceil(area.bottom()) - std::floor(area.y)};
  const float side = std::min(box.width, box.height);
  switch (theme.pattern(cell)) {
    case Pattern::crossed:
      for (float at = 0; at < side; at += pixel) fill({box.x + at, box.y + at, pixel, pixel}, ink);
      [[fallthrough]];
    case Pattern::slanted:
      for (float at = 0; at < side; at += pixel) fill({box.x + side - at - pixel, box.y + at, pixel, pixel}, ink);
      return;
    case Pattern::back_slanted:
      for (float at = 0; at < side; at += pixel) fill({box.x + at, box.y + at, pixel, pixel}, ink);
      return;
    case Pattern::level:
      return fill({box.x, std::floor(box.y + box.height / 2), box.width, pixel}, ink);
    case Pattern::dotted:
      return fill({std::floor(box.x + box.width / 2), std::floor(box.y + box.height / 2), pixel, pixel}, ink);
    default:
      return;
  }
}

Color ink_on(const Theme& theme, Cell cell) {
  if (cell < kLowHeadroom) return theme.text;
  return ink_over(theme, theme.cell(cell));
}

Color ink_over(const Theme& theme, Color ground) {
  constexpr Color kDark = Color::hex(0x14060A);
  constexpr Color kLight = Color::hex(0xFFFFFF);
  const Color first = theme.dark ? kDark : kLight;
  const Color second = theme.dark ? kLight : kDark;
  return contrast(first, ground) >= kLeastContrast ? first : second;
}

void tooltip(const ViewContext& context, const std::string& title, const std::vector<std::string>& lines) {
  tooltip(context.fonts, context.scale, title, lines);
}

void tooltip(const Fonts& fonts, float scale, const std::string& title, const std::vector<std::string>& lines) {
  const auto write = [](const std::string& words) {
    ImGui::TextUnformatted(words.c_str());
    const ImVec2 at = ImGui::GetItemRectMin();
    tell_text({at.x, at.y, ImGui::GetItemRectSize().x, ImGui::GetItemRectSize().y}, words);
  };
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(12 * scale, 9 * scale));
  ImGui::BeginTooltip();
  ImGui::PushFont(fonts.mono);
  write(title);
  ImGui::PopFont();
  ImGui::PushFont(fonts.small);
  for (const std::string& words : lines) write(words);
  ImGui::PopFont();
  ImGui::EndTooltip();
  ImGui::PopStyleVar();
}

void explain(const ViewContext& context, Area area, const std::string& title, std::string_view words) {
  if (words.empty() || !ImGui::IsWindowHovered() || !area.holds(ImGui::GetIO().MousePos)) return;
  tooltip(context, title, wrap(context.fonts.small, words, kTipWidth * context.scale));
}

std::string_view number_meaning(std::string_view name) {
  for (const auto& [one, words] : kMeanings) {
    if (one == name) return words;
  }
  return {};
}

void notice(const ViewContext& context, Area area, std::string_view title, std::string_view words) {
  const float height = 20 * context.scale;
  const Area middle = Area{area.x, area.y + area.height / 2 - height, area.width, height}.inset(24 * context.scale, 0);
  label(context.fonts.text, middle, context.theme.text, title, 0.5F);
  float y = middle.bottom() + 4 * context.scale;
  for (const std::string& said : wrap(context.fonts.small, words, middle.width, 3)) {
    label(context.fonts.small, {middle.x, y, middle.width, height}, context.theme.muted, said, 0.5F);
    y += 16 * context.scale;
  }
}

float number_table(const ViewContext& context, Area area, int columns, std::size_t most,
                   const std::vector<std::pair<std::string, std::string>>& numbers, bool draw) {
  const std::size_t shown = std::min(numbers.size(), most);
  const auto across = static_cast<std::size_t>(std::max(columns, 1));
  const float line_height = kNumberLine * context.scale;
  const float gap = 24 * context.scale;
  const float width = (area.width - gap * static_cast<float>(across - 1)) / static_cast<float>(across);
  for (std::size_t i = 0; draw && i < shown; ++i) {
    const std::size_t row = i / across;
    const Area cell{area.x + static_cast<float>(i % across) * (width + gap),
                    area.y + static_cast<float>(row) * line_height, width, line_height};
    const auto& [name, value] = numbers[i];
    const float value_width = std::min(text_size(context.fonts.mono_small, value).x, cell.width * 0.6F);
    label(context.fonts.small, {cell.x, cell.y, cell.width - value_width - 8 * context.scale, cell.height},
          context.theme.muted, name);
    label(context.fonts.mono_small, {cell.right() - value_width - 1, cell.y, value_width + 1, cell.height},
          context.theme.text, value, 1);
    explain(context, cell, name, number_meaning(name));
  }
  const std::size_t rows = (shown + across - 1) / across;
  return static_cast<float>(rows) * line_height;
}

}  // namespace nanscope::gui
