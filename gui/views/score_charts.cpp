#include "gui/views/score_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/log_chart.h"
#include "gui/marks.h"
#include "gui/place_link.h"

namespace nanscope::gui {
namespace {

constexpr float kScoreAxis = 50;
constexpr float kScoreTitle = 20;
constexpr float kLeastScoreChart = 96;
constexpr float kMostScoreChart = 260;
constexpr float kScoreFoot = 6;
constexpr float kCurve = 1.5F;
constexpr float kCurveBelow = 0.16F;
constexpr float kOverflowRadius = 4;
constexpr float kPointsFrom = 7;  ///< pixels between steps from which on each has a dot
constexpr float kLegendRow = 18;
constexpr float kLegendGap = 20;
constexpr float kLegendSwatch = 22;

/// One layer, one of its two curves.
class ScoreChart {
 public:
  ScoreChart(const ViewContext& context, const ScoreCurves& curves, const ScoreLayerCurves& layer, bool scaled,
             Area area)
      : context_(context),
        curves_(curves),
        layer_(layer),
        scaled_(scaled),
        area_(area),
        plot_{area.x + px(kScoreAxis), area.y + px(kScoreTitle), area.width - px(kScoreAxis + 12),
              area.height - px(kScoreTitle + kScoreFoot)},
        axis_(axis_of(scaled ? curves.scaled : curves.scales)) {}

  void draw() const {
    title();
    grid();
    ImGui::GetWindowDrawList()->PushClipRect(plot_.min(), plot_.max(), true);
    // Curves of like policies lie on each other: the first is drawn last, and thinner.
    for (std::size_t trial = curves_.trials.size(); trial-- > 0;) curve(trial);
    for (std::size_t trial = 0; scaled_ && trial < curves_.trials.size(); ++trial) marks(trial);
    ImGui::GetWindowDrawList()->PopClipRect();
  }

  /// Of the step that is pointed at.
  std::optional<std::size_t> pointed() const {
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    if (!ImGui::IsWindowHovered() || !plot_.holds(mouse) || layer_.points.empty()) return std::nullopt;
    return *std::min_element(layer_.points.begin(), layer_.points.end(), [&](std::size_t a, std::size_t b) {
      return std::abs(x(a) - mouse.x) < std::abs(x(b) - mouse.x);
    });
  }

 private:
  float px(float pixels) const { return pixels * context_.scale; }
  float at_step(std::size_t step) const {
    return plot_.x + plot_.width * (static_cast<float>(step) + 0.5F) / static_cast<float>(curves_.steps.size());
  }
  float x(std::size_t point) const { return at_step(curves_.step_of[point]); }
  float y(double value) const { return plot_.bottom() - plot_.height * static_cast<float>(axis_.at(value)); }
  double value(std::size_t trial, std::size_t point) const {
    const scenarios::ScoreTrialPoint& one = curves_.trials[trial].points[point];
    return scaled_ ? one.scaled : one.scale;
  }

  void title() const {
    const std::string words = scaled_ ? fmt::format("layer {}: largest score / scale", layer_.layer)
                                      : fmt::format("layer {}: scale", layer_.layer);
    const auto beyond =
        std::count_if(layer_.overflows.begin(), layer_.overflows.end(), [](auto one) { return one > 0; });
    const bool bad = scaled_ && beyond > 0;
    const std::string count =
        bad ? fmt::format("{} {} beyond {:g}", beyond, beyond == 1 ? "policy" : "policies", curves_.largest)
            : std::string();
    const float taken = bad ? chip_width(context_, count) + px(8) : 0;
    label(context_.fonts.small, {area_.x + px(8), area_.y, area_.width - px(20) - taken, px(kScoreTitle)},
          context_.theme.text, words);
    if (bad)
      chip_left_of(context_, area_.right() - px(12), area_.y + px(1), px(17), count, context_.theme.cell(kClipped),
                   ink_on(context_.theme, kClipped));
  }

  void grid() const {
    const Theme& theme = context_.theme;
    draw_ground(context_, plot_, axis_, area_.x);
    for (const LedgerBand& band : curves_.bands) {
      if (band.first == 0) continue;
      fill({std::floor((at_step(band.first - 1) + at_step(band.first)) / 2), plot_.y, px(2), plot_.height},
           theme.panel);
    }
    const Place& selected = context_.selection.place;
    for (std::size_t i = 0; i < curves_.steps.size(); ++i) {
      if (!selected.request || selected.request != curves_.steps[i].request || selected.step != curves_.steps[i].index)
        continue;
      fill({std::floor(at_step(i)), plot_.y, 1, plot_.height}, theme.text.alpha(120));
    }
    if (!scaled_) return;
    const float limit = std::floor(y(curves_.largest));
    fill({plot_.x, plot_.y, plot_.width, std::max(0.0F, limit - plot_.y)}, theme.cell(kClipped).alpha(34));
    fill({plot_.x, limit, plot_.width, px(1.5F)}, theme.cell(kClipped));
    label(context_.fonts.mono_small, {plot_.right() - px(64), limit - px(15), px(60), px(14)}, theme.ink(kClipped),
          fmt::format("{:g}", curves_.largest), 1);
  }

  void curve(std::size_t trial) const {
    const float width = px(kCurve + kCurveBelow * static_cast<float>(trial * trial));
    const bool dots = plot_.width / static_cast<float>(curves_.steps.size()) >= px(kPointsFrom);
    CurveLine drawn(policy_color(context_.theme, trial), width, width / 2 + px(1), dots);
    for (const std::size_t point : layer_.points) {
      const double one = value(trial, point);
      if (one > 0 && std::isfinite(one)) {
        drawn.to({x(point), y(one)});
      } else {
        drawn.interrupt();
      }
    }
  }

  /// On top of all curves.
  void marks(std::size_t trial) const {
    for (const std::size_t point : layer_.points) {
      const double one = value(trial, point);
      if (!scenarios::overflows(one, curves_.largest)) continue;
      const ImVec2 here(x(point), y(one));
      ImGui::GetWindowDrawList()->AddCircleFilled(here, px(kOverflowRadius), context_.theme.cell(kClipped).packed(),
                                                  16);
      ImGui::GetWindowDrawList()->AddCircle(here, px(kOverflowRadius), policy_color(context_.theme, trial).packed(), 16,
                                            px(1.5F));
    }
  }

  const ViewContext& context_;
  const ScoreCurves& curves_;
  const ScoreLayerCurves& layer_;
  bool scaled_;
  Area area_;
  Area plot_;
  LogAxis axis_;
};

Place place_of(const ScoreCurves& curves, std::size_t point) {
  const LedgerStep& step = curves.steps[curves.step_of[point]];
  Place place;
  place.request = step.request;
  place.step = step.index;
  place.layer = curves.points[point].layer;
  place.op = "scores";
  place.role = "out";
  return place;
}

void point_at(const ViewContext& context, const ViewActions& actions, const ScoreCurves& curves, std::size_t point) {
  ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
  const Place place = place_of(curves, point);
  std::vector<std::string> lines{fmt::format("largest score {}", short_number(curves.points[point].absmax))};
  for (const scenarios::ScoreTrial& trial : curves.trials) {
    const scenarios::ScoreTrialPoint& one = trial.points[point];
    lines.push_back(fmt::format("{}: scale {}, largest / scale {}{}", trial.policy, short_number(one.scale),
                                short_number(one.scaled),
                                scenarios::overflows(one.scaled, curves.largest) ? ", beyond the format" : ""));
  }
  tooltip(context, to_string(place), lines);
  if (!place.request) return;
  actions.hint("go to " + to_string(place));
  if (!ImGui::IsMouseClicked(ImGuiMouseButton_Left)) return;
  Selection selection = context.selection;
  selection.place = place;
  actions.choose(selection);
}

}  // namespace

Color policy_color(const Theme& theme, std::size_t trial) { return theme.series[trial % theme.series.size()]; }

float draw_score_legend(const ViewContext& context, const ScoreCurves& curves, Area area) {
  const auto px = [&](float pixels) { return pixels * context.scale; };
  float x = area.x;
  float y = area.y;
  for (std::size_t i = 0; i < curves.trials.size(); ++i) {
    const scenarios::ScoreTrial& trial = curves.trials[i];
    const std::string words = trial.overflows == 0 ? trial.policy + ": none beyond"
                                                   : fmt::format("{}: {} beyond", trial.policy, trial.overflows);
    const float width = text_size(context.fonts.small, words).x + 1;
    if (x > area.x && x + px(kLegendSwatch) + width > area.right()) {
      x = area.x;
      y += px(kLegendRow);
    }
    const float middle = y + px(kLegendRow) / 2;
    line({x, middle}, {x + px(16), middle}, policy_color(context.theme, i), px(2.5F));
    label(context.fonts.small, {x + px(kLegendSwatch), y, width, px(kLegendRow)},
          trial.overflows > 0 ? context.theme.text : context.theme.muted, words);
    x += px(kLegendSwatch) + width + px(kLegendGap);
  }
  return y + px(kLegendRow) - area.y;
}

void draw_score_charts(const ViewContext& context, const ViewActions& actions, const ScoreCurves& curves, Area area) {
  const float room = area.height;
  const float height = std::clamp(room / static_cast<float>(std::max<std::size_t>(curves.layers.size(), 1)),
                                  kLeastScoreChart * context.scale, kMostScoreChart * context.scale);
  ImGui::SetCursorScreenPos(area.min());
  ImGui::BeginChild("score charts", {area.width, room}, false, ImGuiWindowFlags_NoBackground);
  const ImVec2 start = ImGui::GetCursorScreenPos();
  for (std::size_t i = 0; i < curves.layers.size(); ++i) {
    const float top = start.y + height * static_cast<float>(i);
    for (const bool scaled : {true, false}) {
      const float width = area.width * (scaled ? 0.6F : 0.4F);
      const Area cell{start.x + (scaled ? 0 : area.width * 0.6F), top, width, height};
      if (!ImGui::IsRectVisible(cell.min(), cell.max())) continue;
      const ScoreChart chart(context, curves, curves.layers[i], scaled, cell);
      chart.draw();
      if (const auto point = chart.pointed()) point_at(context, actions, curves, *point);
    }
  }
  ImGui::SetCursorScreenPos({start.x, start.y + height * static_cast<float>(curves.layers.size()) - 1});
  ImGui::Dummy({1, 1});
  ImGui::EndChild();
}

}  // namespace nanscope::gui
