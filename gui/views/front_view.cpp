#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "gui/prepare/front_image.h"
#include "gui/prepare/viewport.h"
#include "gui/texture.h"
#include "gui/views/registry.h"

/// The front: token x (layer, op) over all requests and steps, coloured by health.
namespace nanscope::gui {
namespace {

constexpr float kHeaderHeight = 46;
constexpr float kLegendHeight = 34;
constexpr float kLabelWidth = 168;
constexpr float kGroupWidth = 58;
constexpr float kOpHeight = 12;  ///< a line of the ops' names
constexpr float kGapFrom = 5;    ///< cells of so many pixels are separated by a line

/// Where cells are on screen.
struct Scene {
  const RunMap& map;
  const ViewContext& context;
  const Viewport& port;
  Area cells;

  float x(double column) const {
    return cells.x + static_cast<float>((column - port.left()) / port.width()) * cells.width;
  }
  float y(double row) const { return cells.y + static_cast<float>((row - port.top()) / port.height()) * cells.height; }
  float cell_width() const { return cells.width / static_cast<float>(port.width()); }
  float cell_height() const { return cells.height / static_cast<float>(port.height()); }
  Area cell(std::int64_t column, std::size_t row, std::int64_t columns = 1) const {
    const float left = x(static_cast<double>(column));
    const float top = y(static_cast<double>(row));
    return {left, top, x(static_cast<double>(column + columns)) - left, y(static_cast<double>(row + 1)) - top};
  }
  float px(float pixels) const { return pixels * context.scale; }
};

void clip(Area area) { ImGui::GetWindowDrawList()->PushClipRect(area.min(), area.max(), true); }
void unclip() { ImGui::GetWindowDrawList()->PopClipRect(); }

std::string request_title(const MapRequest& request) {
  if (request.row.name.empty()) return fmt::format("request {}", request.row.id);
  return fmt::format("{} \u00B7 {}", request.row.id, printable(request.row.name));
}

class FrontView final : public View {
 public:
  std::string_view name() const override { return "front"; }
  std::string_view title() const override { return "Front"; }
  std::string_view caption() const override { return "a column a token, a row an op, coloured by the worst value"; }

  std::optional<ViewRequest> prepare(const ViewContext& context, Area area) override {
    if (!context.map) return std::nullopt;
    port_.set_grid(context.map->columns, static_cast<std::int64_t>(context.map->rows.size()));
    const Area cells = cells_of(area, context.scale);
    const int width = std::clamp(static_cast<int>(cells.width), 1, kTextureLimit);
    const int height = std::clamp(static_cast<int>(cells.height), 1, kTextureLimit);
    const FrontRange range = port_.range();
    return ViewRequest{fmt::format("{} {} {} {} {} {}", range.column_begin, range.column_end, range.row_begin,
                                   range.row_end, width, height),
                       [map = context.map, range, width, height](RunFacts&) -> Result<PreparedPtr> {
                         return std::make_shared<const FrontImage>(make_front_image(*map, range, width, height));
                       }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    if (!context.map || !prepared) return;
    const RunMap& map = *context.map;
    const Scene scene{map, context, port_, cells_of(area, context.scale)};
    if (map.columns == 0 || map.rows.empty() || scene.cells.width < 1 || scene.cells.height < 1) return;
    upload(prepared, context.theme);
    const std::optional<Hit> hit = input(scene);
    draw_cells(scene);
    draw_lines(scene);
    draw_future(scene);
    draw_selection(scene);
    draw_header(scene, area);
    draw_labels(scene, area, hit);
    draw_legend(context, area);
    if (hit) hover(scene, actions, *hit);
  }

 private:
  struct Hit {
    std::int64_t column;
    std::size_t row;
    bool clicked;
  };

  static Area cells_of(Area area, float scale) {
    return {area.x + kLabelWidth * scale, area.y + kHeaderHeight * scale, area.width - (kLabelWidth + 12) * scale,
            area.height - (kHeaderHeight + kLegendHeight) * scale};
  }

  void upload(const PreparedPtr& prepared, const Theme& theme) {
    if (shown_ == prepared && theme_ == theme.name) return;
    const auto& image = static_cast<const FrontImage&>(*prepared);
    std::vector<std::uint32_t> pixels(image.texels.size());
    std::transform(image.texels.begin(), image.texels.end(), pixels.begin(),
                   [&theme](Cell cell) { return theme.cell(cell).packed(); });
    if (!pixels.empty()) texture_.upload(pixels, image.width, image.height);
    range_ = image.range;
    shown_ = prepared;
    theme_ = theme.name;
  }

  /// Wheel zooms (with Shift the ops alone, with Ctrl the tokens alone), dragging pans, a click selects, 0 shows all.
  std::optional<Hit> input(const Scene& scene) {
    ImGui::SetCursorScreenPos(scene.cells.min());
    ImGui::InvisibleButton("cells", {scene.cells.width, scene.cells.height});
    const ImGuiIO& io = ImGui::GetIO();
    if (ImGui::IsItemActive() && ImGui::IsMouseDragging(ImGuiMouseButton_Left)) {
      port_.pan(static_cast<double>(-io.MouseDelta.x / scene.cells.width),
                static_cast<double>(-io.MouseDelta.y / scene.cells.height));
      dragged_ = true;
    }
    const bool released = ImGui::IsItemDeactivated();
    const bool clicked = released && !dragged_;
    if (released) dragged_ = false;
    if (!ImGui::IsItemHovered() || !scene.cells.holds(io.MousePos)) return std::nullopt;
    const double at_x = static_cast<double>((io.MousePos.x - scene.cells.x) / scene.cells.width);
    const double at_y = static_cast<double>((io.MousePos.y - scene.cells.y) / scene.cells.height);
    const Hit hit{static_cast<std::int64_t>(port_.left() + at_x * port_.width()),
                  static_cast<std::size_t>(port_.top() + at_y * port_.height()), clicked};
    if (io.MouseWheel != 0) {
      const double factor = std::pow(1.25, static_cast<double>(io.MouseWheel));
      port_.zoom(io.KeyShift ? 1 : factor, io.KeyCtrl ? 1 : factor, at_x, at_y);
    }
    if (ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Right)) port_.show_all();
    return hit;
  }

  void draw_cells(const Scene& scene) const {
    fill(scene.cells, scene.context.theme.cell(kAbsent));
    if (texture_.empty()) return;
    clip(scene.cells);
    ImGui::GetWindowDrawList()->AddImage(
        texture_.id(),
        {scene.x(static_cast<double>(range_.column_begin)), scene.y(static_cast<double>(range_.row_begin))},
        {scene.x(static_cast<double>(range_.column_end)), scene.y(static_cast<double>(range_.row_end))}, {0, 0}, {1, 1},
        IM_COL32_WHITE);
    unclip();
  }

  static void draw_lines(const Scene& scene) {
    const Theme& theme = scene.context.theme;
    clip(scene.cells);
    const FrontRange range = scene.port.range();
    const Color thin = theme.panel.alpha(110);
    const auto vertical = [&](std::int64_t column, Color color, float width) {
      const float x = std::floor(scene.x(static_cast<double>(column)));
      fill({x, scene.cells.y, width, scene.cells.height}, color);
    };
    const auto horizontal = [&](std::int64_t row, Color color, float width) {
      const float y = std::floor(scene.y(static_cast<double>(row)));
      fill({scene.cells.x, y, scene.cells.width, width}, color);
    };
    if (scene.cell_width() >= kGapFrom) {
      for (std::int64_t c = range.column_begin; c <= range.column_end; ++c) vertical(c, thin, 1);
    }
    if (scene.cell_height() >= kGapFrom) {
      for (std::int64_t r = range.row_begin; r <= range.row_end; ++r) horizontal(r, thin, 1);
    }
    for (std::int64_t r = std::max<std::int64_t>(range.row_begin, 1); r < range.row_end; ++r) {
      const auto row = static_cast<std::size_t>(r);
      if (scene.map.rows[row].group != scene.map.rows[row - 1].group) horizontal(r, theme.panel, scene.px(2));
    }
    for (std::size_t i = 1; i < scene.map.steps.size(); ++i) {
      const MapStep& step = scene.map.steps[i];
      const bool request = step.row.request != scene.map.steps[i - 1].row.request;
      if (request) vertical(step.first_column, theme.panel, scene.px(4));
      if (!request && step.row.kind != scene.map.steps[i - 1].row.kind)
        vertical(step.first_column, theme.panel, scene.px(2));
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
      Area cell = scene.cell(first, *row, columns);
      const float least = scene.px(7);
      if (cell.width < least) cell = {cell.x - (least - cell.width) / 2, cell.y, least, cell.height};
      if (cell.height < least) cell = {cell.x, cell.y - (least - cell.height) / 2, cell.width, least};
      const Color faint = theme.text.alpha(80);
      const float middle_x = std::floor(cell.x + cell.width / 2);
      const float middle_y = std::floor(cell.y + cell.height / 2);
      line({scene.cells.x, middle_y}, {cell.x - 2, middle_y}, faint);
      line({cell.right() + 2, middle_y}, {scene.cells.right(), middle_y}, faint);
      if (place.token) {
        line({middle_x, scene.cells.y}, {middle_x, cell.y - 2}, faint);
        line({middle_x, cell.bottom() + 2}, {middle_x, scene.cells.bottom()}, faint);
      }
      outline(cell.inset(-scene.px(3)), theme.panel, scene.px(2), scene.px(2));
      outline(cell.inset(-scene.px(1.5F)), theme.text, scene.px(2), scene.px(2));
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
    const bool prefill = span.kind == StepKind::prefill;
    const std::string kind = prefill ? "prefill" : "decode";
    const std::int64_t count = prefill ? span.end - span.begin : span.steps;
    const Area room = band.inset(scene.px(4), 0);
    for (const std::string& words : {fmt::format("{} \u00B7 {}", kind, counted(count, prefill ? "token" : "step")),
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
    fill({band.x, band.y + scene.px(1), band.width - gap, band.height - scene.px(2)}, theme.raised, scene.px(3));
    if (request->worst >= kInf) {
      fill({band.x, band.bottom() - scene.px(3), band.width - gap, scene.px(2)}, theme.cell(request->worst));
    }
    if (band.width > scene.px(24)) {
      label(scene.context.fonts.small, {band.x + scene.px(7), band.y, band.width - gap - scene.px(12), band.height},
            theme.text, request_title(*request));
    }
  }

  /// Names of layers always; of ops where a row is high enough, else of those pointed at, selected and in the story.
  static void draw_labels(const Scene& scene, Area area, const std::optional<Hit>& hit) {
    clip({area.x, scene.cells.y, scene.px(kLabelWidth), scene.cells.height});
    draw_groups(scene, area);
    const Place& place = scene.context.selection.place;
    const FrontRange range = scene.port.range();
    std::vector<std::size_t> wanted;  // the most wanted first
    if (hit) wanted.push_back(hit->row);
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
    std::vector<float> taken;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const float middle = scene.y(static_cast<double>(wanted[i]) + 0.5);
      const bool free = std::none_of(taken.begin(), taken.end(), [&](float other) {
        return std::abs(other - middle) < scene.px(kOpHeight) - 0.5F;
      });
      if (!free || wanted[i] >= scene.map.rows.size()) continue;
      taken.push_back(middle);
      const Area line{area.x + scene.px(kGroupWidth + 18), middle - scene.px(8),
                      scene.px(kLabelWidth - kGroupWidth - 26), scene.px(16)};
      label(scene.context.fonts.mono_small, line, i < pointed ? scene.context.theme.text : scene.context.theme.muted,
            scene.map.rows[wanted[i]].op, 1);
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

  static void draw_legend(const ViewContext& context, Area area) {
    const Theme& theme = context.theme;
    const auto px = [&](float pixels) { return pixels * context.scale; };
    const float swatch = px(11);
    const Area row{area.x, area.bottom() - px(kLegendHeight), area.width, px(kLegendHeight)};
    float x = area.x + px(18);
    const auto width_of = [&](std::string_view said) { return text_size(context.fonts.small, said).x; };
    const auto words = [&](std::string_view said, float gap) {
      label(context.fonts.small, {x, row.y, width_of(said) + 1, row.height}, theme.muted, said);
      x += width_of(said) + px(gap);
    };
    // What does not fit is left out: the worst comes first.
    bool full = false;
    const auto entry = [&](Cell cell, std::string_view said) {
      full = full || x + swatch + px(6) + width_of(said) > area.right();
      if (full) return;
      const Area box{x, row.y + (row.height - swatch) / 2, swatch, swatch};
      fill(box, theme.cell(cell), px(2));
      outline(box, theme.line, 1, px(2));
      x += swatch + px(6);
      words(said, 18);
    };
    entry(kNan, "NaN");
    entry(kInf, "Inf");
    entry(kClipped, "clipped");
    entry(kLowHeadroom, fmt::format("headroom below {}", kLowHeadroomBelow));
    const std::string from = fmt::format("{:g}", std::pow(10.0, kRampFrom));
    const std::string to = fmt::format("{:g}", std::pow(10.0, kRampTo));
    constexpr std::string_view kRamp = "healthy, largest |x|";
    const float ramp = px(96);
    if (x + width_of(kRamp) + width_of(from) + width_of(to) + ramp + px(22) > area.right()) return;
    words(kRamp, 10);
    words(from, 6);
    draw_ramp(context, {x, row.y + (row.height - swatch) / 2, ramp, swatch});
    x += ramp + px(6);
    words(to, 18);
    entry(kZero, "all zero");
    entry(kAbsent, "none");
  }

  static void draw_ramp(const ViewContext& context, Area area) {
    for (int i = 0; i < kHealthySteps; ++i) {
      const float from = std::floor(area.x + area.width * static_cast<float>(i) / kHealthySteps);
      const float to = std::floor(area.x + area.width * static_cast<float>(i + 1) / kHealthySteps);
      fill({from, area.y, to - from, area.height}, context.theme.cell(static_cast<Cell>(kHealthyFirst + i)));
    }
  }

  void hover(const Scene& scene, const ViewActions& actions, const Hit& hit) const {
    if (hit.row >= scene.map.rows.size() || scene.map.step_at(hit.column) == nullptr) return;
    const Place place = scene.map.place_at(hit.column, hit.row);
    const Cell cell = scene.map.row(hit.row)[static_cast<std::size_t>(hit.column)];
    if (hit.clicked) actions.choose({place, {}});
    const MapRequest* request = scene.map.request(*place.request);
    std::string token = fmt::format("token {}", *place.token);
    if (request != nullptr) {
      const auto said = request->token_text.find(*place.token);
      if (said != request->token_text.end() && !said->second.empty())
        token += fmt::format(" {}", in_quotes(said->second));
    }
    std::string health(cell_name(cell));
    if (cell >= kHealthyFirst && cell <= kHealthyLast) {
      health +=
          fmt::format(", largest |x| {:.2g} to {:.2g}", magnitude_of(cell), magnitude_of(static_cast<Cell>(cell + 1)));
    }
    actions.hint(fmt::format("{}   {}   {}", to_string(place), token, health));
    tooltip(scene.context, to_string(place), token, health, cell);
  }

  static void tooltip(const ViewContext& context, const std::string& place, const std::string& token,
                      const std::string& health, Cell cell) {
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(12 * context.scale, 9 * context.scale));
    ImGui::BeginTooltip();
    ImGui::PushFont(context.fonts.mono);
    ImGui::TextUnformatted(place.c_str());
    ImGui::PopFont();
    ImGui::TextDisabled("%s", token.c_str());
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float size = ImGui::GetTextLineHeight();
    fill({at.x, at.y + size * 0.1F, size * 0.8F, size * 0.8F}, context.theme.cell(cell), 2 * context.scale);
    ImGui::SetCursorScreenPos({at.x + size * 1.3F, at.y});
    ImGui::TextUnformatted(health.c_str());
    ImGui::EndTooltip();
    ImGui::PopStyleVar();
  }

  Viewport port_;
  Texture texture_;
  PreparedPtr shown_;
  FrontRange range_;
  std::string_view theme_;
  bool dragged_ = false;
};

}  // namespace

std::unique_ptr<View> make_front_view() { return std::make_unique<FrontView>(); }

}  // namespace nanscope::gui
