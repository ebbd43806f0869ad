#include "gui/views/tensor_twin.h"

#include <fmt/format.h>

#include <cmath>

#include "core/numbers/bits_input.h"
#include "gui/cell_paint.h"
#include "gui/marks.h"
#include "gui/views/front_errors.h"
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

/// From 0 to the furthest that has a colour of its own.
void draw_error_ramp(const ViewContext& context, Area area) {
  const Theme colors = error_theme(context.theme);
  constexpr int kAll = kErrorLast - kErrorFirst + 1;
  for (int i = 0; i < kAll; ++i) {
    const float from = std::floor(area.x + area.width * static_cast<float>(i) / kAll);
    const float to = std::floor(area.x + area.width * static_cast<float>(i + 1) / kAll);
    fill_cell(colors, context.fonts, {from, area.y, to - from, area.height}, static_cast<Cell>(kErrorFirst + i));
  }
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
    fill_cell(colors, context.fonts, {from, area.y, to - from, area.height}, static_cast<Cell>(code));
  }
}

/// Ends at `right`, which then moves to its left.
void words_left_of(const ViewContext& context, float& right, Area row, std::string_view words) {
  const float width = text_size(context.fonts.small, words).x + 1;
  right -= width;
  label(context.fonts.small, {right, row.y, width, row.height}, context.theme.muted, words);
  right -= 6 * context.scale;
}

/// "expected 0.003642 before rounding, which explains 5e-08: off by 2.6e+04 times that"
std::string bound_words(const Reference& reference, std::int64_t row, std::int64_t channel, double value) {
  if (!reference.judged(row, channel)) return "not judged: nothing says what it should be, or a mask hides it";
  const std::size_t at = reference.index(row, channel);
  std::string words = fmt::format("expected {:.9g} before it is rounded, which explains {:.3g}",
                                  double{reference.expected[at]}, double{reference.bound[at]});
  const double distance = reference.distance(row, channel, value);
  if (std::isfinite(distance)) words += fmt::format(": off by {:.3g} times that", distance);
  return words;
}

}  // namespace

Theme theme_of(const Theme& theme, const TensorDifference& difference) {
  return difference.unit == DifferenceUnit::bound ? error_theme(theme) : difference_theme(theme);
}

float choose_unit(const ViewContext& context, Area row, DifferenceUnit& chosen) {
  struct Choice {
    DifferenceUnit unit;
    const char* words;
  };
  constexpr Choice kChoices[] = {
      {DifferenceUnit::absolute, "absolute"}, {DifferenceUnit::ulp, "ulp"}, {DifferenceUnit::bound, "bound"}};
  const bool model = context.beside && context.beside->check;
  const std::size_t count = model ? 3 : 2;
  const float gap = 6 * context.scale;
  float right = row.right();
  for (std::size_t i = count; i-- > 0;) {
    const float left = right - chip_width(context, kChoices[i].words);
    if (left < row.x + row.width * 0.4F) break;
    const ChipPress chip =
        chip_button(context, left, right, row.y, row.height, kChoices[i].words, chosen == kChoices[i].unit);
    if (chip.pressed) chosen = kChoices[i].unit;
    right = left - gap;
  }
  return right - gap;
}

Theme difference_theme(const Theme& theme) {
  Theme colors = theme;
  colors.name = theme.dark ? "dark difference" : "light difference";
  const Color smaller = Color::hex(theme.dark ? 0x3FD0B4 : 0x00705C);
  const Color larger = Color::hex(theme.dark ? 0xE8C050 : 0x8A5200);
  const Color none = theme.cell(kZero);
  for (int step = 0; step < kDiffSteps; ++step) {
    const float t = 0.22F + 0.78F * static_cast<float>(step) / static_cast<float>(kDiffSteps - 1);
    const std::size_t at = kDiffFirst + 2 * static_cast<std::size_t>(step);
    colors.cells[at] = mix(none, smaller, t);
    colors.cells[at + 1] = mix(none, larger, t);
  }
  colors.patterns.fill(Pattern::none);
  colors.patterns[kDiffAbsent] = Pattern::sparse;
  colors.patterns[kDiffBits] = Pattern::dashed;
  colors.patterns[kDiffInf] = Pattern::slanted;
  colors.patterns[kDiffNanThere] = Pattern::upright;
  colors.patterns[kDiffNanHere] = Pattern::crossed;
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
  if (difference.unit == DifferenceUnit::bound && difference.rows > 0) {
    const std::string last = fmt::format("{:.0e}", error_from(kErrorLast));
    if (row.width < 2 * text_size(context.fonts.small, last).x + px(kRamp + 10)) return right;
    words_left_of(context, right, row, last);
    right -= px(kRamp);
    draw_error_ramp(context, {right, row.y + (row.height - px(kSwatch)) / 2, px(kRamp), px(kSwatch)});
    right -= px(6);
    words_left_of(context, right, row, "0");
  } else if (difference.high > 0) {
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
  if (difference.unit != DifferenceUnit::bound && difference.nan_there > 0 &&
      right - row.x > text_size(context.fonts.small, kWords).x + px(30)) {
    right -= px(8);
    words_left_of(context, right, row, kWords);
    right -= px(kSwatch);
    fill_cell(difference_theme(context.theme), context.fonts,
              {right, row.y + (row.height - px(kSwatch)) / 2, px(kSwatch), px(kSwatch)}, kDiffNanThere, px(2));
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
  if (pair.difference->unit == DifferenceUnit::bound) {
    const double distance = pair.reference->distance(row, pair.here->channel(column), both.here);
    return std::isnan(distance) ? "" : fmt::format("{:.3g}", distance);
  }
  if (both.cell == kDiffEqual) return "=";
  if (pair.difference->unit == DifferenceUnit::ulp && both.ulps)
    return fmt::format("{}{}", both.difference && *both.difference < 0 ? "\u2212" : "+", *both.ulps);
  return both.difference ? fmt::format("{:+.3g}", *both.difference) : "";
}

std::string pair_tooltip(const ViewContext& context, const SheetPair& pair, const std::string& label, std::int64_t row,
                         std::int64_t column) {
  const std::int64_t channel = pair.here->channel(column);
  const ElementPair both = pair_at(*pair.here, *pair.there, row, column);
  const std::string here = side_words("this run", *pair.here, row, channel, both.here);
  const std::string there = side_words(label, *pair.there, row, channel, both.there);
  std::string how = words_of(both);
  std::vector<std::string> lines{element_name(context, *pair.here, row, column), here, there, how};
  if (pair.reference) {
    lines.push_back(bound_words(*pair.reference, row, channel, both.here));
    how = lines.back();
  }
  tooltip(context, to_string(element_place(pair.here->subject, row, channel)), lines);
  return fmt::format("{}   {}   {}", here, there, how);
}

}  // namespace nanscope::gui
