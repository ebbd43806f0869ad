#include "gui/views/tensor_twin.h"

#include <fmt/format.h>

#include <cmath>

#include "core/numbers/bits_input.h"
#include "gui/marks.h"
#include "gui/views/tensor_grid.h"

namespace nanscope::gui {
namespace {

constexpr float kRamp = 72;
constexpr float kSwatch = 11;

std::string side_words(std::string_view who, const TensorSheet& sheet, std::int64_t row, std::int64_t channel,
                       double real) {
  const TensorData& elements = *sheet.elements;
  const std::uint32_t code = elements.code(row, channel);
  std::string words = fmt::format("{}: {:.9g}   {} {}", who, elements.value(row, channel), name(elements.format),
                                  bits::code_text(elements.format, code));
  if (sheet.scale && std::isfinite(real)) words += fmt::format("   real {:.6g}", real);
  return words;
}

/// From the largest negative difference to the largest positive one.
void draw_tensor_ramp(const ViewContext& context, Area area) {
  const Theme colors = difference_theme(context.theme);
  constexpr int kAll = 2 * kDiffSteps;
  for (int i = 0; i < kAll; ++i) {
    const int step = i < kDiffSteps ? kDiffSteps - 1 - i : i - kDiffSteps;
    const int code = kDiffFirst + 2 * step + (i < kDiffSteps ? 0 : 1);
    const float from = std::floor(area.x + area.width * static_cast<float>(i) / kAll);
    const float to = std::floor(area.x + area.width * static_cast<float>(i + 1) / kAll);
    fill({from, area.y, to - from, area.height}, colors.cell(static_cast<Cell>(code)));
  }
}

/// Ends at `right`, which then moves to its left.
void words_left_of(const ViewContext& context, float& right, Area row, std::string_view words) {
  const float width = text_size(context.fonts.small, words).x + 1;
  right -= width;
  label(context.fonts.small, {right, row.y, width, row.height}, context.theme.muted, words);
  right -= 6 * context.scale;
}

}  // namespace

Theme difference_theme(const Theme& theme) {
  Theme colors = theme;
  colors.name = theme.dark ? "dark difference" : "light difference";
  const Color smaller = Color::hex(theme.dark ? 0x3FD0B4 : 0x00705C);
  const Color larger = Color::hex(theme.dark ? 0xE3B778 : 0x8A5200);
  const Color none = theme.cell(kZero);
  for (int step = 0; step < kDiffSteps; ++step) {
    const float t = 0.22F + 0.78F * static_cast<float>(step) / static_cast<float>(kDiffSteps - 1);
    const std::size_t at = kDiffFirst + 2 * static_cast<std::size_t>(step);
    colors.cells[at] = mix(none, smaller, t);
    colors.cells[at + 1] = mix(none, larger, t);
  }
  colors.cells[kDiffAbsent] = theme.cell(kAbsent);
  colors.cells[kDiffEqual] = none;
  colors.cells[kDiffBits] = theme.raised;
  colors.cells[kDiffInf] = theme.cell(kInf);
  colors.cells[kDiffNanThere] = mix(theme.cell(kNan), theme.text, 0.7F);
  colors.cells[kDiffNanHere] = theme.cell(kNan);
  return colors;
}

float draw_difference_ramp(const ViewContext& context, Area row, const TwinPicture& twin) {
  const auto px = [&](float pixels) { return pixels * context.scale; };
  float right = row.right();
  const TensorDifference& difference = *twin.pair.difference;
  if (difference.high > 0) {
    const std::string high = fmt::format("{:.3g}", difference.high);
    const float ends = 2 * text_size(context.fonts.small, high).x;
    if (row.width > ends + px(kRamp + 30)) {
      words_left_of(context, right, row, high);
      right -= px(kRamp);
      draw_tensor_ramp(context, {right, row.y + (row.height - px(kSwatch)) / 2, px(kRamp), px(kSwatch)});
      right -= px(6);
      words_left_of(context, right, row, "\u2212" + high);
    }
  }
  constexpr std::string_view kWords = "NaN there only";
  if (difference.nan_there > 0 && right - row.x > text_size(context.fonts.small, kWords).x + px(30)) {
    right -= px(8);
    words_left_of(context, right, row, kWords);
    right -= px(kSwatch);
    fill({right, row.y + (row.height - px(kSwatch)) / 2, px(kSwatch), px(kSwatch)},
         difference_theme(context.theme).cell(kDiffNanThere), px(2));
  }
  return right;
}

void draw_part_title(const ViewContext& context, Area row, TwinPart part, const TwinPicture& twin) {
  const std::string name = printable(part_name(part, twin.label));
  float right = row.right();
  if (part == TwinPart::difference) {
    const float taken = text_size(context.fonts.small, name).x + 16 * context.scale;
    right = draw_difference_ramp(context, {row.x + taken, row.y, row.width - taken, row.height}, twin);
  }
  label(context.fonts.small, {row.x, row.y, right - row.x, row.height},
        part == TwinPart::there ? context.theme.accent : context.theme.text, name);
}

std::string difference_text(const SheetPair& pair, std::int64_t row, std::int64_t column) {
  const ElementPair both = pair_at(*pair.here, *pair.there, row, column);
  if (both.cell == kDiffEqual) return "=";
  return both.difference ? fmt::format("{:+.3g}", *both.difference) : "";
}

std::string pair_tooltip(const ViewContext& context, const SheetPair& pair, const std::string& label, std::int64_t row,
                         std::int64_t column) {
  const std::int64_t channel = pair.here->channel(column);
  const ElementPair both = pair_at(*pair.here, *pair.there, row, column);
  const std::string here = side_words("this run", *pair.here, row, channel, both.here);
  const std::string there = side_words(label, *pair.there, row, channel, both.there);
  const std::string how = words_of(both);
  tooltip(context, to_string(element_place(pair.here->subject, row, channel)),
          {element_name(context, *pair.here, row, column), here, there, how});
  return fmt::format("{}   {}   {}", here, there, how);
}

}  // namespace nanscope::gui
