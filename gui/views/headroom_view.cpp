#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/cell_map.h"
#include "gui/export/tables.h"
#include "gui/grid_marks.h"
#include "gui/marks.h"
#include "gui/prepare/headroom_sheet.h"
#include "gui/prepare/subject.h"
#include "gui/views/registry.h"

/// Headroom: a strip of layers over steps, the earliest warning marked, and the selected tensor's curve.
namespace nanscope::gui {
namespace {

constexpr float kStripLabels = 92;
constexpr float kStripBand = 22;
constexpr float kStripKey = 28;
constexpr float kStripChip = 21;
constexpr float kWarnLane = 13;  ///< between the requests and the cells
constexpr float kCurveTitle = 22;
constexpr float kCurveFrom = 330;  ///< below this height the strip takes it all
constexpr float kLeastCurve = 110;
constexpr float kMostCurve = 340;
constexpr float kMostStripRow = 34;
constexpr std::int64_t kManyStripRows = 12;
constexpr float kStripWords = 12;  ///< a row of this height has its name beside it
constexpr float kNamedBand = 58;
constexpr float kHeadline = 20;
constexpr float kRuleLine = 17;
constexpr int kMostHeadline = 3;
constexpr int kMostRule = 2;

/// What is drawn.
struct HeadroomPicture final : Prepared {
  std::shared_ptr<const HeadroomSheet> sheet;
  StripBy by = StripBy::headroom;
  FrontImage image;
  std::optional<std::size_t> chosen;  ///< the selected tensor
  std::optional<HeadroomCurve> curve;
};

struct Strip : GridScene {
  const HeadroomSheet& sheet;
  StripBy by;
};

/// Where the parts of the view are.
struct StripAreas {
  Area head;
  Area chips;
  Area bands;
  Area lane;
  Area cells;
  Area key;
  Area curve;  ///< of no height where there is no room
};

StripAreas lay_out_strip(Area area, float head, std::int64_t rows, float scale) {
  const auto px = [scale](float pixels) { return pixels * scale; };
  StripAreas areas;
  const Area room = area.inset(px(kMargin), 0);
  areas.head = {room.x, area.y + px(10), room.width, head};
  areas.chips = {room.x, areas.head.bottom() + px(4), room.width, px(kStripChip)};
  const float left = room.x + px(kStripLabels);
  const float width = room.right() - left;
  areas.bands = {left, areas.chips.bottom() + px(8), width, px(kStripBand)};
  areas.lane = {left, areas.bands.bottom(), width, px(kWarnLane)};
  const float below = area.bottom() - areas.lane.bottom();
  const bool low = area.height < px(kCurveFrom) || (rows > kManyStripRows && below < px(kCurveFrom - 80));
  const float curve = low ? 0 : std::clamp(below * 0.4F, px(kLeastCurve), px(kMostCurve));
  const float most = static_cast<float>(std::max<std::int64_t>(rows, 1)) * px(kMostStripRow);
  const float cells = std::clamp(below - curve - px(kStripKey + 6), 1.0F, most);
  areas.cells = {left, areas.lane.bottom(), width, cells};
  areas.key = {area.x, areas.cells.bottom() + px(2), area.width, px(kStripKey)};
  if (curve > 0) {
    const float top = areas.key.bottom();
    areas.curve = {room.x, top, room.width, std::min(area.bottom() - top - px(6), px(kMostCurve))};
  }
  return areas;
}

/// The tensor's curve on a logarithmic axis, below the strip and over the same steps.
class CurveChart {
 public:
  CurveChart(const Strip& strip, const HeadroomCurve& curve, Area area)
      : strip_(strip),
        curve_(curve),
        area_(area),
        plot_{strip.cells.x, area.y + strip.px(kCurveTitle), strip.cells.width,
              area.height - strip.px(kCurveTitle + 8)},
        axis_(curve.range.lowest, curve.range.highest) {}

  void draw() const {
    title();
    grid();
    clip(plot_);
    limits();
    values();
    unclip();
  }

 private:
  float y(double value) const { return plot_.bottom() - plot_.height * static_cast<float>(axis_.at(value)); }
  float x(std::size_t point) const {
    const FrontRange range = strip_.port.range();
    const auto wide = static_cast<double>(range.column_end - range.column_begin);
    const double at = (static_cast<double>(point) + 0.5) / static_cast<double>(curve_.points.size());
    return strip_.x(static_cast<double>(range.column_begin) + wide * at);
  }

  void title() const {
    const Theme& theme = strip_.context.theme;
    std::string words = curve_.name + ": largest |x| over the steps";
    if (curve_.limit > 0 && !curve_.near)
      words += fmt::format("; the limit is {}, far above", short_number(curve_.limit));
    const Area row{area_.x, area_.y, area_.width, strip_.px(kCurveTitle)};
    const std::string_view layer = "thin: the layer's largest";
    const float taken = text_size(strip_.context.fonts.small, layer).x + strip_.px(12);
    label(strip_.context.fonts.small, {row.x, row.y, row.width - taken, row.height}, theme.text, words);
    label(strip_.context.fonts.small, row, theme.muted, layer, 1);
  }

  void grid() const {
    const Theme& theme = strip_.context.theme;
    fill(plot_, theme.cell(kAbsent), strip_.px(3));
    for (const double tick : axis_.ticks(static_cast<std::size_t>(std::max(plot_.height, 0.0F) / strip_.px(19)))) {
      const float at = std::floor(y(tick));
      fill({plot_.x, at, plot_.width, 1}, theme.line.alpha(150));
      label(strip_.context.fonts.mono_small,
            {area_.x, at - strip_.px(7), plot_.x - area_.x - strip_.px(6), strip_.px(14)}, theme.muted,
            short_number(tick), 1);
    }
  }

  void limits() const {
    if (!curve_.near) return;
    const Color color = strip_.context.theme.accent;
    const float half = step_width() / 2;
    std::optional<float> named;
    for (std::size_t i = 0; i < curve_.points.size(); ++i) {
      const double limit = curve_.points[i].limit;
      if (!(limit > 0)) continue;
      line({x(i) - half, y(limit)}, {x(i) + half, y(limit)}, color, strip_.px(1.5F));
      if (!named) named = y(limit);
    }
    if (!named) return;
    const float above = *named - strip_.px(17);
    label(strip_.context.fonts.small,
          {plot_.x + strip_.px(6), above < plot_.y ? *named + strip_.px(2) : above, strip_.px(120), strip_.px(16)},
          color, "limit " + short_number(curve_.limit));
  }

  float step_width() const { return curve_.points.size() > 1 ? x(1) - x(0) : plot_.width; }

  void values() const {
    const Theme& theme = strip_.context.theme;
    const Color healthy = theme.cell(kHealthyLast);
    const float pitch = step_width();
    for (std::size_t i = 1; i < curve_.points.size(); ++i) {
      const HeadroomCurve::Point& a = curve_.points[i - 1];
      const HeadroomCurve::Point& b = curve_.points[i];
      if (a.layer > 0 && b.layer > 0) line({x(i - 1), y(a.layer)}, {x(i), y(b.layer)}, theme.muted.alpha(110));
      if (a.absmax > 0 && b.absmax > 0) {
        line({x(i - 1), y(a.absmax)}, {x(i), y(b.absmax)}, healthy, strip_.px(1.5F));
      }
    }
    for (std::size_t i = 0; i < curve_.points.size(); ++i) {
      const HeadroomCurve::Point& point = curve_.points[i];
      const bool bad = point.health >= kLowHeadroom;
      if (!bad && pitch < strip_.px(6)) continue;
      const float radius = strip_.px(bad ? 4 : 2.5F);
      const float at = point.absmax > 0 ? y(point.absmax) : plot_.bottom() - radius;
      const Area box{x(i) - radius, at - radius, 2 * radius, 2 * radius};
      if (bad) {
        draw_sign(strip_.context, box, point.health);
      } else if (point.absmax > 0) {
        fill(box, healthy, radius);
      }
    }
  }

  const Strip& strip_;
  const HeadroomCurve& curve_;
  Area area_;
  Area plot_;
  LogAxis axis_;
};

class HeadroomView final : public View {
 public:
  std::string_view name() const override { return "headroom"; }
  std::string_view title() const override { return "Headroom"; }
  std::string_view caption() const override { return "how near each layer comes to the largest finite value, by step"; }

  std::optional<TableMaker> table(const PreparedPtr& prepared) const override {
    const auto* picture = dynamic_cast<const HeadroomPicture*>(prepared.get());
    if (picture == nullptr) return std::nullopt;
    return [sheet = picture->sheet] { return table_of(*sheet); };
  }

  std::optional<Area> where(const Place& place) const override {
    if (!known_) return std::nullopt;
    const HeadroomSheet& sheet = *known_->sheet;
    for (std::int64_t column = 0; column < sheet.columns(); ++column) {
      const IndexStep& step = sheet.index->steps[sheet.steps[static_cast<std::size_t>(column)].at];
      if (step.request != place.request || step.index != place.step || step.rank != place.rank) continue;
      for (std::size_t row = 0; row < sheet.index->rows.size(); ++row) {
        const MapRow& op = sheet.index->rows[row];
        if (op.op != place.op || op.layer != place.layer.value_or(-1) || sheet.group_of[row] == kNone) continue;
        const Area cell = cell_area(grid_.port, cells_, column, sheet.group_of[row]);
        const bool seen = cells_.holds({cell.x + cell.width / 2, cell.y + cell.height / 2});
        return seen ? std::optional(cell) : std::nullopt;
      }
    }
    return std::nullopt;
  }

  std::optional<ViewRequest> prepare(const ViewContext& context, Area area) override {
    Place place = context.selection.place;
    place.token.reset();
    place.channel.reset();
    const bool exact = known_ && known_->sheet->index->of_dump && context.map && context.map->exact;
    Wanted wanted{std::move(place), by_, {}, 1, 1};
    if (known_) {
      grid_.port.set_grid(known_->sheet->columns(), known_->sheet->rows());
      wanted.range = grid_.port.range();
      const Area cells = areas_of(context, area).cells;
      wanted.width = std::clamp(static_cast<int>(cells.width), 1, kTextureLimit);
      wanted.height = std::clamp(static_cast<int>(cells.height), 1, kTextureLimit);
    }
    std::string key = fmt::format("{} {} {} {} {} {} {} {} {} {}", known_ != nullptr, exact, static_cast<int>(by_),
                                  wanted.range.column_begin, wanted.range.column_end, wanted.range.row_begin,
                                  wanted.range.row_end, wanted.width, wanted.height, to_string(wanted.place));
    return ViewRequest{std::move(key), [wanted = std::move(wanted), known = known_](RunFacts& facts) {
                         return answer(facts, wanted, known.get());
                       }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    if (!prepared) return;
    known_ = std::static_pointer_cast<const HeadroomPicture>(prepared);
    const HeadroomPicture& picture = *known_;
    const HeadroomSheet& sheet = *picture.sheet;
    if (sheet.steps.empty() || sheet.groups.empty()) {
      notice(context, area, "There are no steps", "Headroom is shown over the steps of requests, and there are none.");
      return;
    }
    grid_.port.set_grid(sheet.columns(), sheet.rows());
    const StripAreas areas = areas_of(context, area);
    cells_ = areas.cells;
    const Strip strip{{context, grid_.port, areas.cells}, sheet, picture.by};
    draw_head(context, sheet, areas.head);
    draw_chips(context, areas.chips);
    grid_.upload(prepared, picture.image, context.theme);
    const std::optional<GridHit> hit = grid_.input(areas.cells);
    grid_.draw(strip);
    draw_between(strip);
    draw_marks(strip, picture.image);
    draw_bands(strip, areas.bands);
    draw_labels(strip, areas);
    draw_chosen(strip, picture.chosen);
    draw_warning(strip, areas.lane);
    draw_key(context, picture.by, areas.key);
    if (picture.curve && !picture.curve->points.empty() && areas.curve.height > strip.px(kLeastCurve / 2)) {
      CurveChart(strip, *picture.curve, areas.curve).draw();
    }
    if (hit) hover(strip, actions, *hit);
  }

 private:
  static constexpr std::uint32_t kNone = HeadroomSheet::kNoTensor;

  /// What an answer depends on.
  struct Wanted {
    Place place;
    StripBy by = StripBy::headroom;
    FrontRange range;
    int width = 1;
    int height = 1;
  };

  /// The sheet is made once; a picture for each part of it that is looked at.
  static Result<PreparedPtr> answer(RunFacts& facts, const Wanted& wanted, const HeadroomPicture* known) {
    const Result<std::shared_ptr<const TensorIndex>> index = facts.tensor_index();
    if (!index) return tl::unexpected(index.error());
    auto picture = std::make_shared<HeadroomPicture>();
    if (known != nullptr && known->sheet->index == *index) {
      picture->sheet = known->sheet;
    } else {
      Result<HeadroomSheet> sheet = make_headroom_sheet(facts.view(), *index);
      if (!sheet) return tl::unexpected(sheet.error());
      picture->sheet = std::make_shared<const HeadroomSheet>(std::move(*sheet));
    }
    const HeadroomSheet& sheet = *picture->sheet;
    picture->by = wanted.by;
    picture->image = make_front_image({sheet.cells(wanted.by), sheet.columns(), sheet.rows()}, wanted.range,
                                      wanted.width, wanted.height, kLowHeadroom);
    const Result<Subject> subject = find_subject(facts.view(), wanted.place);
    if (subject) picture->chosen = sheet.index->find(subject->tensor.id);
    const bool in_strip = picture->chosen && sheet.row(*picture->chosen) && sheet.column(*picture->chosen);
    const std::optional<std::size_t> curve = in_strip ? picture->chosen : sheet.warning ? sheet.warning : sheet.least;
    if (curve) {
      picture->curve = make_headroom_curve(sheet, *curve, wanted.range.column_begin, wanted.range.column_end,
                                           columns_of(static_cast<float>(wanted.width)));
    }
    return picture;
  }

  StripAreas areas_of(const ViewContext& context, Area area) const {
    const float width = area.width - 2 * kMargin * context.scale;
    const auto lines = [&](const ImFont* font, const std::string& words, int most) {
      return static_cast<float>(wrap(font, words, width, most).size());
    };
    const float head = lines(context.fonts.title, known_->sheet->headline, kMostHeadline) * kHeadline +
                       lines(context.fonts.small, known_->sheet->rule, kMostRule) * kRuleLine;
    return lay_out_strip(area, (head + 2) * context.scale, known_->sheet->rows(), context.scale);
  }

  void draw_head(const ViewContext& context, const HeadroomSheet& sheet, Area area) const {
    const float scale = context.scale;
    float y = area.y;
    const Color color = sheet.warning ? context.theme.text : context.theme.accent;
    for (const std::string& words : wrap(context.fonts.title, sheet.headline, area.width, kMostHeadline)) {
      label(context.fonts.title, {area.x, y, area.width + 1, kHeadline * scale}, color, words);
      y += kHeadline * scale;
    }
    for (const std::string& words : wrap(context.fonts.small, sheet.rule, area.width, kMostRule)) {
      label(context.fonts.small, {area.x, y, area.width + 1, kRuleLine * scale}, context.theme.muted, words);
      y += kRuleLine * scale;
    }
  }

  void draw_chips(const ViewContext& context, Area area) {
    float x = area.x;
    const auto chip_at = [&](std::string_view words, bool on) {
      const float width = chip_width(context, words);
      const Area box{x, area.y, width, area.height};
      x += width + 6 * context.scale;
      return chip_button(context, box, words, on);
    };
    if (chip_at("headroom", by_ == StripBy::headroom)) by_ = StripBy::headroom;
    if (chip_at("absmax", by_ == StripBy::absmax)) by_ = StripBy::absmax;
    const std::string_view words = "a column a step, a row a layer: its worst tensor";
    const Area room{x + 12 * context.scale, area.y, area.right() - x - 12 * context.scale, area.height};
    label(context.fonts.small, room, context.theme.muted, words);
  }

  static void draw_between(const Strip& strip) {
    const FrontRange range = strip.port.range();
    clip(strip.cells);
    for (const LedgerBand& band : strip.sheet.bands) {
      const auto first = static_cast<std::int64_t>(band.first);
      if (first == 0 || first < range.column_begin || first > range.column_end) continue;
      const float width = strip.px(strip.cell_width() < strip.px(4) ? 1 : 2);
      fill({std::floor(strip.x(static_cast<double>(first))), strip.cells.y, width, strip.cells.height},
           strip.context.theme.panel);
    }
    unclip();
  }

  static void draw_bands(const Strip& strip, Area area) {
    clip(area);
    for (const LedgerBand& band : strip.sheet.bands) {
      const float left = std::max(strip.x(static_cast<double>(band.first)), area.x);
      const float right = std::min(strip.x(static_cast<double>(band.last + 1)), area.right());
      if (right - left < strip.px(3)) continue;
      const Area box{left, area.y + strip.px(1), right - left - strip.px(right - left > strip.px(12) ? 2 : 1),
                     area.height - strip.px(2)};
      fill(box, strip.context.theme.raised, strip.px(3));
      const HeadroomStep& step = strip.sheet.steps[band.first];
      const std::string number = step.request ? std::to_string(*step.request) : "";
      const std::string full =
          step.title.empty() ? "request " + number : (number.empty() ? "" : number + "  ") + printable(step.title);
      const bool named = box.width > strip.px(kNamedBand);
      const std::string& words = named ? full : number;
      if (!named && text_size(strip.context.fonts.small, words).x > box.width) continue;
      label(strip.context.fonts.small, named ? box.inset(strip.px(6), 0) : box, strip.context.theme.text, words,
            named ? 0 : 0.5F);
    }
    unclip();
  }

  /// Names of rows, as many as there is room for.
  static void draw_labels(const Strip& strip, const StripAreas& areas) {
    const FrontRange range = strip.port.range();
    const float left = areas.head.x;
    clip({left, strip.cells.y - strip.px(7), strip.cells.x - left, strip.cells.height + strip.px(14)});
    float free = strip.cells.y - strip.px(8);
    for (std::int64_t row = range.row_begin; row < range.row_end; ++row) {
      const float middle = strip.y(static_cast<double>(row) + 0.5);
      const float half = strip.px(kStripWords) / 2;
      if (middle - half < free) continue;
      label(strip.context.fonts.small, {left, middle - half, strip.cells.x - left - strip.px(8), 2 * half},
            strip.context.theme.muted, strip.sheet.groups[static_cast<std::size_t>(row)]);
      free = middle + half;
    }
    unclip();
  }

  static void draw_chosen(const Strip& strip, std::optional<std::size_t> tensor) {
    if (!tensor) return;
    const auto column = strip.sheet.column(*tensor);
    const auto row = strip.sheet.row(*tensor);
    if (!column || !row) return;
    clip(strip.cells.inset(-strip.px(4)));
    draw_cursor(strip, strip.cell(*column, *row), true, true);
    unclip();
  }

  /// A triangle above its column, which is seen however many there are.
  static void draw_warning(const Strip& strip, Area lane) {
    if (!strip.sheet.warning) return;
    const auto column = strip.sheet.column(*strip.sheet.warning);
    if (!column) return;
    const float x = strip.x(static_cast<double>(*column) + 0.5);
    if (x < lane.x || x > lane.right()) return;
    const Theme& theme = strip.context.theme;
    const Cell cell = strip.sheet.index->cell[*strip.sheet.warning];
    const float half = strip.px(6);
    const float top = lane.y + strip.px(2);
    ImGui::GetWindowDrawList()->AddTriangleFilled({x - half, top}, {x + half, top}, {x, lane.bottom()},
                                                  theme.text.packed());
    ImGui::GetWindowDrawList()->AddTriangleFilled({x - half + strip.px(2), top + strip.px(1)},
                                                  {x + half - strip.px(2), top + strip.px(1)},
                                                  {x, lane.bottom() - strip.px(3)}, theme.cell(cell).packed());
    const std::string_view words = cell >= kInf ? "first sign" : "earliest warning";
    const float width = text_size(strip.context.fonts.small, words).x + 1;
    const bool right = x + half + strip.px(5) + width <= lane.right();
    label(strip.context.fonts.small,
          {right ? x + half + strip.px(5) : x - half - strip.px(5) - width, lane.y, width, lane.height}, theme.text,
          words);
  }

  static void draw_key(const ViewContext& context, StripBy by, Area area) {
    const LegendEntry first[] = {
        {kNan, "NaN"}, {kInf, "Inf"}, {kClipped, "clipped"}, {kLowHeadroom, "headroom < 1.25"}};
    const LegendRamp headroom{"healthy, headroom", fmt::format("2^{}", kRampPowers), "1"};
    const LegendRamp absmax{"healthy, largest |x|", fmt::format("10^{}", kRampFrom), fmt::format("10^{}", kRampTo)};
    const LegendEntry last[] = {{kZero, by == StripBy::headroom ? "no limit" : "all zero"}};
    draw_legend(context, area, first, by == StripBy::headroom ? headroom : absmax, last);
  }

  static void hover(const Strip& strip, const ViewActions& actions, const GridHit& hit) {
    const std::optional<std::size_t> tensor = strip.sheet.tensor(strip.by, hit.column, hit.row);
    if (!tensor) return;
    const TensorIndex& index = *strip.sheet.index;
    const Place place = index.place(*tensor);
    const double limit = limit_of(index, *tensor);
    std::string said = fmt::format("absmax {}", short_number(static_cast<double>(index.magnitude[*tensor])));
    if (limit > 0) {
      const bool scaled = info(index.format[*tensor]).storage_bytes() < 2;
      said += fmt::format(", largest {}: {}", scaled ? "finite \u00D7 scale" : "finite", short_number(limit));
    }
    said += fmt::format(" ({})", nanscope::name(index.format[*tensor]));
    std::string health(cell_name(index.cell[*tensor]));
    if (index.headroom[*tensor] > 0) health += ", headroom " + headroom_text(index.headroom[*tensor]);
    ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
    actions.hint("go to " + to_string(place));
    cell_tooltip(strip.context, printable(index.name(*tensor).empty() ? to_string(place) : index.name(*tensor)), said,
                 health, strip.sheet.cells(strip.by)[strip.sheet.cell(hit.column, hit.row)]);
    if (hit.clicked) actions.choose({place, {}});
    if (hit.menu) actions.menu({{place, {}}, fmt::format("{:.9g}", double{index.magnitude[*tensor]})});
  }

  std::shared_ptr<const HeadroomPicture> known_;  ///< that is drawn
  CellMap grid_;
  Area cells_;
  StripBy by_ = StripBy::headroom;
};

}  // namespace

std::unique_ptr<View> make_headroom_view() { return std::make_unique<HeadroomView>(); }

}  // namespace nanscope::gui
