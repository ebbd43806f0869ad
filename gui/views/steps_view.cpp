#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gui/cell_map.h"
#include "gui/cell_paint.h"
#include "gui/context_menu.h"
#include "gui/drawn.h"
#include "gui/export/tables.h"
#include "gui/log_chart.h"
#include "gui/marks.h"
#include "gui/prepare/step_timeline.h"
#include "gui/views/registry.h"

/// The run over its steps: who worked in which, and how large each module's values were. The ruler scrubs.
namespace nanscope::gui {
namespace {

constexpr float kLaneNames = 150;
constexpr float kLaneNumbers = 132;
constexpr float kStepsHead = 24;
constexpr float kStepsChips = 24;
constexpr float kRuler = 24;
constexpr float kRequestLane = 15;
constexpr float kLeastRequestLane = 3;
constexpr std::size_t kRoomyRequests = 8;  ///< more take less room each
constexpr float kModuleLane = 40;
constexpr float kCounterBar = 6;
constexpr float kJumpMark = 4;
constexpr float kStepTickRoom = 46;
constexpr float kLaneReach = 6;  ///< pixels between dots of a curve

/// Where the columns are.
struct StepScene {
  const ViewContext& context;
  const StepTimeline& timeline;
  const Viewport& port;
  Area plot;  ///< x and width

  float px(float pixels) const { return pixels * context.scale; }
  float x(double column) const {
    return plot.x + static_cast<float>((column - port.left()) / port.width()) * plot.width;
  }
  float pitch() const { return plot.width / static_cast<float>(port.width()); }
  /// The column at a pixel, held to those that there are.
  std::size_t column_at(float pixel) const {
    const double at = port.left() + static_cast<double>((pixel - plot.x) / plot.width) * port.width();
    return static_cast<std::size_t>(std::clamp(at, 0.0, static_cast<double>(timeline.columns.size()) - 1));
  }
  /// So many columns share a pixel.
  std::size_t together_at_once() const {
    return static_cast<std::size_t>(std::max(1.0, std::ceil(port.width() / static_cast<double>(plot.width))));
  }
  std::size_t first() const { return static_cast<std::size_t>(std::max(0.0, std::floor(port.left()))); }
  std::size_t last() const {
    const auto end = static_cast<std::size_t>(std::ceil(port.left() + port.width()));
    return std::min(end, timeline.columns.size());
  }
};

std::string step_words(const StepColumn& column) {
  const auto& [request, index] = column.spans.front();
  if (column.spans.size() == 1) return fmt::format("request {}, step {}", request, index);
  return fmt::format("request {}, step {}, with {} others", request, index, column.spans.size() - 1);
}

/// One module: its curve, its counters, its largest jump.
class LaneDrawer {
 public:
  LaneDrawer(const StepScene& scene, const ModuleLane& lane, Area area, bool chosen)
      : scene_(scene), lane_(lane), area_(area), chosen_(chosen), axis_(axis_of(lane.range)) {
    plot_ = {scene.plot.x, area.y + scene.px(3), scene.plot.width, area.height - scene.px(6)};
  }

  void draw() const {
    const Theme& theme = scene_.context.theme;
    if (chosen_) fill(area_, theme.raised, scene_.px(4));
    words();
    fill({plot_.x, area_.bottom() - 1, plot_.width, 1}, theme.line);
    clip(plot_);
    curve();
    counters();
    jump();
    unclip();
  }

 private:
  float y(double value) const {
    const float room = plot_.height - scene_.px(kCounterBar + 2);
    return plot_.y + room - room * static_cast<float>(axis_.at(value));
  }

  void words() const {
    const ViewContext& context = scene_.context;
    const Theme& theme = context.theme;
    const float half = area_.height / 2;
    const Area name{area_.x + scene_.px(6), area_.y, scene_.plot.x - area_.x - scene_.px(14), half};
    label(context.fonts.mono_small, name, theme.text,
          shortened(context.fonts.mono_small, printable(lane_.module), name.width));
    const std::string range = lane_.range.highest > 0 ? fmt::format("{} to {}", short_number(lane_.range.lowest),
                                                                    short_number(lane_.range.highest))
                                                      : "zero";
    label(context.fonts.small, {name.x, name.bottom() - scene_.px(2), name.width, half}, theme.muted, range);
    const Area right{plot_.right() + scene_.px(8), area_.y, scene_.px(kLaneNumbers - 8), half};
    std::string counts;
    const auto count = [&](std::string_view what, std::uint64_t number) {
      if (number > 0) counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", what, number);
    };
    count("NaN", lane_.nan);
    count("Inf", lane_.inf);
    count("clipped", lane_.clipped);
    if (lane_.jumps_at) {
      label(context.fonts.small, right, theme.muted, fmt::format("grows {:.3g} times", lane_.jump));
    }
    const Cell worst = lane_.nan > 0 ? kNan : lane_.inf > 0 ? kInf : kClipped;
    label(context.fonts.small, {right.x, right.bottom() - scene_.px(2), right.width, half}, theme.ink(worst), counts);
  }

  void curve() const {
    const std::size_t group = scene_.together_at_once();
    const bool dots = scene_.pitch() >= scene_.px(kLaneReach);
    CurveLine line(scene_.context.theme.cell(kHealthyLast), scene_.px(1.5F), scene_.px(2), dots);
    for (std::size_t i = scene_.first() / group * group; i < scene_.last(); i += group) {
      const ModuleStep step = together(lane_, i, i + group);
      if (!(step.absmax > 0)) {
        line.interrupt();
        continue;
      }
      line.to({scene_.x(static_cast<double>(i) + static_cast<double>(group) / 2), y(static_cast<double>(step.absmax))});
    }
  }

  void counters() const {
    const std::size_t group = scene_.together_at_once();
    const float high = scene_.px(kCounterBar);
    for (std::size_t i = scene_.first() / group * group; i < scene_.last(); i += group) {
      const ModuleStep step = together(lane_, i, i + group);
      if (step.health < kLowHeadroom) continue;
      const float left = scene_.x(static_cast<double>(i));
      const float wide = std::max(scene_.x(static_cast<double>(i + group)) - left - 1, scene_.px(2));
      fill_cell(scene_.context.theme, scene_.context.fonts, {left, plot_.bottom() - high, wide, high}, step.health);
    }
  }

  /// A triangle where absmax grows most from one step to the next.
  void jump() const {
    if (!lane_.jumps_at) return;
    const auto at = static_cast<double>(*lane_.jumps_at);
    const float x = scene_.x(at);
    const float half = scene_.px(kJumpMark);
    ImGui::GetWindowDrawList()->AddTriangleFilled({x - half, plot_.y + 2 * half}, {x + half, plot_.y + 2 * half},
                                                  {x, plot_.y}, scene_.context.theme.text.packed());
  }

  const StepScene& scene_;
  const ModuleLane& lane_;
  Area area_;
  Area plot_;
  bool chosen_;
  LogAxis axis_;
};

class StepsView final : public View {
 public:
  std::string_view name() const override { return "steps"; }
  std::string_view title() const override { return "Steps"; }
  std::string_view caption() const override { return "requests and modules over the steps; drag the ruler to scrub"; }
  std::optional<TableMaker> table(const PreparedPtr& prepared) const override {
    return table_maker<StepTimeline>(prepared);
  }

  std::optional<Area> where(const Place& place) const override {
    const std::optional<std::size_t> column = known_ ? known_->find(place) : std::nullopt;
    if (!column) return std::nullopt;
    const Area columns = cell_area(port_, {plot_.x, 0, plot_.width, 1}, static_cast<std::int64_t>(*column), 0);
    for (const auto& [module, y] : lanes_) {
      if (known_->modules[module].module == place.op) return Area{columns.x, y, columns.width, lane_height_};
    }
    return std::nullopt;
  }

  std::optional<ViewRequest> prepare(const ViewContext& context, Area) override {
    const std::optional<std::int64_t> selected = context.selection.place.layer;
    if (selected && *selected >= 0) layer_ = *selected;
    const std::optional<std::int64_t> layer = one_layer_ ? layer_ : std::nullopt;
    const bool exact = context.map && context.map->exact;
    return ViewRequest{fmt::format("{} {}", layer.value_or(-1), exact),
                       [layer](RunFacts& facts) -> Result<PreparedPtr> {
                         const auto index = facts.tensor_index();
                         if (!index) return tl::unexpected(index.error());
                         const auto map = facts.map();
                         if (!map) return tl::unexpected(map.error());
                         auto made = make_step_timeline(facts.view(), **map, *index, layer);
                         if (!made) return tl::unexpected(made.error());
                         return std::make_shared<const StepTimeline>(std::move(*made));
                       }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    known_ = std::static_pointer_cast<const StepTimeline>(prepared);
    const StepTimeline& timeline = *known_;
    if (timeline.columns.empty()) {
      notice(context, area, "There are no steps", "Nothing of this run worked for a request.");
      return;
    }
    const auto px = [&](float pixels) { return pixels * context.scale; };
    const Area inner = area.inset(px(kMargin), 0);
    port_.set_grid(static_cast<std::int64_t>(timeline.columns.size()), 1);
    const std::optional<std::size_t> column = timeline.find(context.selection.place);
    if (column && column != followed_ && !port_.shows_all()) port_.reveal(static_cast<std::int64_t>(*column), 0);
    followed_ = column;
    plot_ = {inner.x + px(kLaneNames), 0, inner.width - px(kLaneNames + kLaneNumbers), 0};
    const StepScene scene{context, timeline, port_, plot_};
    float y = area.y + px(8);
    label(context.fonts.title, {inner.x, y, inner.width, px(kStepsHead)}, context.theme.text, timeline.headline);
    y += px(kStepsHead);
    draw_chips(context, {inner.x, y, inner.width, px(kStepsChips - 2)});
    y += px(kStepsChips + 4);
    const Area ruler{plot_.x, y, plot_.width, px(kRuler)};
    draw_ruler(scene, actions, ruler);
    y = draw_requests(scene, actions, {inner.x, ruler.bottom() + px(2), inner.width, 0});
    const Area modules{inner.x, y + px(4), inner.width, area.bottom() - y - px(4)};
    draw_modules(scene, actions, modules);
    if (column) draw_cursor_line(scene, *column, {ruler.y, area.bottom()});
  }

 private:
  void draw_chips(const ViewContext& context, Area area) {
    float x = area.x;
    const auto chip_at = [&](const std::string& words, bool on) {
      const float width = chip_width(context, words);
      const Area box{x, area.y, width, area.height};
      x += width + 6 * context.scale;
      return chip_button(context, box, words, on);
    };
    if (chip_at("all layers", !one_layer_)) one_layer_ = false;
    if (layer_ && chip_at(fmt::format("layer {}", *layer_), one_layer_)) one_layer_ = true;
    x += 12 * context.scale;
    if (chip_at("in the order of the model", !by_jump_)) by_jump_ = false;
    if (chip_at("largest jump first", by_jump_)) by_jump_ = true;
    const std::string_view words = "wheel: zoom, drag: pan, double right click: all";
    const float wide = text_size(context.fonts.small, words).x + 1;
    if (area.right() - wide > x + 12 * context.scale) {
      label(context.fonts.small, {area.right() - wide, area.y, wide, area.height}, context.theme.muted, words);
    }
  }

  /// Zooms and pans; true while the pointer is over the item that was drawn last.
  bool move(const StepScene& scene, bool pans) {
    const ImGuiIO& io = ImGui::GetIO();
    if (pans && ImGui::IsItemActive() && ImGui::IsMouseDragging(ImGuiMouseButton_Left)) {
      port_.pan(static_cast<double>(-io.MouseDelta.x / scene.plot.width), 0);
      dragged_ = true;
    }
    if (!ImGui::IsItemHovered()) return false;
    if (io.MouseWheel != 0) {
      const double at = static_cast<double>((io.MousePos.x - scene.plot.x) / scene.plot.width);
      port_.zoom(std::pow(1.25, static_cast<double>(io.MouseWheel)), 1, std::clamp(at, 0.0, 1.0), 0.5);
    }
    if (ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Right)) port_.show_all();
    return true;
  }

  /// The op that is selected now, in another step; the first one where that step has none.
  static std::optional<std::size_t> op_in(const StepScene& scene, std::size_t column) {
    if (!scene.context.map) return std::nullopt;
    const RunMap& map = *scene.context.map;
    const StepColumn& step = scene.timeline.columns[column];
    const Place& now = scene.context.selection.place;
    const auto same =
        std::find_if(step.spans.begin(), step.spans.end(), [&](const auto& span) { return span.first == now.request; });
    const auto& [request, index] = same != step.spans.end() ? *same : step.spans.front();
    Place place = now;
    place.request = request;
    place.step = index;
    place.rank = step.rank;
    if (const auto op = map.find_op(place)) return op;
    const MapStep* at = map.find_step(request, index, step.rank);
    if (at == nullptr || at->first_op >= map.ops.size()) return std::nullopt;
    return at->first_op;
  }

  /// Where every view is led through the run.
  void draw_ruler(const StepScene& scene, const ViewActions& actions, Area area) {
    const ViewContext& context = scene.context;
    fill(area, context.theme.raised, scene.px(4));
    ImGui::SetCursorScreenPos(area.min());
    ImGui::InvisibleButton("steps ruler", {std::max(area.width, 1.0F), area.height});
    tell_item(area, "steps ruler");
    const std::size_t column = scene.column_at(ImGui::GetIO().MousePos.x);
    if (ImGui::IsItemActive()) {
      if (const auto op = op_in(scene, column)) actions.seek(*op);
    }
    if (move(scene, false)) {
      ImGui::SetMouseCursor(ImGuiMouseCursor_ResizeEW);
      actions.hint(
          fmt::format("{}; drag to lead all views through the run", step_words(scene.timeline.columns[column])));
    }
    clip(area);
    float free = area.x;
    for (std::size_t i = scene.first(); i < scene.last(); ++i) {
      const auto& [request, index] = scene.timeline.columns[i].spans.front();
      const float x = scene.x(static_cast<double>(i));
      if (x < free) continue;
      fill({std::floor(x), area.bottom() - scene.px(5), 1, scene.px(5)}, context.theme.muted);
      label(context.fonts.mono_small, {x + scene.px(3), area.y, scene.px(kStepTickRoom), area.height},
            context.theme.muted, fmt::format("{}/{}", request, index));
      free = x + scene.px(kStepTickRoom);
    }
    unclip();
  }

  /// Answers where they end.
  static float draw_requests(const StepScene& scene, const ViewActions& actions, Area area) {
    const std::vector<RequestLane>& lanes = scene.timeline.requests;
    const float squeezed = kRequestLane * static_cast<float>(kRoomyRequests) / static_cast<float>(lanes.size());
    const float high = scene.px(lanes.size() <= kRoomyRequests ? kRequestLane : std::max(squeezed, kLeastRequestLane));
    const std::size_t group = scene.together_at_once();
    float y = area.y;
    for (const RequestLane& lane : lanes) {
      if (high >= scene.px(kRequestLane) - 1) {
        label(scene.context.fonts.small, {area.x + scene.px(6), y, scene.plot.x - area.x - scene.px(14), high},
              scene.context.theme.muted, fmt::format("{}  {}", lane.request, printable(lane.title)));
      }
      clip({scene.plot.x, y, scene.plot.width, high});
      for (std::size_t i = scene.first() / group * group; i < scene.last(); i += group) {
        const auto end = std::min(i + group, lane.cells.size());
        const Cell worst = *std::max_element(lane.cells.begin() + static_cast<std::ptrdiff_t>(i),
                                             lane.cells.begin() + static_cast<std::ptrdiff_t>(end));
        if (worst == kAbsent) continue;
        const float left = scene.x(static_cast<double>(i));
        const float wide = scene.x(static_cast<double>(i + group)) - left;
        fill_cell(scene.context.theme, scene.context.fonts,
                  {left, y, wide > 3 ? wide - 1 : wide, high > 4 ? high - 1 : high}, worst);
      }
      unclip();
      y += high;
    }
    tell_request(scene, actions, {area.x, area.y, area.width, y - area.y}, high);
    return y;
  }

  /// What is pointed at, and a click that goes there.
  static void tell_request(const StepScene& scene, const ViewActions& actions, Area area, float high) {
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    const Area plot{scene.plot.x, area.y, scene.plot.width, area.height};
    if (!ImGui::IsWindowHovered() || !plot.holds(mouse)) return;
    const auto lane = static_cast<std::size_t>((mouse.y - area.y) / high);
    if (lane >= scene.timeline.requests.size()) return;
    const std::size_t column = scene.column_at(mouse.x);
    const RequestLane& request = scene.timeline.requests[lane];
    if (request.cells[column] == kAbsent) return;
    tooltip(scene.context, step_words(scene.timeline.columns[column]),
            {fmt::format("{}  {}", request.request, printable(request.title)),
             std::string(cell_name(request.cells[column]))});
    const auto op = op_in(scene, column);
    if (!op) return;
    const Selection target{scene.context.map->place_of_op(*op), {}};
    if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) actions.choose(target);
    if (ImGui::IsMouseReleased(ImGuiMouseButton_Right)) actions.menu({target});
  }

  std::vector<std::size_t> order() const {
    std::vector<std::size_t> order(known_->modules.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (by_jump_) {
      std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
        return known_->modules[a].jump > known_->modules[b].jump;
      });
    }
    return order;
  }

  void draw_modules(const StepScene& scene, const ViewActions& actions, Area area) {
    ImGui::SetCursorScreenPos(area.min());
    ImGui::BeginChild("modules", {area.width, area.height}, false,
                      ImGuiWindowFlags_NoBackground | ImGuiWindowFlags_NoScrollWithMouse);
    const float high = scene.px(kModuleLane);
    const ImVec2 start = ImGui::GetCursorScreenPos();
    float y = start.y;
    lanes_.clear();
    lane_height_ = high;
    for (const std::size_t module : order()) {
      const Area lane{area.x, y, area.width - scene.px(8), high};
      y += high;
      if (!ImGui::IsRectVisible(lane.min(), lane.max())) continue;
      lanes_.emplace_back(module, lane.y);
      const ModuleLane& shown = scene.timeline.modules[module];
      LaneDrawer(scene, shown, lane, shown.module == scene.context.selection.place.op).draw();
      interact(scene, actions, module, lane);
    }
    ImGui::SetCursorScreenPos({start.x, y});
    ImGui::Dummy({1, 1});
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    const bool beside = mouse.x < scene.plot.x || mouse.x > scene.plot.x + scene.plot.width;
    if (ImGui::IsWindowHovered() && beside) ImGui::SetScrollY(ImGui::GetScrollY() - ImGui::GetIO().MouseWheel * high);
    ImGui::EndChild();
  }

  void interact(const StepScene& scene, const ViewActions& actions, std::size_t module, Area lane) {
    ImGui::SetCursorScreenPos({scene.plot.x, lane.y});
    ImGui::PushID(static_cast<int>(module));
    ImGui::InvisibleButton("module", {std::max(scene.plot.width, 1.0F), lane.height});
    ImGui::PopID();
    const bool released = ImGui::IsItemDeactivated();
    const bool asked = asked_for_menu();
    const bool pointed = move(scene, true);
    const bool clicked = released && !dragged_;
    if (released) dragged_ = false;
    if (!pointed) return;
    const std::size_t column = scene.column_at(ImGui::GetIO().MousePos.x);
    const std::size_t group = scene.together_at_once();
    const ModuleStep step =
        together(scene.timeline.modules[module], column / group * group, column / group * group + group);
    if (step.tensor == ModuleStep::kNoTensor) return;
    const Place place = scene.timeline.index->place(step.tensor);
    const std::string absmax = short_number(static_cast<double>(step.absmax));
    std::vector<std::string> lines{step_words(scene.timeline.columns[column]),
                                   fmt::format("absmax {}, {}", absmax, cell_name(step.health))};
    if (step.nan + step.inf + step.clipped > 0) {
      lines.push_back(fmt::format("NaN {}, Inf {}, clipped {}", step.nan, step.inf, step.clipped));
    }
    tooltip(scene.context, to_string(place), lines);
    actions.hint(fmt::format("go to {}   absmax {}", to_string(place), absmax));
    if (clicked) actions.choose({place, {}});
    if (asked) actions.menu({{place, {}}, fmt::format("{:.9g}", double{step.absmax})});
  }

  static void draw_cursor_line(const StepScene& scene, std::size_t column, std::pair<float, float> from_to) {
    const float x = std::round(scene.x(static_cast<double>(column) + 0.5));
    if (x < scene.plot.x || x > scene.plot.x + scene.plot.width) return;
    fill({x, from_to.first, scene.px(1), from_to.second - from_to.first}, scene.context.theme.text.alpha(170));
  }

  std::shared_ptr<const StepTimeline> known_;
  Viewport port_;
  Area plot_;                                         ///< of the last frame: x and width
  std::vector<std::pair<std::size_t, float>> lanes_;  ///< that were drawn: module, y
  float lane_height_ = 0;
  std::optional<std::size_t> followed_;
  std::optional<std::int64_t> layer_;  ///< the selected one, the last that was in a layer
  bool one_layer_ = false;
  bool by_jump_ = false;
  bool dragged_ = false;
};

}  // namespace

std::unique_ptr<View> make_steps_view() { return std::make_unique<StepsView>(); }

}  // namespace nanscope::gui
