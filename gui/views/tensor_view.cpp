#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/numbers/bits_input.h"
#include "gui/cell_map.h"
#include "gui/export/tables.h"
#include "gui/marks.h"
#include "gui/prepare/tensor_sheet.h"
#include "gui/views/registry.h"

/// The tensor: token x channel, or query x key, coloured by the magnitude and health of each element.
namespace nanscope::gui {
namespace {

constexpr float kBarHeight = 42;      ///< choice of the output, the head and the ramp
constexpr float kNumbersHeight = 44;  ///< a line of numbers about the whole tensor
constexpr float kNumberGap = 22;
constexpr float kAxisHeight = 20;
constexpr float kColumnBars = 26;
constexpr float kRowBars = 34;
constexpr float kRowNames = 104;
constexpr float kLegendHeight = 34;
constexpr float kNameHeight = 12;  ///< rows of so many pixels are named
constexpr float kTickGap = 64;     ///< between the numbers of an axis, at least
constexpr float kValueWidth = 74;  ///< cells so wide show their value

/// Where the parts of the view are.
struct Layout {
  Area bar;
  Area numbers;
  Area axis;
  Area column_bars;
  Area row_names;
  Area cells;
  Area row_bars;
  Area legend;
};

Layout lay_out(Area area, float scale, float numbers_height) {
  const auto px = [scale](float pixels) { return pixels * scale; };
  Layout out;
  const float left = area.x + px(18);
  const float width = area.width - px(36);
  out.bar = {left, area.y, width, px(kBarHeight)};
  out.numbers = {left, out.bar.bottom(), width, numbers_height};
  const float x = area.x + px(kRowNames);
  const float right = area.right() - px(kRowBars + 18 + 4);
  out.axis = {x, out.numbers.bottom(), right - x, px(kAxisHeight)};
  out.column_bars = {x, out.axis.bottom(), right - x, px(kColumnBars)};
  out.legend = {area.x, area.bottom() - px(kLegendHeight), area.width, px(kLegendHeight)};
  const float top = out.column_bars.bottom() + px(3);
  out.cells = {x, top, right - x, std::max(1.0F, out.legend.y - px(2) - top)};
  out.row_names = {area.x, top, px(kRowNames - 8), out.cells.height};
  out.row_bars = {right + px(4), top, px(kRowBars), out.cells.height};
  return out;
}

/// The numbers of an axis are multiples of this, so that they are not closer than `least` cells.
std::int64_t tick_step(double least) {
  std::int64_t step = 1;
  while (static_cast<double>(step) < least) step *= 2;
  return step;
}

class TensorView final : public View {
 public:
  std::string_view name() const override { return "tensor"; }
  std::string_view title() const override { return "Tensor"; }
  std::string_view caption() const override { return "every element by magnitude, the worst in front"; }
  std::optional<TableMaker> table(const PreparedPtr& prepared) const override {
    const auto* picture = dynamic_cast<const TensorPicture*>(prepared.get());
    if (picture == nullptr || !picture->sheet) return std::nullopt;
    return [sheet = picture->sheet] { return table_of(*sheet); };
  }

  std::optional<ViewRequest> prepare(const ViewContext& context, Area area) override {
    const Place tensor = tensor_of(context.selection.place);
    if (tensor != tensor_) {
      tensor_ = tensor;
      head_.reset();
    }
    const Area cells = lay_out(area, context.scale, kNumbersHeight * context.scale).cells;
    const int width = std::clamp(static_cast<int>(cells.width), 1, kTextureLimit);
    const int height = std::clamp(static_cast<int>(cells.height), 1, kTextureLimit);
    const Place place = context.selection.place;
    const SheetOptions options{ramp_, wanted_head(place)};
    std::optional<FrontRange> range;
    if (sheet_ && !grid_.port.shows_all()) range = grid_.port.range();
    std::string key = fmt::format("{} {} {} {} {}", to_string(tensor), static_cast<int>(ramp_),
                                  options.head.value_or(place.channel.value_or(0)), width, height);
    if (range) {
      key += fmt::format(" {} {} {} {}", range->column_begin, range->column_end, range->row_begin, range->row_end);
    }
    return ViewRequest{std::move(key), [place, options, range, width, height, known = sheet_](RunFacts& facts) {
                         return answer(facts, place, options, range, width, height, known);
                       }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    const auto& picture = static_cast<const TensorPicture&>(*prepared);
    if (!picture.sheet) {
      sheet_ = nullptr;
      notice(context, area, picture.notice, "Click a cell of the front or type a place, such as 2/0/1/v_proj[7,0]");
      return;
    }
    sheet_ = picture.sheet;
    const TensorSheet& sheet = *picture.sheet;
    grid_.port.set_grid(sheet.columns, sheet.rows);
    const Layout layout = lay_out(area, context.scale, kNumbersHeight * context.scale);
    draw_bar(context, actions, sheet, layout.bar);
    draw_numbers(context, sheet, layout.numbers);
    if (sheet.cells.empty() || layout.cells.width < 1) {
      notice(context, area, "The tensor is empty", "It has no elements");
      return;
    }
    const GridScene scene{context, grid_.port, layout.cells};
    grid_.upload(prepared, picture.image, context.theme);
    const std::optional<GridHit> hit = grid_.input(layout.cells);
    grid_.draw(scene);
    draw_values(scene, sheet);
    draw_heads(scene, sheet, layout.axis);
    draw_context(scene, sheet);
    draw_selection(scene, sheet);
    draw_axis(scene, sheet, layout.axis);
    draw_bars(scene, picture, layout);
    draw_rows(scene, sheet, layout.row_names, hit);
    draw_key(context, sheet, layout.legend);
    if (hit) point(scene, sheet, actions, *hit);
  }

 private:
  static Place tensor_of(Place place) {
    place.token.reset();
    place.channel.reset();
    return place;
  }

  static Result<PreparedPtr> answer(RunFacts& facts, const Place& place, const SheetOptions& options,
                                    const std::optional<FrontRange>& range, int width, int height,
                                    const std::shared_ptr<const TensorSheet>& known) {
    RecordingRun run(facts.recording());
    if (Result<Subject> subject = find_subject(run, place); !subject) {
      auto nothing = std::make_shared<TensorPicture>();
      nothing->notice = subject.error().message;
      return nothing;
    }
    auto sheet = make_tensor_sheet(run, facts.tensors(), place, options, known.get());
    if (!sheet) return tl::unexpected(sheet.error());
    return std::make_shared<const TensorPicture>(make_tensor_picture(std::move(*sheet), range, width, height));
  }

  /// The one that was chosen here, else that of the selected key.
  std::optional<std::int64_t> wanted_head(const Place& place) const {
    if (head_) return head_;
    if (!sheet_ || !sheet_->query_by_key || sheet_->columns == 0 || !place.channel) return std::nullopt;
    return *place.channel / sheet_->columns;
  }

  /// Left the outputs of the op, right the head and the ramp.
  void draw_bar(const ViewContext& context, const ViewActions& actions, const TensorSheet& sheet, Area bar) {
    const auto px = [&](float pixels) { return pixels * context.scale; };
    const float height = px(22);
    const float y = bar.y + (bar.height - height) / 2;
    float right = bar.right();
    for (const auto& [ramp, words] : {std::pair{Ramp::linear, "linear"}, std::pair{Ramp::log, "log"}}) {
      if (button(context, right, y, height, words, ramp_ == ramp)) ramp_ = ramp;
    }
    if (sheet.heads > 1) draw_head_choice(context, sheet, right, y, height);
    float x = bar.x;
    const std::string place = to_string(tensor_of(element_place(sheet.subject, 0, 0)));
    const float place_width = std::min(text_size(context.fonts.mono, place).x + 1, right - x);
    label(context.fonts.mono, {x, bar.y, place_width, bar.height}, context.theme.accent, place);
    x += place_width + px(16);
    for (const TensorRow& output : sheet.subject.outputs) {
      if (sheet.subject.outputs.size() < 2) break;
      float edge = x + chip_width(context, output.role);
      if (edge > right - px(12)) break;
      const float next = edge + px(6);
      if (button(context, edge, y, height, output.role, output.id == sheet.subject.tensor.id)) {
        Place chosen = context.selection.place;
        chosen.role = output.role;
        chosen.channel.reset();
        actions.choose({chosen, {}});
      }
      x = next;
    }
  }

  void draw_head_choice(const ViewContext& context, const TensorSheet& sheet, float& right, float y, float height) {
    right -= 12 * context.scale;
    if (button(context, right, y, height, "\u203A", false)) head_ = (sheet.head + 1) % sheet.heads;
    const std::string words = fmt::format("head {} of {}", sheet.head, sheet.heads);
    const float width = text_size(context.fonts.small, fmt::format("head {0} of {0}", sheet.heads)).x;
    right -= width;
    label(context.fonts.small, {right, y, width, height}, context.theme.text, words, 0.5F);
    right -= 6 * context.scale;
    if (button(context, right, y, height, "\u2039", false)) head_ = (sheet.head + sheet.heads - 1) % sheet.heads;
  }

  /// Ends at `right`, which then moves to its left.
  static bool button(const ViewContext& context, float& right, float y, float height, const std::string& words,
                     bool chosen) {
    const float width = chip_width(context, words);
    const Area area{right - width, y, width, height};
    right = area.x - 6 * context.scale;
    ImGui::SetCursorScreenPos(area.min());
    const bool pressed = ImGui::InvisibleButton(words.c_str(), {area.width, area.height});
    const Theme& theme = context.theme;
    const Color ground = chosen ? theme.accent : ImGui::IsItemHovered() ? theme.hovered : theme.raised;
    chip(context, area, words, ground, chosen ? theme.panel : theme.text);
    return pressed;
  }

  /// Names above numbers, to the right. Where not all fit, what is bad stays.
  static void draw_numbers(const ViewContext& context, const TensorSheet& sheet, Area area) {
    const Theme& theme = context.theme;
    const float gap = kNumberGap * context.scale;
    const auto width_of = [&](const SheetNumber& number) {
      return std::max(text_size(context.fonts.small, number.name).x, text_size(context.fonts.mono, number.value).x) + 1;
    };
    float room = area.width;
    std::vector<bool> shown(sheet.numbers.size());
    for (const bool healthy : {false, true}) {
      for (std::size_t i = 0; i < shown.size(); ++i) {
        const SheetNumber& number = sheet.numbers[i];
        if ((number.tone == kHealthyFirst) != healthy || room < width_of(number)) continue;
        shown[i] = true;
        room -= width_of(number) + gap;
      }
    }
    float x = area.x;
    const float line = 16 * context.scale;
    for (std::size_t i = 0; i < shown.size(); ++i) {
      if (!shown[i]) continue;
      const SheetNumber& number = sheet.numbers[i];
      const float width = width_of(number);
      label(context.fonts.small, {x, area.y, width, line}, theme.muted, number.name);
      label(context.fonts.mono, {x, area.y + line, width, line + 2},
            number.tone == kHealthyFirst ? theme.text : theme.cell(number.tone), number.value);
      x += width + gap;
    }
  }

  static bool shows_values(const GridScene& scene, const TensorSheet& sheet) {
    return sheet.elements && scene.cell_width() >= scene.px(kValueWidth) &&
           scene.cell_height() >= scene.px(kNameHeight);
  }

  static void draw_values(const GridScene& scene, const TensorSheet& sheet) {
    if (!shows_values(scene, sheet)) return;
    const FrontRange range = scene.port.range();
    clip(scene.cells);
    for (std::int64_t row = range.row_begin; row < range.row_end; ++row) {
      for (std::int64_t column = range.column_begin; column < range.column_end; ++column) {
        const float value = sheet.elements->value(row, sheet.channel(column));
        label(scene.context.fonts.mono_small, scene.cell(column, row).inset(scene.px(3), 0),
              ink_on(scene.context.theme, sheet.cell(row, column)),
              std::isnan(value) ? "NaN" : fmt::format("{:.4g}", value), 0.5F);
      }
    }
    unclip();
  }

  /// Heads that stand side by side are told apart.
  static void draw_heads(const GridScene& scene, const TensorSheet& sheet, Area axis) {
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

  /// Keys beyond the context lie in the tail of a block: read, and not to be attended to.
  static bool beyond_context(const TensorSheet& sheet, std::int64_t row, std::int64_t column) {
    const std::int64_t key = sheet.query_by_key ? column : row;
    return (sheet.query_by_key || sheet.subject.op.kind == "kv_read") && key >= sheet.subject.step.context;
  }

  static void draw_context(const GridScene& scene, const TensorSheet& sheet) {
    const std::int64_t context = sheet.subject.step.context;
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

  static void draw_selection(const GridScene& scene, const TensorSheet& sheet) {
    const Place& place = scene.context.selection.place;
    const std::optional<std::int64_t> row = row_of(sheet.subject.tensor, place);
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
  static std::string column_name(const TensorSheet& sheet, std::int64_t column) {
    if (sheet.subject.tensor.role == "stats" && sheet.columns == 3) {
      constexpr const char* kStats[] = {"mean", "variance", "1 / sqrt(variance + eps)"};
      return kStats[column];
    }
    return std::to_string(column);
  }

  static void draw_axis(const GridScene& scene, const TensorSheet& sheet, Area axis) {
    const Theme& theme = scene.context.theme;
    const Fonts& fonts = scene.context.fonts;
    const Area corner{axis.x - scene.px(kRowNames - 18), axis.y, scene.px(kRowNames - 26), axis.height};
    label(fonts.small, corner, theme.muted, !sheet.elements ? "" : sheet.query_by_key ? "key" : "channel", 1);
    if (!sheet.elements) return;
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

  /// The shares of what is bad from `base` on, none so small that it is not seen; the rest is healthy.
  template <class Draw>
  static void draw_shares(const GridScene& scene, const LineHealth& line, float length, const Draw& draw) {
    const std::pair<float, Cell> parts[] = {
        {line.nan, kNan}, {line.inf, kInf}, {line.clipped, kClipped}, {line.low_headroom, kLowHeadroom}};
    float at = 0;
    for (const auto& [share, cell] : parts) {
      if (share <= 0) continue;
      const float wide = std::clamp(std::round(share * length), scene.px(2), std::max(0.0F, length - at));
      draw(at, wide, scene.context.theme.cell(cell));
      at += wide;
    }
    draw(at, length - at, scene.context.theme.cell(line.largest).alpha(150));
  }

  static void draw_bars(const GridScene& scene, const TensorPicture& picture, const Layout& layout) {
    const FrontRange& range = picture.image.range;
    const Area& above = layout.column_bars;
    clip(above);
    const double columns = static_cast<double>(range.column_end - range.column_begin);
    for (std::size_t i = 0; i < picture.column_bars.size(); ++i) {
      const double per = columns / static_cast<double>(picture.column_bars.size());
      const double at = static_cast<double>(range.column_begin) + per * static_cast<double>(i);
      const float x = std::floor(scene.x(at));
      const float width = std::max(1.0F, std::floor(scene.x(at + per)) - x);
      const float gap = width > scene.px(4) ? 1.0F : 0.0F;
      draw_shares(scene, picture.column_bars[i], above.height, [&](float from, float high, Color color) {
        fill({x + gap, above.bottom() - from - high, width - gap, high}, color);
      });
    }
    unclip();
    clip(layout.row_bars);
    const double rows = static_cast<double>(range.row_end - range.row_begin);
    for (std::size_t i = 0; i < picture.row_bars.size(); ++i) {
      const double per = rows / static_cast<double>(picture.row_bars.size());
      const double at = static_cast<double>(range.row_begin) + per * static_cast<double>(i);
      const float y = std::floor(scene.y(at));
      const float height = std::max(1.0F, std::floor(scene.y(at + per)) - y);
      const float gap = height > scene.px(4) ? 1.0F : 0.0F;
      draw_shares(scene, picture.row_bars[i], layout.row_bars.width, [&](float from, float wide, Color color) {
        fill({layout.row_bars.x + from, y + gap, wide, height - gap}, color);
      });
    }
    unclip();
  }

  static std::string token_text(const ViewContext& context, const TensorSheet& sheet, std::int64_t position) {
    const MapRequest* request = context.map ? context.map->request(sheet.subject.step.request) : nullptr;
    if (request == nullptr) return {};
    if (sheet.subject.op.kind == "kv_read" && position >= sheet.subject.step.context) return "tail";
    const std::vector<std::int32_t>& prompt = request->row.prompt_tokens;
    const auto at = static_cast<std::size_t>(position);
    if (position >= 0 && at < prompt.size() && prompt[at] < 0) return "image";
    const auto said = request->token_text.find(position);
    return said == request->token_text.end() || said->second.empty() ? std::string() : in_quotes(said->second);
  }

  static void draw_rows(const GridScene& scene, const TensorSheet& sheet, Area names,
                        const std::optional<GridHit>& hit) {
    const Theme& theme = scene.context.theme;
    const Fonts& fonts = scene.context.fonts;
    const std::int64_t step = tick_step(static_cast<double>(scene.px(kNameHeight) / scene.cell_height()));
    const FrontRange range = scene.port.range();
    const std::optional<std::int64_t> chosen = row_of(sheet.subject.tensor, scene.context.selection.place);
    clip({names.x, names.y - scene.px(4), names.width, names.height + scene.px(8)});
    for (std::int64_t row = range.row_begin / step * step; row < range.row_end; row += step) {
      const float y = scene.y(static_cast<double>(row) + 0.5);
      const std::int64_t position = sheet.subject.tensor.first_token + row;
      const bool pointed = (hit && hit->row == row) || chosen == row;
      const std::string number = std::to_string(position);
      const float height = scene.px(16);
      const float width = text_size(fonts.mono_small, number).x;
      label(fonts.mono_small, {names.right() - width, y - height / 2, width + 1, height},
            pointed ? theme.text : theme.muted, number);
      label(fonts.small, {names.x + scene.px(18), y - height / 2, names.width - width - scene.px(26), height},
            pointed ? theme.text : theme.muted, token_text(scene.context, sheet, position), 1);
    }
    unclip();
  }

  static std::string ramp_end(double value) {
    return value >= 1000 && value < 1e7 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
  }

  static void draw_key(const ViewContext& context, const TensorSheet& sheet, Area row) {
    const LegendEntry first[] = {
        {kNan, "NaN"}, {kInf, "Inf"}, {kClipped, "clipped"}, {kLowHeadroom, "near the largest finite"}};
    const LegendEntry last[] = {{kZero, "zero"}};
    const std::string words = !sheet.elements ? "healthy, largest |x| of the row" : "healthy |x|";
    draw_legend(context, row, first, {words, ramp_end(sheet.low), ramp_end(sheet.high)}, last);
  }

  /// A pixel may cover many elements: what is told of is the worst of them, as its colour is.
  void point(const GridScene& scene, const TensorSheet& sheet, const ViewActions& actions, const GridHit& hit) const {
    FrontRange range{hit.column, hit.column + 1, hit.row, hit.row + 1};
    range.column_end += static_cast<std::int64_t>(1 / std::max(scene.cell_width(), 1e-6F));
    range.row_end += static_cast<std::int64_t>(1 / std::max(scene.cell_height(), 1e-6F));
    const auto [row, column] = worst_element(sheet, range);
    Place place = element_place(sheet.subject, row, sheet.channel(column));
    if (!sheet.elements) place.channel.reset();
    if (hit.clicked)
      actions.choose(
          {place, sheet.elements ? std::optional(row * sheet.subject.tensor.channels + *place.channel) : std::nullopt});
    const Cell cell = sheet.cell(row, column);
    std::string said = fmt::format("{} {}", sheet.query_by_key ? "query" : "token", *place.token);
    if (const std::string words = token_text(scene.context, sheet, *place.token); !words.empty()) said += " " + words;
    if (sheet.query_by_key) said += fmt::format(", key {}, head {}", column, sheet.head);
    if (beyond_context(sheet, row, column)) said += ", beyond the context";
    const std::string health =
        sheet.elements ? element_words(sheet, row, *place.channel, cell) : std::string(cell_name(cell));
    actions.hint(fmt::format("{}   {}   {}", to_string(place), said, health));
    cell_tooltip(scene.context, to_string(place), said, health, cell);
  }

  static std::string element_words(const TensorSheet& sheet, std::int64_t row, std::int64_t channel, Cell cell) {
    const TensorData& elements = *sheet.elements;
    const std::uint32_t code = elements.code(row, channel);
    const float value = elements.value(row, channel);
    std::string words = fmt::format("{:.9g}   {} = {}", value, bits::code_text(elements.format, code),
                                    bits::field_text(elements.format, code));
    if (sheet.scale && std::isfinite(value)) {
      words += fmt::format("   real {:.6g}", value * *sheet.scale);
    }
    if (cell == kClipped || cell == kLowHeadroom) words += fmt::format("   {}", cell_name(cell));
    return words;
  }

  CellMap grid_;
  Ramp ramp_ = Ramp::log;
  std::optional<std::int64_t> head_;  ///< chosen by hand, of this tensor
  Place tensor_;
  std::shared_ptr<const TensorSheet> sheet_;  ///< that is drawn
};

}  // namespace

std::unique_ptr<View> make_tensor_view() { return std::make_unique<TensorView>(); }

}  // namespace nanscope::gui
