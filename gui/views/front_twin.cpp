#include "gui/views/front_twin.h"

#include <fmt/format.h>

#include <algorithm>

#include "gui/marks.h"
#include "gui/views/tensor_twin.h"

namespace nanscope::gui {
Theme front_difference_theme(const Theme& theme) {
  Theme colors = theme;
  colors.name = theme.dark ? "dark front difference" : "light front difference";
  const Color none = theme.cell(kZero);
  const Theme signs = difference_theme(theme);  // teal for there, brown for here, as in the tensor view
  colors.cells[kCellEqual] = none;
  colors.cells[kCellOnlyHere] = mix(none, theme.muted, 0.55F);
  colors.cells[kCellOnlyThere] = mix(none, theme.muted, 0.85F);
  colors.cells[kCellOtherBits] = theme.cell(kHealthyFirst + kHealthySteps / 2);
  colors.cells[kCellWorseThere] = signs.cell(kDiffLast - 1);
  colors.patterns[kCellEqual] = Pattern::none;
  colors.patterns[kCellOnlyHere] = Pattern::sparse;
  colors.patterns[kCellOnlyThere] = Pattern::upright;
  colors.patterns[kCellOtherBits] = Pattern::dashed;
  colors.patterns[kCellWorseThere] = Pattern::back_slanted;
  return colors;
}

void draw_front_parts(const ViewContext& context, Area row, TwinPart& part) {
  const bool checked = context.beside->check != nullptr;
  const float end = checked ? choose_part(context, row, kCheckParts, context.beside->label, part, "error")
                            : choose_part(context, row, kTwinParts, context.beside->label, part);
  const float x = end + 8 * context.scale;
  const std::string words = context.errors       ? context.errors->words()
                            : context.difference ? context.difference->words()
                                                 : std::string(checked ? "checking\u2026" : "comparing\u2026");
  const std::string framed = context.errors && context.errors->unexplained() > 0
                                 ? fmt::format(" \u00B7 framed: {} unexplained", context.errors->unexplained())
                                 : std::string();
  label(context.fonts.small, {x, row.y, row.right() - x, row.height}, context.theme.muted, printable(words + framed));
}

void draw_difference_key(const ViewContext& context, Area row) {
  const LegendEntry entries[] = {{kNan, "NaN here, not there"},
                                 {kInf, "Inf here"},
                                 {kClipped, "clipped here"},
                                 {kLowHeadroom, "low headroom here"},
                                 {kCellWorseThere, "worse there"},
                                 {kCellOtherBits, "other bits"},
                                 {kCellEqual, "equal"},
                                 {kCellOnlyHere, "here only"},
                                 {kCellOnlyThere, "there only"}};
  const Theme colors = front_difference_theme(context.theme);
  draw_legend(with_theme(context, colors), row, entries, {}, {});
}

std::string health_words(Cell cell) {
  if (cell < kHealthyFirst || cell > kHealthyLast) return std::string(cell_name(cell));
  return fmt::format("{}, largest |x| {:.2g} to {:.2g}", cell_name(cell), magnitude_of(cell),
                     magnitude_of(static_cast<Cell>(cell + 1)));
}

std::string cell_pair_tooltip(const ViewContext& context, const Place& place, const std::string& token, Cell here,
                              Cell there, Cell difference) {
  const std::string this_run = fmt::format("this run: {}", health_words(here));
  const std::string other = fmt::format("{}: {}", printable(context.beside->label), health_words(there));
  tooltip(context, to_string(place), {token, this_run, other, std::string(difference_name(difference))});
  return fmt::format("{}   {}   {}", this_run, other, difference_name(difference));
}

}  // namespace nanscope::gui
