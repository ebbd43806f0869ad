#include "gui/views/front_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/marks.h"
#include "gui/views/twin_parts.h"
#include "scenarios/report/verify_words.h"

namespace nanscope::gui {
namespace {

constexpr float kHatchFrom = 5;  ///< lower cells are grey alone
constexpr float kHatchPitch = 7;
constexpr float kLeastFrame = 6;

Color within(const Theme& theme, float part) {
  return mix(theme.cell(kZero), theme.cell(kHealthyLast), 0.12F + 0.3F * part);
}

Color beyond(const Theme& theme, float part) {
  const Color from = Color::hex(theme.dark ? 0xF3E08A : 0xF2D544);
  const Color middle = Color::hex(theme.dark ? 0xFF9D2E : 0xE8850C);
  const Color to = Color::hex(theme.dark ? 0xC2391B : 0x8F2A0C);
  return part < 0.5F ? mix(from, middle, part * 2) : mix(middle, to, part * 2 - 1);
}

float part_of(Cell cell, Cell first, Cell last) {
  return static_cast<float>(cell - first) / static_cast<float>(last - first);
}

/// Lines from the lower left to the upper right, the same ones whatever part of them is seen.
void hatch(Area area, Color color, float pitch) {
  const float first = std::floor((area.x + area.y) / pitch) * pitch;
  for (float at = first; at < area.right() + area.bottom(); at += pitch) {
    const float left = std::max(area.x, at - area.bottom());
    const float right = std::min(area.right(), at - area.y);
    if (left < right) line({left, at - left}, {right, at - right}, color);
  }
}

}  // namespace

Theme error_theme(const Theme& theme) {
  Theme colors = theme;
  colors.name = theme.dark ? "dark errors" : "light errors";
  for (Cell cell = kErrorFirst; cell <= kErrorWithin; ++cell)
    colors.cells[cell] = within(theme, part_of(cell, kErrorFirst, kErrorWithin));
  for (Cell cell = kErrorBeyond; cell <= kErrorLast; ++cell)
    colors.cells[cell] = beyond(theme, part_of(cell, kErrorBeyond, kErrorLast));
  colors.patterns.fill(Pattern::none);
  for (Cell cell = kErrorBeyond; cell <= kErrorLast; ++cell) colors.patterns[cell] = Pattern::level;
  colors.patterns[kErrorAbsent] = Pattern::sparse;
  colors.patterns[kErrorWaits] = Pattern::dashed;
  colors.patterns[kErrorNotSeen] = Pattern::upright;
  colors.patterns[kErrorNotFinite] = Pattern::crossed;
  colors.cells[kErrorWaits] = mix(theme.cell(kAbsent), theme.line, 0.5F);
  colors.cells[kErrorNotChecked] = mix(theme.cell(kZero), theme.muted, 0.25F);
  colors.cells[kErrorNotSeen] = mix(theme.cell(kZero), theme.muted, 0.1F);
  return colors;
}

void draw_error_key(const ViewContext& context, Area row) {
  Theme colors = error_theme(context.theme);
  const Theme errors = colors;
  for (int i = 0; i < kHealthySteps; ++i) {
    const int step = (kErrorLast - kErrorFirst) * i / (kHealthySteps - 1);
    colors.cells[static_cast<std::size_t>(kHealthyFirst) + static_cast<std::size_t>(i)] =
        errors.cell(static_cast<Cell>(kErrorFirst + step));
    colors.patterns[static_cast<std::size_t>(kHealthyFirst) + static_cast<std::size_t>(i)] =
        errors.pattern(static_cast<Cell>(kErrorFirst + step));
  }
  colors.cells[kLowHeadroom] = errors.cell(kErrorNotChecked);
  colors.cells[kClipped] = errors.cell(kErrorNotSeen);
  colors.patterns[kLowHeadroom] = errors.pattern(kErrorNotChecked);
  colors.patterns[kClipped] = errors.pattern(kErrorNotSeen);
  const LegendEntry first[] = {{kNan, "NaN here, not there"}};
  const LegendRamp ramp{"\u00D7 the bound, quiet to 1", "0", fmt::format("{:.0e}", error_from(kErrorLast))};
  const LegendEntry last[] = {
      {kLowHeadroom, "not checked"}, {kErrorWaits, "to be checked"}, {kClipped, "row left out"}, {kAbsent, "none"}};
  draw_legend(with_theme(context, colors), row, first, ramp, last);
}

void draw_error_marks(const GridScene& scene, const ErrorMap& errors) {
  const FrontRange range = scene.port.range();
  const Theme& theme = scene.context.theme;
  const bool hatched = scene.cell_height() >= scene.px(kHatchFrom);
  clip(scene.cells);
  for (const ErrorSpan& span : errors.spans) {
    const bool unexplained = span.checked && is_unexplained(*span.checked);
    if (!unexplained && !(hatched && span.skipped)) continue;
    if (span.row < range.row_begin || span.row >= range.row_end || span.end <= range.column_begin ||
        span.begin >= range.column_end)
      continue;
    const Area cells = scene.cell(span.begin, span.row, span.end - span.begin);
    const float left = std::max(cells.x, scene.cells.x - scene.px(4));
    Area seen{left, cells.y, std::min(cells.right(), scene.cells.right() + scene.px(4)) - left, cells.height};
    if (!unexplained) {
      if (errors.cell(span.begin, span.row) == kErrorNotChecked)
        hatch(seen, theme.muted.alpha(70), scene.px(kHatchPitch));
      continue;
    }
    const float more = std::max(0.0F, scene.px(kLeastFrame) - seen.height) / 2;
    seen = seen.inset(0, -more);
    outline(seen, theme.panel, scene.px(3));
    outline(seen, theme.text, scene.px(1.5F));
  }
  unclip();
}

std::string error_tooltip(const ViewContext& context, const Place& place, const std::string& token, Cell cell,
                          const ErrorSpan* span) {
  std::vector<std::string> lines{token, error_words(cell)};
  if (span != nullptr && span->checked) {
    const VerifiedOutput& one = *span->checked;
    const std::string role = one.role.empty() ? "" : one.role + ": ";
    lines.push_back(printable(role + verified_words(one)));
    if (one.off) lines.push_back(printable(report::verified_because(one)));
  } else if (span != nullptr) {
    lines.push_back(printable("not checked: " + span->skipped->reason));
  } else if (cell == kErrorNotChecked) {
    lines.push_back("the model is given it, or it is left out of this check");
  }
  for (std::string& said : lines) said = shortened(context.fonts.text, said, 560 * context.scale);
  tooltip(context, to_string(place), lines);
  std::string all = lines.front();
  for (std::size_t i = 1; i < lines.size(); ++i) all += "   " + lines[i];
  return all;
}

}  // namespace nanscope::gui
