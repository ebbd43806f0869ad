#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/export/tables.h"
#include "gui/log_chart.h"
#include "gui/marks.h"
#include "gui/place_link.h"
#include "gui/prepare/training_curves.h"
#include "gui/views/registry.h"

/// How a training run went: four curves over its steps, one below the other.
namespace nanscope::gui {
namespace {

constexpr float kTrainingAxis = 58;
constexpr float kTrainingTitle = 20;
constexpr float kTrainingFoot = 8;
constexpr float kTrainingHead = 26;
constexpr float kTrainingSteps = 18;  ///< numbers of steps below the curves
constexpr float kTrainingCurve = 1.8F;
constexpr float kTrainingDotsFrom = 7;  ///< pixels between steps from which on each has a dot
constexpr float kTrainingBad = 4;

/// One curve.
class TrainingChart {
 public:
  TrainingChart(const ViewContext& context, const TrainingCurves& curves, std::size_t curve, Area area)
      : context_(context),
        curves_(curves),
        curve_(curve),
        area_(area),
        plot_{area.x + px(kTrainingAxis), area.y + px(kTrainingTitle), area.width - px(kTrainingAxis + kMargin),
              area.height - px(kTrainingTitle + kTrainingFoot)},
        axis_(axis_of(curves.ranges[curve])) {}

  void draw() const {
    title();
    grid();
    ImGui::GetWindowDrawList()->PushClipRect(plot_.min(), plot_.max(), true);
    line_of_values();
    marks();
    ImGui::GetWindowDrawList()->PopClipRect();
  }

  /// The step that is pointed at.
  std::optional<std::size_t> pointed() const {
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    if (!ImGui::IsWindowHovered() || !plot_.holds(mouse) || curves_.points.empty()) return std::nullopt;
    const float at = (mouse.x - plot_.x) / plot_.width * static_cast<float>(curves_.points.size());
    return std::min(static_cast<std::size_t>(std::max(at, 0.0F)), curves_.points.size() - 1);
  }

  const Area& plot() const { return plot_; }
  float x(std::size_t step) const {
    return plot_.x + plot_.width * (static_cast<float>(step) + 0.5F) / static_cast<float>(curves_.points.size());
  }

 private:
  float px(float pixels) const { return pixels * context_.scale; }
  float y(double value) const { return plot_.bottom() - plot_.height * static_cast<float>(axis_.at(value)); }
  double value(std::size_t step) const { return curves_.points[step].values[curve_]; }
  bool bad(std::size_t step) const { return curves_.points[step].told[curve_] && !std::isfinite(value(step)); }

  void title() const {
    std::size_t wrong = 0;
    for (std::size_t step = 0; step < curves_.points.size(); ++step) wrong += bad(step) ? 1 : 0;
    // Round values of a narrow range are few.
    const LogRange& range = curves_.ranges[curve_];
    std::string words(name_of(static_cast<TrainingCurve>(curve_)));
    if (range.highest > 0) {
      words += fmt::format(", {} to {}", short_number(range.lowest), short_number(range.highest));
    }
    const std::string count = wrong > 0 ? fmt::format("{} not finite", wrong) : std::string();
    const float taken = wrong > 0 ? chip_width(context_, count) + px(8) : 0;
    label(context_.fonts.small,
          {area_.x + px(kMargin), area_.y, area_.width - px(2 * kMargin) - taken, px(kTrainingTitle)},
          context_.theme.text, words);
    if (wrong > 0)
      chip_left_of(context_, area_.right() - px(kMargin), area_.y + px(1), px(17), count, context_.theme.cell(kNan),
                   ink_on(context_.theme, kNan));
  }

  void grid() const {
    draw_ground(context_, plot_, axis_, area_.x);
    const Place& selected = context_.selection.place;
    for (std::size_t step = 0; step < curves_.points.size(); ++step) {
      const Place& place = curves_.points[step].places[curve_];
      if (!selected.request || place.op.empty() || selected.request != place.request) continue;
      fill({std::floor(x(step)), plot_.y, 1, plot_.height}, context_.theme.text.alpha(120));
    }
  }

  void line_of_values() const {
    const bool dots = plot_.width / static_cast<float>(curves_.points.size()) >= px(kTrainingDotsFrom);
    CurveLine curve(context_.theme.accent, px(kTrainingCurve), px(kTrainingCurve + 0.7F), dots);
    for (std::size_t step = 0; step < curves_.points.size(); ++step) {
      if (value(step) > 0 && std::isfinite(value(step))) {
        curve.to({x(step), y(value(step))});
      } else {
        curve.interrupt();
      }
    }
  }

  /// What is not finite stands at the top; below it, that the step changed nothing.
  void marks() const {
    for (std::size_t step = 0; step < curves_.points.size(); ++step) {
      if (curves_.points[step].skipped && curve_ == static_cast<std::size_t>(TrainingCurve::gradient_norm)) {
        fill({std::floor(x(step)) - px(1), plot_.bottom() - px(7), px(2), px(7)}, context_.theme.muted);
      }
      if (!bad(step)) continue;
      const Cell cell = std::isnan(value(step)) ? kNan : kInf;
      const ImVec2 at(x(step), plot_.y + px(kTrainingBad + 2));
      const float half = px(kTrainingBad);
      draw_sign(context_, {at.x - half, at.y - half, 2 * half, 2 * half}, cell);
    }
  }

  const ViewContext& context_;
  const TrainingCurves& curves_;
  std::size_t curve_;
  Area area_;
  Area plot_;
  LogAxis axis_;
};

class TrainingView final : public View {
 public:
  std::string_view name() const override { return "training"; }
  std::string_view title() const override { return "Training"; }
  std::string_view caption() const override {
    return "loss, gradient norm, learning rate and loss scale of each training step";
  }
  std::optional<TableMaker> table(const PreparedPtr& prepared) const override {
    return table_maker<TrainingCurves>(prepared);
  }

  std::optional<ViewRequest> prepare(const ViewContext&, Area) override {
    return ViewRequest{"training curves", [](RunFacts& facts) -> Result<PreparedPtr> {
                         auto made = make_training_curves(facts.rows(), facts.stop());
                         if (!made) return tl::unexpected(std::move(made.error()));
                         return std::make_shared<const TrainingCurves>(std::move(*made));
                       }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    const auto* curves = dynamic_cast<const TrainingCurves*>(prepared.get());
    if (curves == nullptr) return;
    if (curves->points.empty()) {
      notice(context, area, "Nothing was trained", "This run answers requests; it has no training steps.");
      return;
    }
    const float head = kTrainingHead * context.scale;
    const float foot = kTrainingSteps * context.scale;
    const float margin = kMargin * context.scale;
    label(context.fonts.text, {area.x + margin, area.y, area.width - 2 * margin, head}, context.theme.text,
          curves->headline);
    const float height = (area.height - head - foot) / static_cast<float>(kTrainingCurves);
    for (std::size_t curve = 0; curve < kTrainingCurves; ++curve) {
      const float top = area.y + head + height * static_cast<float>(curve);
      const TrainingChart chart(context, *curves, curve, {area.x, top, area.width, height});
      chart.draw();
      if (curve + 1 == kTrainingCurves) steps(context, *curves, chart, {area.x, top + height, area.width, foot});
      if (const auto step = chart.pointed()) point_at(context, actions, *curves, curve, *step);
    }
  }

 private:
  static void steps(const ViewContext& context, const TrainingCurves& curves, const TrainingChart& chart, Area area) {
    const std::size_t last = curves.points.size() - 1;
    const float width = 60 * context.scale;
    for (const std::size_t step : {std::size_t{0}, last / 2, last}) {
      if ((step == 0 && last > 0) || step == last || last >= 8) {
        const float at = std::clamp(chart.x(step) - width / 2, area.x, area.right() - width);
        label(context.fonts.mono_small, {at, area.y, width, area.height}, context.theme.muted, fmt::to_string(step),
              0.5F);
      }
    }
  }

  static void point_at(const ViewContext& context, const ViewActions& actions, const TrainingCurves& curves,
                       std::size_t curve, std::size_t step) {
    const TrainingPoint& point = curves.points[step];
    std::vector<std::string> lines;
    for (std::size_t one = 0; one < kTrainingCurves; ++one) {
      if (!point.told[one]) continue;
      lines.push_back(fmt::format("{} {}", name_of(static_cast<TrainingCurve>(one)), short_number(point.values[one])));
    }
    if (point.skipped) lines.emplace_back("skipped: gradients were not finite, no weight was changed");
    tooltip(context, fmt::format("training step {}", step), lines);
    if (point.places[curve].op.empty()) return;
    ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
    actions.hint("go to " + to_string(point.places[curve]));
    if (!ImGui::IsMouseClicked(ImGuiMouseButton_Left)) return;
    Selection selection = context.selection;
    selection.place = point.places[curve];
    actions.choose(selection);
  }
};

}  // namespace

std::unique_ptr<View> make_training_view() { return std::make_unique<TrainingView>(); }

}  // namespace nanscope::gui
