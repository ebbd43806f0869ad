#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "core/recording/names.h"
#include "gui/cell_map.h"
#include "gui/cell_paint.h"
#include "gui/export/tables.h"
#include "gui/grid_marks.h"
#include "gui/prepare/row_labels.h"
#include "gui/views/front_errors.h"
#include "gui/views/front_twin.h"
#include "gui/views/registry.h"

/// The front: token x (layer, op) over all requests and steps, coloured by health.
namespace nanscope::gui {
namespace {

constexpr float kHeaderHeight = 46;
constexpr float kFrontPartsHeight = 32;  ///< which run is shown
constexpr float kFrontLegendHeight = 34;
constexpr float kLeastTitle = 56;  ///< of a request, when it is cut
constexpr float kLabelWidth = 168;
constexpr float kGroupWidth = 58;
constexpr double kZoomedColumns = 9;  ///< in view, when zoomed to a token
constexpr float kOpHeight = 12;       ///< a line of the ops' names

/// The map, and where its cells are on screen.
struct Scene : GridScene {
  const RunMap& map;
};

/// What is shown of which run.
struct FrontPicture final : Prepared {
  TwinPart part = TwinPart::here;
  FrontImage image;
  std::shared_ptr<const RunMap> map;
  std::shared_ptr<const RunDifference> difference;  ///< null when no run stands beside
  std::shared_ptr<const ErrorMap> errors;           ///< null when no model does
};

std::string lane_title(const MapRequest& request) {
  if (request.row.name.empty()) return fmt::format("request {}", request.row.id);
  return fmt::format("{} \u00B7 {}", request.row.id, printable(request.row.name));
}

class FrontView final : public View {
 public:
  std::string_view name() const override { return "front"; }
  std::string_view title() const override { return "Front"; }
  std::string_view caption() const override { return "a column a token, a row an op, coloured by the worst value"; }

  std::optional<TableMaker> table(const PreparedPtr& prepared) const override {
    return [picture = std::static_pointer_cast<const FrontPicture>(prepared)] {
      if (picture->errors && picture->part == TwinPart::difference) return table_of(*picture->errors);
      return table_of(*picture->map, picture->difference.get(), picture->part == TwinPart::difference);
    };
  }

  std::optional<ViewRequest> prepare(const ViewContext& context, Area area) override {
    if (!context.map) return std::nullopt;
    if (context.beside != beside_) {
      const bool checked = context.beside && context.beside->check;
      if (checked || (beside_ && beside_->check)) part_ = checked ? TwinPart::difference : TwinPart::here;
      beside_ = context.beside;
    }
    grid_.port.set_grid(context.map->columns, static_cast<std::int64_t>(context.map->rows.size()));
    const Area cells = cells_of(below_parts(context, area), context.scale);
    const int width = std::clamp(static_cast<int>(cells.width), 1, kTextureLimit);
    const int height = std::clamp(static_cast<int>(cells.height), 1, kTextureLimit);
    const FrontRange range = grid_.port.range();
    const TwinPart part = part_of(context);
    std::string key = fmt::format("{} {} {} {} {} {} {} {}", context.map->exact, context.difference != nullptr,
                                  range.column_begin, range.column_end, range.row_begin, range.row_end, width, height);
    if (part != TwinPart::here) key += fmt::format(" {} {}", static_cast<int>(part), context.beside->path.string());
    if (part != TwinPart::here && context.errors) key += fmt::format(" {}", context.errors->findings->count());
    return ViewRequest{std::move(key),
                       [map = context.map, twin = context.difference, errors = context.errors, part, range, width,
                        height](RunFacts&) -> Result<PreparedPtr> {
                         const auto rows = static_cast<std::int64_t>(map->rows.size());
                         const bool wrong = errors && part == TwinPart::difference;
                         const std::vector<Cell>& cells = part == TwinPart::here    ? map->cells
                                                          : wrong                   ? errors->cells
                                                          : part == TwinPart::there ? twin->there
                                                                                    : twin->cells;
                         auto picture = std::make_shared<FrontPicture>();
                         picture->part = part;
                         picture->map = map;
                         picture->difference = twin;
                         picture->errors = errors;
                         const Cell bad = wrong ? kErrorBeyond : kClipped;
                         picture->image = make_front_image({cells, map->columns, rows}, range, width, height, bad);
                         return picture;
                       }};
  }

  void zoom_to_token(const Place& place) override {
    const auto column = map_ ? map_->find_column(place) : std::nullopt;
    const auto row = map_ ? map_->find_row(place.layer.value_or(-1), place.op) : std::nullopt;
    if (!column) return;
    grid_.port.show_all();
    const double factor = grid_.port.width() / kZoomedColumns;
    const double at = (static_cast<double>(*column) + 0.5) / grid_.port.width();
    if (factor > 1) grid_.port.zoom(factor, 1, at, 0.5);
    grid_.port.reveal(*column, static_cast<std::int64_t>(row.value_or(0)));
  }

  std::optional<Area> where(const Place& place) const override {
    const auto column = map_ ? map_->find_column(place) : std::nullopt;
    const auto row = map_ ? map_->find_row(place.layer.value_or(-1), place.op) : std::nullopt;
    if (!column || !row) return std::nullopt;
    const Area cell = cell_area(grid_.port, cells_, *column, static_cast<std::int64_t>(*row));
    if (!cells_.holds({cell.x + cell.width / 2, cell.y + cell.height / 2})) return std::nullopt;
    return cell;
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    map_ = context.map;
    const Area whole = area;
    area = below_parts(context, area);
    cells_ = cells_of(area, context.scale);
    if (!context.map || !prepared) return;
    const RunMap& map = *context.map;
    const auto& picture = static_cast<const FrontPicture&>(*prepared);
    const bool differences = picture.part == TwinPart::difference;
    const bool wrong = differences && picture.errors;
    const Theme colors = wrong         ? error_theme(context.theme)
                         : differences ? front_difference_theme(context.theme)
                                       : context.theme;
    const ViewContext themed = with_theme(context, colors);
    const Scene scene{{themed, grid_.port, cells_}, map};
    if (map.columns == 0 || map.rows.empty() || scene.cells.width < 1 || scene.cells.height < 1) return;
    follow(context);
    grid_.upload(prepared, picture.image, colors);
    const std::optional<GridHit> hit = grid_.input(scene.cells);
    grid_.draw(scene);
    draw_lines(scene);
    draw_future(scene);
    if (wrong) draw_error_marks(scene, *picture.errors);
    draw_selection(scene);
    draw_marks(scene, picture.image);
    draw_header(scene, area);
    draw_labels(scene, area, hit);
    if (area.y > whole.y) {
      const Area row{whole.x, whole.y, whole.width, area.y - whole.y};
      draw_front_parts(context, row.inset(scene.px(kMargin), 0), part_);
    }
    const Area key{area.x, area.bottom() - scene.px(kFrontLegendHeight), area.width, scene.px(kFrontLegendHeight)};
    if (wrong) {
      draw_error_key(context, key);
    } else if (differences) {
      draw_difference_key(context, key);
    } else {
      draw_key(context, key);
    }
    if (hit) hover(scene, actions, *hit);
  }

 private:
  /// A zoomed map moves to what is selected elsewhere, and along while the run is played.
  void follow(const ViewContext& context) {
    const Place& place = context.selection.place;
    if (place == followed_) return;
    followed_ = place;
    const auto column = context.map->find_column(place);
    const auto row = context.map->find_row(place.layer.value_or(-1), place.op);
    if (!column || grid_.port.shows_all()) return;
    const auto shown = static_cast<std::int64_t>(grid_.port.top() + grid_.port.height() / 2);
    grid_.port.reveal(*column, row ? static_cast<std::int64_t>(*row) : shown);
  }

  /// A run that stands beside takes a line of its own.
  static Area below_parts(const ViewContext& context, Area area) {
    const float height = context.beside ? kFrontPartsHeight * context.scale : 0;
    return {area.x, area.y + height, area.width, area.height - height};
  }
  /// What can be shown of what was chosen.
  TwinPart part_of(const ViewContext& context) const {
    const bool known = context.beside && (context.difference || (context.errors && part_ == TwinPart::difference));
    return known ? part_ : TwinPart::here;
  }
  static Area cells_of(Area area, float scale) {
    return {area.x + kLabelWidth * scale, area.y + kHeaderHeight * scale, area.width - (kLabelWidth + 12) * scale,
            area.height - (kHeaderHeight + kFrontLegendHeight) * scale};
  }

  static void draw_lines(const Scene& scene) {
    const Theme& theme = scene.context.theme;
    clip(scene.cells);
    const FrontRange range = scene.port.range();
    const auto vertical = [&](std::int64_t column, Color color, float width) {
      const float x = std::floor(scene.x(static_cast<double>(column)));
      fill({x, scene.cells.y, width, scene.cells.height}, color);
    };
    const auto horizontal = [&](std::int64_t row, Color color, float width) {
      const float y = std::floor(scene.y(static_cast<double>(row)));
      fill({scene.cells.x, y, scene.cells.width, width}, color);
    };
    // Thin where there is little between them: a line covers what is below it.
    const float layers = scene.px(scene.cell_height() < scene.px(1.25F) ? 1 : 2);
    const float each = scene.cell_width() * static_cast<float>(scene.map.columns) /
                       static_cast<float>(std::max<std::size_t>(scene.map.requests.size(), 1));
    const float requests = scene.px(each < scene.px(12) ? 1 : each < scene.px(40) ? 2 : 4);
    for (std::int64_t r = std::max<std::int64_t>(range.row_begin, 1); r < range.row_end; ++r) {
      const auto row = static_cast<std::size_t>(r);
      if (scene.map.rows[row].group != scene.map.rows[row - 1].group) horizontal(r, theme.panel, layers);
    }
    for (std::size_t i = 1; i < scene.map.spans.size(); ++i) {
      const MapSpan& span = scene.map.spans[i];
      if (span.begin < range.column_begin || span.begin > range.column_end) continue;
      const bool request = span.request != scene.map.spans[i - 1].request;
      vertical(span.begin, theme.panel, request ? requests : std::min(requests, scene.px(2)));
    }
    unclip();
  }

  /// While playing, what is not executed yet is dimmed.
  static void draw_future(const Scene& scene) {
    if (!scene.context.playhead) return;
    const MapOp& op = scene.map.ops[*scene.context.playhead];
    const MapStep& step = scene.map.steps[op.step];
    const Color veil = scene.context.theme.panel.alpha(225);
    const float left = scene.x(static_cast<double>(step.first_column));
    const float right = scene.x(static_cast<double>(step.first_column + step.tokens));
    const float below = scene.y(static_cast<double>(op.row + 1));
    clip(scene.cells);
    fill({left, below, right - left, scene.cells.bottom() - below}, veil);
    fill({right, scene.cells.y, scene.cells.right() - right, scene.cells.height}, veil);
    unclip();
  }

  static void draw_selection(const Scene& scene) {
    const Place& place = scene.context.selection.place;
    const auto column = scene.map.find_column(place);
    if (!column) return;
    const Theme& theme = scene.context.theme;
    const auto row = scene.map.find_row(place.layer.value_or(-1), place.op);
    const MapStep* step = scene.map.step_at(*column);
    const std::int64_t first = place.token ? *column : step->first_column;
    const std::int64_t columns = place.token ? 1 : step->tokens;
    clip(scene.cells);
    if (!row) {
      const Area top = scene.cell(first, 0, columns);
      outline({top.x, scene.cells.y, top.width, scene.cells.height}, theme.text, scene.px(2));
    } else {
      draw_cursor(scene, scene.cell(first, static_cast<std::int64_t>(*row), columns), true, place.token.has_value());
    }
    unclip();
  }

  static void draw_header(const Scene& scene, Area area) {
    const float half = scene.px(kHeaderHeight / 2);
    clip({scene.cells.x, area.y, scene.cells.width, half * 2});
    const std::vector<MapSpan>& spans = scene.map.spans;
    for (std::size_t i = 0; i < spans.size();) {
      std::size_t next = i + 1;
      while (next < spans.size() && spans[next].request == spans[i].request) ++next;
      draw_request(scene, spans[i].request, on_screen(scene, spans[i].begin, spans[next - 1].end, area.y, half));
      for (; i < next; ++i) {
        const Area band = on_screen(scene, spans[i].begin, spans[i].end, area.y + half, half);
        draw_span(scene, spans[i], band);
      }
    }
    unclip();
  }

  /// The longest of its names that fits.
  static void draw_span(const Scene& scene, const MapSpan& span, Area band) {
    const ImFont* font = scene.context.fonts.small;
    const bool by_step = span.kind == StepKind::decode;
    const std::string_view word = words::word(words::kStepKinds, span.kind);
    const std::string kind = span.rank > 0 ? fmt::format("@{} {}", span.rank, word) : std::string(word);
    const std::int64_t count = by_step ? span.steps : span.end - span.begin;
    const Area room = band.inset(scene.px(4), 0);
    for (const std::string& words : {fmt::format("{} \u00B7 {}", kind, counted(count, by_step ? "step" : "token")),
                                     fmt::format("{} {}", kind, count), kind}) {
      if (text_size(font, words).x > room.width) continue;
      label(font, room, scene.context.theme.muted, words);
      return;
    }
  }

  static Area on_screen(const Scene& scene, std::int64_t begin, std::int64_t end, float y, float height) {
    const float left = std::max(scene.x(static_cast<double>(begin)), scene.cells.x);
    const float right = std::min(scene.x(static_cast<double>(end)), scene.cells.right());
    return {left, y, right - left, height};
  }

  static void draw_request(const Scene& scene, std::int64_t id, Area band) {
    const Theme& theme = scene.context.theme;
    if (band.width < scene.px(3)) return;
    const MapRequest* request = scene.map.request(id);
    if (request == nullptr) return;
    const float gap = band.width > scene.px(12) ? scene.px(4) : scene.px(1);
    if (scene.context.printed) {
      fill({band.x, band.bottom() - scene.px(3), band.width - gap, scene.px(1)}, theme.muted);
    } else {
      fill({band.x, band.y + scene.px(1), band.width - gap, band.height - scene.px(2)}, theme.raised, scene.px(3));
    }
    if (request->worst >= kInf) {
      fill_cell(theme, scene.context.fonts, {band.x, band.bottom() - scene.px(4), band.width - gap, scene.px(3)},
                request->worst);
    }
    const ImFont* font = scene.context.fonts.small;
    const std::string title = lane_title(*request);
    const Area words{band.x + scene.px(7), band.y, band.width - gap - scene.px(12), band.height};
    if (words.width >= std::min(text_size(font, title).x, scene.px(kLeastTitle))) {
      label(font, words, theme.text, title);
      return;
    }
    const std::string number = std::to_string(id);  // a few letters of a name would say less
    const Area chip{band.x, band.y, band.width - gap, band.height};
    if (text_size(font, number).x <= chip.width) label(font, chip, theme.text, number, 0.5F);
  }

  /// Names of layers always; of ops where a row is high enough, else of those pointed at, selected and in the story.
  static void draw_labels(const Scene& scene, Area area, const std::optional<GridHit>& hit) {
    clip({area.x, scene.cells.y, scene.px(kLabelWidth), scene.cells.height});
    draw_groups(scene, area);
    const Place& place = scene.context.selection.place;
    const FrontRange range = scene.port.range();
    std::vector<std::size_t> wanted;  // the most wanted first
    if (hit) wanted.push_back(static_cast<std::size_t>(hit->row));
    if (const auto row = scene.map.find_row(place.layer.value_or(-1), place.op)) wanted.push_back(*row);
    const std::size_t pointed = wanted.size();
    if (scene.cell_height() >= scene.px(kOpHeight)) {
      for (std::int64_t r = range.row_begin; r < range.row_end; ++r) wanted.push_back(static_cast<std::size_t>(r));
    } else if (scene.context.story) {
      for (const StoryEvent& event : scene.context.story->events) {
        const Place& at = event.target.place;
        if (const auto row = scene.map.find_row(at.layer.value_or(-1), at.op)) wanted.push_back(*row);
      }
    }
    std::erase_if(wanted, [&](std::size_t row) { return row >= scene.map.rows.size(); });
    const RowsOnScreen rows{scene.y(0), scene.cell_height(), scene.cells.y, scene.cells.bottom()};
    for (const RowLabel& name : place_row_labels(wanted, rows, scene.px(kOpHeight))) {
      const Area line{area.x + scene.px(kGroupWidth + 18), name.centre - scene.px(8),
                      scene.px(kLabelWidth - kGroupWidth - 26), scene.px(16)};
      const Color ink = name.wanted < pointed ? scene.context.theme.text : scene.context.theme.muted;
      const ImFont* font = scene.context.fonts.mono_small;
      label(font, line, ink, shortened(font, scene.map.rows[wanted[name.wanted]].op, line.width), 1);
    }
    unclip();
  }

  static void draw_groups(const Scene& scene, Area area) {
    const Theme& theme = scene.context.theme;
    const FrontRange range = scene.port.range();
    std::int64_t begin = range.row_begin;
    for (std::int64_t r = range.row_begin; r < range.row_end; ++r) {
      const auto row = static_cast<std::size_t>(r);
      if (r + 1 < range.row_end && scene.map.rows[row + 1].group == scene.map.rows[row].group) continue;
      const float top = std::max(scene.y(static_cast<double>(begin)), scene.cells.y);
      const float bottom = std::min(scene.y(static_cast<double>(r + 1)), scene.cells.bottom());
      const Area group{area.x + scene.px(18), top, scene.px(kGroupWidth - 6), bottom - top};
      if (group.height >= scene.px(kOpHeight))
        label(scene.context.fonts.small, group, theme.text, scene.map.rows[row].group);
      const float rule = area.x + scene.px(12 + kGroupWidth);
      if (group.height >= scene.px(6)) fill({rule, top + 2, scene.px(2), bottom - top - 3}, theme.line);
      begin = r + 1;
    }
  }

  static void draw_key(const ViewContext& context, Area row) {
    const LegendEntry first[] = {{kNan, "NaN"},
                                 {kInf, "Inf"},
                                 {kClipped, "clipped"},
                                 {kLowHeadroom, fmt::format("headroom below {}", kLowHeadroomBelow)}};
    const LegendRamp ramp{"healthy, largest |x|", fmt::format("{:g}", std::pow(10.0, kRampFrom)),
                          fmt::format("{:g}", std::pow(10.0, kRampTo))};
    const LegendEntry last[] = {{kZero, "all zero"}, {kAbsent, "none"}};
    draw_legend(context, row, first, ramp, last);
  }

  static void hover(const Scene& scene, const ViewActions& actions, const GridHit& hit) {
    const auto row = static_cast<std::size_t>(hit.row);
    if (row >= scene.map.rows.size() || scene.map.step_at(hit.column) == nullptr) return;
    const Place place = scene.map.place_at(hit.column, row);
    const Cell cell = scene.map.row(row)[static_cast<std::size_t>(hit.column)];
    if (hit.clicked) actions.choose({place, {}});
    if (hit.menu) actions.menu({{place, {}}, health_words(cell)});
    const MapRequest* request = scene.map.request(*place.request);
    std::string token = fmt::format("token {}", *place.token);
    if (request != nullptr) {
      const auto said = request->token_text.find(*place.token);
      if (said != request->token_text.end() && !said->second.empty())
        token += fmt::format(" {}", in_quotes(said->second));
    }
    if (const ErrorMap* errors = scene.context.errors.get(); errors != nullptr && scene.context.beside) {
      const std::string said =
          error_tooltip(scene.context, place, token, errors->cell(hit.column, row), errors->span_at(hit.column, row));
      actions.hint(fmt::format("{}   {}", to_string(place), said));
      return;
    }
    if (const RunDifference* twin = scene.context.difference.get(); twin != nullptr && scene.context.beside) {
      const std::string both = cell_pair_tooltip(scene.context, place, token, cell, twin->cell_there(hit.column, row),
                                                 twin->cell(hit.column, row));
      actions.hint(fmt::format("{}   {}   {}", to_string(place), token, both));
      return;
    }
    const std::string health = health_words(cell);
    actions.hint(fmt::format("{}   {}   {}", to_string(place), token, health));
    cell_tooltip(scene.context, to_string(place), token, health, cell);
  }

  CellMap grid_;
  Place followed_;  ///< that the map was moved to last
  TwinPart part_ = TwinPart::here;
  BesideRunPtr beside_;                ///< that part_ was chosen for
  std::shared_ptr<const RunMap> map_;  ///< of the last frame, as the next
  Area cells_;
};

}  // namespace

std::unique_ptr<View> make_front_view() { return std::make_unique<FrontView>(); }

}  // namespace nanscope::gui
