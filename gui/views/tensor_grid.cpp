#include "gui/views/tensor_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/numbers/bits_input.h"
#include "gui/cell_paint.h"
#include "gui/marks.h"

namespace nanscope::gui {
namespace {

constexpr float kNameHeight = 12;   ///< rows of so many pixels are named
constexpr float kTickGap = 64;      ///< between the numbers of an axis, at least
constexpr float kValueWidth = 74;   ///< cells so wide show their value
constexpr float kPatternStrip = 9;  ///< left of a value: what kind of cell it is

/// The numbers of an axis are multiples of this, so that they are not closer than `least` cells.
std::int64_t tick_step(double least) {
  std::int64_t step = 1;
  while (static_cast<double>(step) < least) step *= 2;
  return step;
}

void draw_values(const GridScene& scene, const TensorSheet& sheet, const CellText& text) {
  if (!shows_values(scene, sheet)) return;
  const FrontRange range = scene.port.range();
  const Theme& theme = scene.context.theme;
  clip(scene.cells);
  for (std::int64_t row = range.row_begin; row < range.row_end; ++row) {
    for (std::int64_t column = range.column_begin; column < range.column_end; ++column) {
      const Cell cell = sheet.cell(row, column);
      const Area box = scene.cell(column, row);
      const Color ink = pattern_ink(theme.pattern(cell), theme.cell(cell));
      fill_pattern(scene.context.fonts, {box.x, box.y, scene.px(kPatternStrip), box.height}, theme.pattern(cell), ink);
      const Area words{box.x + scene.px(kPatternStrip), box.y, box.width - scene.px(kPatternStrip + 3), box.height};
      label(scene.context.fonts.mono_small, words, ink_on(theme, cell), text(row, column), 0.5F);
    }
  }
  unclip();
}

/// Heads that stand side by side are told apart.
void draw_heads(const GridScene& scene, const TensorSheet& sheet, Area axis) {
  const std::int64_t heads = sheet.subject.tensor.heads;
  if (sheet.query_by_key || heads < 2 || sheet.columns % heads != 0) return;
  const std::int64_t wide = sheet.columns / heads;
  clip({scene.cells.x, axis.y, scene.cells.width, scene.cells.bottom() - axis.y});
  for (std::int64_t head = 1; head < heads; ++head) {
    const float x = std::floor(scene.x(static_cast<double>(head * wide)));
    fill({x, axis.y + axis.height * 0.5F, scene.px(2), scene.cells.bottom() - axis.y}, scene.context.theme.panel);
  }
  unclip();
}

void draw_context(const GridScene& scene, const TensorSheet& sheet) {
  const std::int64_t context = sheet.subject.span.context;
  if (!sheet.elements || !beyond_context(sheet, sheet.rows - 1, sheet.columns - 1)) return;
  const Color ink = scene.context.theme.text.alpha(200);
  clip(scene.cells);
  if (sheet.query_by_key) {
    fill({std::floor(scene.x(static_cast<double>(context))), scene.cells.y, scene.px(2), scene.cells.height}, ink);
  } else {
    fill({scene.cells.x, std::floor(scene.y(static_cast<double>(context))), scene.cells.width, scene.px(2)}, ink);
  }
  unclip();
}

void draw_selection(const GridScene& scene, const TensorSheet& sheet) {
  const Place& place = scene.context.selection.place;
  const std::optional<std::int64_t> row = row_of(sheet.subject, place);
  const std::optional<std::int64_t> channel = channel_of(sheet.subject.tensor, place);
  const std::int64_t column = channel.value_or(0) - sheet.first_channel;
  const bool whole_row = sheet.elements == nullptr || !channel;
  if (!row || *row >= sheet.rows || (!whole_row && (column < 0 || column >= sheet.columns))) return;
  clip(scene.cells.inset(-scene.px(4)));
  if (whole_row) {
    draw_cursor(scene, scene.cell(0, *row, sheet.columns), false, false);
  } else {
    const bool lines = !shows_values(scene, sheet);  // they would cross the numbers
    draw_cursor(scene, scene.cell(column, *row), lines, lines);
  }
  unclip();
}

/// What the norms record of a row has names.
std::string column_name(const TensorSheet& sheet, std::int64_t column) {
  if (sheet.subject.tensor.role == "stats" && sheet.columns == 3) {
    constexpr const char* kStats[] = {"mean", "variance", "1 / sqrt(variance + eps)"};
    return kStats[column];
  }
  return std::to_string(column);
}

void draw_axis(const GridScene& scene, const TensorSheet& sheet, const GridAreas& areas) {
  const Area& axis = areas.axis;
  const Theme& theme = scene.context.theme;
  const Fonts& fonts = scene.context.fonts;
  if (!sheet.elements) return;
  if (areas.row_names.width > 0) {
    const Area corner{areas.row_names.x, axis.y, areas.row_names.width, axis.height};
    label(fonts.small, corner, theme.muted, sheet.query_by_key ? "key" : "channel", 1);
  }
  const std::int64_t step = tick_step(static_cast<double>(scene.px(kTickGap) / scene.cell_width()));
  const FrontRange range = scene.port.range();
  clip({scene.cells.x - scene.px(8), axis.y, scene.cells.width + scene.px(30), axis.height});
  for (std::int64_t c = (range.column_begin + step - 1) / step * step; c < range.column_end; c += step) {
    const float x = scene.x(static_cast<double>(c) + 0.5);
    const std::string words = column_name(sheet, c);
    const float width = text_size(fonts.mono_small, words).x;
    text(fonts.mono_small, {std::max(x - width / 2, scene.cells.x), axis.y + scene.px(2)}, theme.muted, words);
    fill({std::floor(x), axis.bottom() - scene.px(4), 1, scene.px(3)}, theme.muted.alpha(140));
  }
  unclip();
}

void draw_rows(const GridScene& scene, const TensorSheet& sheet, Area names, const std::optional<GridHit>& hit) {
  const Theme& theme = scene.context.theme;
  const Fonts& fonts = scene.context.fonts;
  const std::int64_t step = tick_step(static_cast<double>(scene.px(kNameHeight) / scene.cell_height()));
  const FrontRange range = scene.port.range();
  const std::optional<std::int64_t> chosen = row_of(sheet.subject, scene.context.selection.place);
  clip({names.x, names.y - scene.px(4), names.width, names.height + scene.px(8)});
  for (std::int64_t row = range.row_begin / step * step; row < range.row_end; row += step) {
    const float y = scene.y(static_cast<double>(row) + 0.5);
    const bool pointed = (hit && hit->row == row) || chosen == row;
    const std::string number = row_number(sheet, row);
    const float height = scene.px(16);
    const float width = text_size(fonts.mono_small, number).x;
    label(fonts.mono_small, {names.right() - width, y - height / 2, width + 1, height},
          pointed ? theme.text : theme.muted, number);
    label(fonts.small, {names.x + scene.px(18), y - height / 2, names.width - width - scene.px(26), height},
          pointed ? theme.text : theme.muted, token_text(scene.context, sheet, row), 1);
  }
  unclip();
}

}  // namespace

bool shows_values(const GridScene& scene, const TensorSheet& sheet) {
  return sheet.elements && scene.cell_width() >= scene.px(kValueWidth) && scene.cell_height() >= scene.px(kNameHeight);
}

std::string value_text(const TensorSheet& sheet, std::int64_t row, std::int64_t column, const NumberStyle& style) {
  const TensorData& elements = *sheet.elements;
  const std::int64_t channel = sheet.channel(column);
  if (style.notation == Notation::bits) return bits::code_text(elements.format, elements.code(row, channel));
  return number_text(style, static_cast<double>(elements.value(row, channel)));
}

void draw_grid_marks(const GridScene& scene, const TensorSheet& sheet, const GridAreas& areas, const CellText& text,
                     const std::optional<GridHit>& hit) {
  draw_values(scene, sheet, text);
  draw_heads(scene, sheet, areas.axis);
  draw_context(scene, sheet);
  draw_selection(scene, sheet);
  draw_axis(scene, sheet, areas);
  if (areas.row_names.width > 0) draw_rows(scene, sheet, areas.row_names, hit);
}

namespace {

/// Rows that are gathered or pooled keys.
bool is_keys(const TensorSheet& sheet) {
  return sheet.subject.tensor.axis == Axis::keys || sheet.subject.op.kind == OpKind::kv_read;
}

}  // namespace

/// Keys beyond the context lie in the tail of a block: read, and not to be attended to.
bool beyond_context(const TensorSheet& sheet, std::int64_t row, std::int64_t column) {
  if (!sheet.subject.row_names.empty()) return false;
  const std::int64_t key = sheet.query_by_key ? column : row;
  return (sheet.query_by_key || is_keys(sheet)) && key >= sheet.subject.span.context;
}

std::string row_number(const TensorSheet& sheet, std::int64_t row) {
  const RowName name = sheet.subject.row_name(row);
  if (name.nobodys) return {};
  return sheet.subject.row_names.empty() ? std::to_string(name.token) : fmt::format("{}:{}", name.request, name.token);
}

std::string token_text(const ViewContext& context, const TensorSheet& sheet, std::int64_t row) {
  const Subject& subject = sheet.subject;
  const RowName name = subject.row_name(row);
  if (name.nobodys) return "padding";
  if (subject.tensor.axis == Axis::none || subject.tensor.axis == Axis::slots) return {};
  const MapRequest* request = context.map ? context.map->request(name.request) : nullptr;
  if (request == nullptr) return {};
  if (subject.row_names.empty() && is_keys(sheet) && name.token >= subject.span.context) return "tail";
  const std::vector<std::int32_t>& prompt = request->row.prompt_tokens;
  const auto at = static_cast<std::size_t>(name.token);
  if (name.token >= 0 && at < prompt.size() && prompt[at] < 0) return "image";
  const auto said = request->token_text.find(name.token);
  return said == request->token_text.end() || said->second.empty() ? std::string() : in_quotes(said->second);
}

std::string element_name(const ViewContext& context, const TensorSheet& sheet, std::int64_t row, std::int64_t column) {
  const Subject& subject = sheet.subject;
  if (subject.nobodys(row)) return fmt::format("row {}, padding", row);
  const bool tokens = subject.tensor.axis != Axis::none && subject.tensor.axis != Axis::slots;
  const char* what = sheet.query_by_key                   ? "query"
                     : tokens                             ? "token"
                     : subject.tensor.axis == Axis::slots ? "slot"
                                                          : "row";
  std::string said = fmt::format("{} {}", what, row_number(sheet, row));
  if (const std::string words = token_text(context, sheet, row); !words.empty()) said += " " + words;
  if (sheet.query_by_key) said += fmt::format(", key {}, head {}", column, sheet.head);
  if (beyond_context(sheet, row, column)) said += ", beyond the context";
  return said;
}

}  // namespace nanscope::gui
