#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "core/numbers/bits_input.h"
#include "gui/export/tables.h"
#include "gui/grid_marks.h"
#include "gui/marks.h"
#include "gui/prepare/tensor_pair.h"
#include "gui/prepare/tensor_statistics.h"
#include "gui/views/ramp_choice.h"
#include "gui/views/registry.h"
#include "gui/views/tensor_grid.h"
#include "gui/views/tensor_layout.h"
#include "gui/views/tensor_margins.h"
#include "gui/views/tensor_panel.h"
#include "gui/views/tensor_twin.h"

/// The tensor: token x channel, or query x key, coloured by the magnitude and health of each element, and beside it the
/// same tensor of another run.
namespace nanscope::gui {
namespace {

constexpr float kNumberGap = 22;

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

  std::optional<Selection> next_bad(const Selection& from, bool forward) const override {
    if (!known_.here) return std::nullopt;
    const TensorSheet& sheet = *known_.here;
    const std::optional<std::int64_t> channel = channel_of(sheet.subject.tensor, from.place);
    const std::int64_t row = row_of(sheet.subject, from.place).value_or(0);
    const std::int64_t column = channel ? *channel - sheet.first_channel : (forward ? -1 : 0);
    const auto found = gui::next_bad(sheet, {row, column}, forward);
    if (!found) return std::nullopt;
    const Place place = element_place(sheet.subject, found->first, sheet.channel(found->second));
    return Selection{place, place.channel ? std::optional(found->first * sheet.subject.tensor.channels + *place.channel)
                                          : std::nullopt};
  }

  std::optional<ViewRequest> prepare(const ViewContext& context, Area area) override {
    const Place tensor = tensor_of(context.selection.place);
    if (tensor != tensor_) {
      tensor_ = tensor;
      head_.reset();
      part_of_grid_.reset();
    }
    area = split(context, area).grid;
    if (context.beside != beside_) {
      beside_ = context.beside;
      known_ = {};
      unit_ = beside_ && beside_->check ? DifferenceUnit::bound : DifferenceUnit::absolute;
    }
    const TensorMode mode = beside_ ? twin_mode(area, context.scale) : TensorMode::alone;
    const Area cells = lay_out_tensor(area, context.scale, mode).grids.front().cells;
    Question question;
    question.place = context.selection.place;
    question.options = {choice_.ramp(), wanted_head(question.place), {}, choice_.signs(), choice_.range(), unit_};
    question.options.call = context.selection.call;
    question.statistics = counting_;
    question.part = part_of_grid_;
    question.width = std::clamp(static_cast<int>(cells.width), 1, kTextureLimit);
    question.height = std::clamp(static_cast<int>(cells.height), 1, kTextureLimit);
    question.beside = beside_;
    if (known_.here && !port_.shows_all()) question.range = port_.range();
    return ViewRequest{key_of(question, tensor),
                       [question, known = known_](RunFacts& facts) { return answer(facts, question, known); }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    const auto& picture = static_cast<const TensorPicture&>(*prepared);
    if (!picture.sheet) {
      known_ = {};
      notice(context, area, picture.notice, "Click a cell of the front or type a place, such as 2/0/1/v_proj[7,0]");
      return;
    }
    known_ = picture.twin ? picture.twin->pair : SheetPair{picture.sheet, nullptr, nullptr};
    const Split parts = split(context, area);
    area = parts.grid;
    const TensorMode mode = picture.twin ? twin_mode(area, context.scale) : TensorMode::alone;
    const TensorLayout layout = lay_out_tensor(area, context.scale, mode);
    const bool shows_there = mode == TensorMode::tabs && part_ == TwinPart::there && picture.twin->there;
    draw_bar(context, actions, *picture.sheet, layout.bar);
    if (parts.panel.width > 0 && picture.statistics) {
      Area panel = parts.panel;
      if (parts.instead) panel = {panel.x, layout.numbers.y, panel.width, panel.bottom() - layout.numbers.y};
      if (panel_.draw(context, *picture.sheet, *picture.statistics, panel)) part_of_grid_.reset();
      if (parts.instead) return;
    }
    draw_numbers(context, shows_there ? *picture.twin->there->sheet : *picture.sheet, layout.numbers);
    if (picture.sheet->cells.empty() || layout.grids.front().cells.width < 1) {
      notice(context, area, "The tensor is empty", "It has no elements");
      return;
    }
    port_.set_grid(picture.sheet->columns, picture.sheet->rows);
    reveal(context.selection, *picture.sheet);
    if (mode != TensorMode::alone) draw_twin_words(context, *picture.twin, layout);
    const Shown shown{context, actions, prepared, picture};
    if (mode == TensorMode::side_by_side) {
      for (std::size_t i = 0; i < std::size(kTwinParts); ++i) {
        draw_part_title(context, layout.titles[i], kTwinParts[i], *picture.twin);
        draw_part(shown, kTwinParts[i], layout.grids[i]);
      }
    } else {
      draw_part(shown, mode == TensorMode::tabs ? part_ : TwinPart::here, layout.grids.front());
    }
    draw_key(context, *picture.sheet, layout.legend);
  }

 private:
  static Place tensor_of(Place place) {
    place.token.reset();
    place.channel.reset();
    return place;
  }

  /// What the store's thread is asked for.
  struct Question {
    Place place;
    SheetOptions options;
    std::optional<FrontRange> range;
    bool statistics = false;
    std::optional<FrontRange> part;  ///< that they are of; nothing: of all
    int width = 1;
    int height = 1;
    BesideRunPtr beside;
  };

  /// What is drawn in one frame.
  struct Shown {
    const ViewContext& context;
    const ViewActions& actions;
    const PreparedPtr& prepared;
    const TensorPicture& picture;
  };

  static std::string key_of(const Question& question, const Place& tensor) {
    const auto words = [](const std::optional<FrontRange>& range) {
      return range
                 ? fmt::format(" {} {} {} {}", range->column_begin, range->column_end, range->row_begin, range->row_end)
                 : std::string(" -");
    };
    const SheetOptions& options = question.options;
    std::string key = fmt::format("{} {} {} {} {} {} {}", to_string(tensor), static_cast<int>(options.ramp),
                                  options.signs, options.head.value_or(question.place.channel.value_or(0)),
                                  question.width, question.height, beside_key(question.beside));
    if (question.beside) key += fmt::format(" {}", static_cast<int>(options.unit));
    if (options.call != 0) key += fmt::format(" call {}", options.call);
    if (options.range.typed) key += fmt::format(" {} {}", options.range.typed->smallest, options.range.typed->largest);
    return key + words(question.range) + words(options.range.part) +
           (question.statistics ? " counted" + words(question.part) : "");
  }

  /// Where the statistics are: beside the grid, or instead of it.
  struct Split {
    Area grid;
    Area panel;
    bool instead = false;
  };
  Split split(const ViewContext& context, Area area) const {
    if (!counting_) return {area, {}};
    const float width = TensorPanel::kWidth * context.scale;
    if (area.width < TensorPanel::kBesideFrom * context.scale) return {area, area, true};
    return {{area.x, area.y, area.width - width, area.height}, {area.right() - width, area.y, width, area.height}};
  }

  /// Shows an element that was chosen elsewhere.
  void reveal(const Selection& selection, const TensorSheet& sheet) {
    if (selection == revealed_) return;
    revealed_ = selection;
    const std::optional<std::int64_t> row = row_of(sheet.subject, selection.place);
    const std::optional<std::int64_t> channel = channel_of(sheet.subject.tensor, selection.place);
    if (!row) return;
    const std::int64_t column = channel.value_or(sheet.first_channel) - sheet.first_channel;
    if (*row < sheet.rows && column >= 0 && column < sheet.columns) port_.reveal(column, *row);
  }

  static Result<PreparedPtr> answer(RunFacts& facts, const Question& question, const SheetPair& known) {
    Result<PreparedPtr> prepared = picture_of(facts, question, known);
    if (!prepared || !question.statistics) return prepared;
    auto picture = std::make_shared<TensorPicture>(static_cast<const TensorPicture&>(**prepared));
    if (picture->sheet && picture->sheet->elements) {
      picture->statistics = std::make_shared<const TensorStatistics>(tensor_statistics(*picture->sheet, question.part));
    }
    return picture;
  }

  static Result<PreparedPtr> picture_of(RunFacts& facts, const Question& question, const SheetPair& known) {
    RunView& run = facts.view();
    if (Result<Subject> subject = find_subject(run, question.place, question.options.call); !subject) {
      auto nothing = std::make_shared<TensorPicture>();
      nothing->notice = subject.error().message;
      return nothing;
    }
    if (question.beside && (facts.beside() != nullptr || facts.model() != nullptr)) {
      Result<SheetPair> pair =
          facts.model() != nullptr
              ? make_model_pair(run, *facts.model(), question.place, question.options, known)
              : make_sheet_pair(run, facts.beside()->view(), question.place, question.options, known);
      if (!pair) return tl::unexpected(pair.error());
      return std::make_shared<const TensorPicture>(
          make_pair_picture(std::move(*pair), question.beside->label, question.range, question.width, question.height));
    }
    auto sheet = make_tensor_sheet(run, question.place, question.options, known.here.get());
    if (!sheet) return tl::unexpected(sheet.error());
    return std::make_shared<const TensorPicture>(
        make_tensor_picture(std::move(*sheet), question.range, question.width, question.height));
  }

  /// How the twin differs, and where there is room for one grid only, which one is shown.
  void draw_twin_words(const ViewContext& context, const TwinPicture& twin, const TensorLayout& layout) {
    const TensorDifference& difference = *twin.pair.difference;
    const bool same = difference.state == PairState::equal;
    std::string words = layout.tabs.width > 0 ? "" : fmt::format("beside {}: ", twin.label);
    Area said = layout.words;
    if (difference.rows > 0 && !context.printed) said.width = choose_unit(context, said, unit_) - said.x;
    label(context.fonts.small, said, same ? context.theme.muted : context.theme.text,
          printable(words + difference.words));
    if (layout.tabs.width <= 0) return;
    const float height = 22 * context.scale;
    const Area row{layout.tabs.x, layout.tabs.y, layout.tabs.width, height};
    const float x = choose_part(context, row, kTwinParts, twin.label, part_);
    if (part_ != TwinPart::difference || x >= layout.tabs.right()) return;
    draw_difference_ramp(context, {x, layout.tabs.y, layout.tabs.right() - x, height}, twin);
  }

  void draw_part(const Shown& shown, TwinPart part, const GridAreas& areas) {
    const TwinPicture* twin = shown.picture.twin.get();
    const TensorPicture* picture = &shown.picture;
    if (part == TwinPart::there) picture = twin->there ? &*twin->there : nullptr;
    if (part == TwinPart::difference && twin->pair.difference->rows == 0) picture = nullptr;
    if (picture == nullptr) {
      const char* title = part == TwinPart::difference ? "Not compared"
                          : beside_ && beside_->check  ? "No elements"
                                                       : "Not there";
      notice(shown.context, areas.cells, title, printable(twin->pair.difference->words));
      return;
    }
    const bool aligned = twin == nullptr || twin->pair.difference->state != PairState::other_shape;
    Viewport& port = part == TwinPart::there && !aligned ? other_port_ : port_;
    if (&port == &other_port_) port.set_grid(picture->sheet->columns, picture->sheet->rows);
    CellMap& grid = grids_[static_cast<std::size_t>(part)];
    const bool differences = part == TwinPart::difference;
    const Theme colors = differences             ? theme_of(shown.context.theme, *twin->pair.difference)
                         : picture->sheet->signs ? signed_theme(shown.context.theme)
                                                 : shown.context.theme;
    const ViewContext context = with_theme(shown.context, colors);
    grid.port = port;
    grid.upload(shown.prepared, differences ? twin->difference : picture->image, colors);
    ImGui::PushID(static_cast<int>(part));
    grid.bands = picture->sheet->elements != nullptr;
    const std::optional<GridHit> hit = grid.input(areas.cells);
    ImGui::PopID();
    if (const std::optional<FrontRange> band = grid.take_band()) {
      part_of_grid_ = *band;
      counting_ = true;
    }
    const GridScene scene{context, grid.port, areas.cells};
    const TensorSheet& sheet = *picture->sheet;
    grid.patterned = !shows_values(scene, sheet);
    grid.draw(scene);
    draw_grid_marks(
        scene, sheet, areas,
        [&](std::int64_t row, std::int64_t column) {
          return differences ? difference_text(twin->pair, row, column)
                             : value_text(sheet, row, column, context.numbers);
        },
        hit);
    draw_marks(scene, differences ? twin->difference : picture->image);
    grid.draw_band(scene, part_of_grid_);
    if (!differences && areas.row_bars.width > 0) draw_grid_margins(scene, *picture, areas);
    if (hit) point(shown, part, scene, sheet, *hit);
    port = grid.port;
  }

  /// The one that was chosen here, else that of the selected key.
  std::optional<std::int64_t> wanted_head(const Place& place) const {
    if (head_) return head_;
    const TensorSheet* sheet = known_.here.get();
    if (sheet == nullptr || !sheet->query_by_key || sheet->columns == 0 || !place.channel) return std::nullopt;
    return *place.channel / sheet->columns;
  }

  /// As its producer wrote it, else its place.
  static std::string named_tensor(const Subject& subject) {
    return subject.tensor.name.empty() ? to_string(tensor_place(subject)) : printable(subject.tensor.name);
  }

  /// Left the outputs of the op, right the head and the ramp.
  void draw_bar(const ViewContext& context, const ViewActions& actions, const TensorSheet& sheet, Area bar) {
    const auto px = [&](float pixels) { return pixels * context.scale; };
    const float height = px(22);
    const float y = bar.y + (bar.height - height) / 2;
    float right = bar.right();
    if (!context.printed) choice_.draw(context, sheet, port_.range(), right, y, height);
    if (!context.printed && sheet.elements && button(context, right, y, height, "statistics", counting_))
      counting_ = !counting_;
    if (sheet.heads > 1 && !context.printed) draw_head_choice(context, sheet, right, y, height);
    float x = bar.x;
    const std::string place = named_tensor(sheet.subject);
    const float place_width = std::min(text_size(context.fonts.mono, place).x + 1, right - x);
    label(context.fonts.mono, {x, bar.y, place_width, bar.height}, context.theme.accent, place);
    x += place_width + px(16);
    for (const Tensor& output : sheet.subject.outputs) {
      if (sheet.subject.outputs.size() < 2 || context.printed) break;
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
    const float left = right - chip_width(context, words);
    const ChipPress chip = chip_button(context, left, right, y, height, words, chosen);
    right = left - 6 * context.scale;
    return chip.pressed;
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
      explain(context, {x, area.y, width, 2 * line}, number.name, number_meaning(number.name));
      label(context.fonts.small, {x, area.y, width, line}, theme.muted, number.name);
      label(context.fonts.mono, {x, area.y + line, width, line + 2},
            number.tone == kHealthyFirst ? theme.text : theme.ink(number.tone), number.value);
      x += width + gap;
    }
  }

  static void draw_key(const ViewContext& context, const TensorSheet& sheet, Area row) {
    const LegendEntry first[] = {
        {kNan, "NaN"}, {kInf, "Inf"}, {kClipped, "clipped"}, {kLowHeadroom, "near the largest finite"}};
    const bool padded = std::any_of(sheet.subject.row_names.begin(), sheet.subject.row_names.end(),
                                    [](const RowName& name) { return name.nobodys; });
    std::vector<LegendEntry> last{{kZero, "zero"}};
    if (padded) last.push_back({kAbsent, "padding"});
    const std::string words = !sheet.elements ? "healthy, largest |x| of the row"
                              : sheet.real    ? "healthy |real value|"
                                              : "healthy |x|";
    const std::string low = sheet.signs ? "\u2212" + ramp_end(sheet.high) : ramp_end(sheet.low);
    const Theme colors = sheet.signs ? signed_theme(context.theme) : context.theme;
    draw_legend(with_theme(context, colors), row, first, {words, low, ramp_end(sheet.high), sheet.signs}, last);
  }

  /// A pixel may cover many elements: what is told of is the worst of them, as its colour is.
  static void point(const Shown& shown, TwinPart part, const GridScene& scene, const TensorSheet& sheet,
                    const GridHit& hit) {
    FrontRange range{hit.column, hit.column + 1, hit.row, hit.row + 1};
    range.column_end += static_cast<std::int64_t>(1 / std::max(scene.cell_width(), 1e-6F));
    range.row_end += static_cast<std::int64_t>(1 / std::max(scene.cell_height(), 1e-6F));
    const TwinPicture* twin = shown.picture.twin.get();
    const bool differences = part == TwinPart::difference;
    const auto [row, column] =
        differences ? worst_difference(*twin->pair.difference, range) : worst_element(sheet, range);
    Place place = element_place(sheet.subject, row, sheet.channel(column));
    if (!sheet.elements) place.channel.reset();
    if (hit.clicked) {
      Selection chosen{place, {}};
      if (place.channel) chosen.element = row * sheet.subject.tensor.channels + *place.channel;
      if (shown.context.selection.call != 0) chosen.call = sheet.subject.op.id;
      shown.actions.choose(std::move(chosen));
    }
    if (hit.menu) shown.actions.menu(menu_of(sheet, row, column, place));
    if (twin != nullptr && twin->pair.difference->rows > 0) {
      shown.actions.hint(
          fmt::format("{}   {}", to_string(place), pair_tooltip(shown.context, twin->pair, twin->label, row, column)));
      return;
    }
    const Cell cell = sheet.cell(row, column);
    const std::string said = element_name(shown.context, sheet, row, column);
    const std::string health =
        sheet.elements ? element_words(sheet, row, sheet.channel(column), cell) : std::string(cell_name(cell));
    shown.actions.hint(fmt::format("{}   {}   {}", to_string(place), said, health));
    cell_tooltip(shown.context, to_string(place), said, health, cell);
  }

  static MenuTarget menu_of(const TensorSheet& sheet, std::int64_t row, std::int64_t column, const Place& place) {
    MenuTarget target{{place, {}}};
    if (!sheet.elements) return target;
    const TensorData& elements = *sheet.elements;
    const std::int64_t channel = sheet.channel(column);
    target.selection.element = row * sheet.subject.tensor.channels + channel;
    target.value = fmt::format("{:.9g}", elements.value(row, channel));
    target.bits = bits::code_text(elements.format, elements.code(row, channel));
    for (std::int64_t at = 0; at < sheet.columns; ++at) {
      target.row += fmt::format("{}{:.9g}", at > 0 ? "," : "", elements.value(row, sheet.channel(at)));
    }
    return target;
  }

  static std::string element_words(const TensorSheet& sheet, std::int64_t row, std::int64_t channel, Cell cell) {
    const TensorData& elements = *sheet.elements;
    const std::uint32_t code = elements.code(row, channel);
    const float value = elements.value(row, channel);
    std::string words = fmt::format("{:.9g}   {} = {}", value, bits::code_text(elements.format, code),
                                    bits::field_text(elements.format, code));
    const std::optional<float> scale = sheet.scale_at(row, channel);
    if (scale && std::isfinite(value)) words += fmt::format("   real {:.6g}", value * *scale);
    if (cell == kClipped || cell == kLowHeadroom) words += fmt::format("   {}", cell_name(cell));
    return words;
  }

  std::array<CellMap, std::size(kTwinParts)> grids_;
  Viewport port_;        ///< of all grids of one shape
  Viewport other_port_;  ///< of a twin of another shape
  TwinPart part_ = TwinPart::here;
  DifferenceUnit unit_ = DifferenceUnit::absolute;
  BesideRunPtr beside_;
  RampChoice choice_;
  TensorPanel panel_;
  bool counting_ = false;                   ///< the statistics are shown
  std::optional<FrontRange> part_of_grid_;  ///< that they are of; nothing: of all
  Selection revealed_;                      ///< that the grids were moved to last
  std::optional<std::int64_t> head_;        ///< chosen by hand, of this tensor
  Place tensor_;
  SheetPair known_;  ///< that is drawn
};

}  // namespace

std::unique_ptr<View> make_tensor_view() { return std::make_unique<TensorView>(); }

}  // namespace nanscope::gui
