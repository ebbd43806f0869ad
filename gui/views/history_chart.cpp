#include "gui/views/history_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gui/cell_map.h"
#include "gui/cell_paint.h"

namespace nanscope::gui {
namespace {

constexpr float kBand = 14;    ///< with the numbers of the requests
constexpr float kMarkLow = 6;  ///< height of a mark below the curve
constexpr float kLeastMarkWide = 3;
constexpr float kDot = 2.2F;
constexpr float kDotsFrom = 7;  ///< pixels between points from which on each has a dot

/// What a curve covers.
struct Reach {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void cover(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool any() const { return low <= high; }
};

std::string short_value(double value) { return fmt::format("{:.5g}", value); }

}  // namespace

HistoryChart::HistoryChart(const ViewContext& context, const History& history, const PinHistory& pin, Area area)
    : context_(context), history_(history), pin_(pin), area_(area) {}

float HistoryChart::x(std::size_t step) const {
  return area_.x + area_.width * (static_cast<float>(step) + 0.5F) /
                       static_cast<float>(std::max<std::size_t>(history_.steps.size(), 1));
}

/// Every other request on another ground, with its number where there is room.
void HistoryChart::bands() const {
  const float half = area_.width / static_cast<float>(std::max<std::size_t>(history_.steps.size(), 1)) / 2;
  bool dark = false;
  for (std::size_t i = 0; i < history_.steps.size();) {
    std::size_t end = i + 1;
    while (end < history_.steps.size() && history_.steps[end].request == history_.steps[i].request) ++end;
    const float left = x(i) - half;
    const Area band{left, area_.y, x(end - 1) + half - left, area_.height};
    if (dark) fill(band, context_.theme.raised.alpha(90));
    dark = !dark;
    const std::string number = std::to_string(history_.steps[i].request);
    if (text_size(context_.fonts.mono_small, number).x + 4 * context_.scale <= band.width) {
      text(context_.fonts.mono_small, {left + 2 * context_.scale, area_.y}, context_.theme.muted, number);
    }
    i = end;
  }
}

template <class Value>
void HistoryChart::curve(const Value& value, bool logarithmic, Color color, float top, float bottom) const {
  Reach reach;
  const auto shown = [&](const HistoryPoint& point) -> std::optional<double> {
    const std::optional<double> one = value(point);
    if (!one || !std::isfinite(*one) || (logarithmic && !(*one > 0))) return std::nullopt;
    return logarithmic ? std::log10(*one) : *one;
  };
  for (const HistoryPoint& point : pin_.points) {
    if (const auto one = shown(point)) reach.cover(*one);
  }
  if (!reach.any()) return;
  const double room = std::max((reach.high - reach.low) * 0.08, 1e-12 + std::abs(reach.high) * 1e-6);
  const double low = reach.low - room;
  const double high = reach.high + room;
  const auto y = [&](double one) { return bottom - (bottom - top) * static_cast<float>((one - low) / (high - low)); };
  const bool dots =
      area_.width / static_cast<float>(std::max<std::size_t>(history_.steps.size(), 1)) >= kDotsFrom * context_.scale;
  std::optional<ImVec2> before;
  for (const HistoryPoint& point : pin_.points) {
    const auto one = shown(point);
    if (!one) {
      before.reset();
      continue;
    }
    const ImVec2 here(x(point.step), y(*one));
    // Of thousands of steps many share a pixel: what moves within it is drawn, what does not is not.
    const bool same = before && std::abs(before->x - here.x) < 0.5F && std::abs(before->y - here.y) < 0.5F;
    if (same) continue;
    if (before) line(*before, here, color, 1.5F * context_.scale);
    if (dots || !before) {
      ImGui::GetWindowDrawList()->AddCircleFilled(here, kDot * context_.scale, color.packed(), 12);
    }
    before = here;
  }
  const auto said = [&](double one) { return short_value(logarithmic ? std::pow(10.0, one) : one); };
  if (!logarithmic && reach.low < 0 && reach.high > 0) {
    fill({area_.x, y(0), area_.width, 1}, context_.theme.line);
  }
  const float height = 12 * context_.scale;
  const float right = area_.right() + 6 * context_.scale;
  label(context_.fonts.mono_small, {right, y(reach.high) - height / 2, 90 * context_.scale, height}, color,
        said(reach.high));
  if (std::abs(y(reach.high) - y(reach.low)) > height + 2) {
    label(context_.fonts.mono_small, {right, y(reach.low) - height / 2, 90 * context_.scale, height}, color,
          said(reach.low));
  }
}

/// Above the lower edge: NaN, Inf or clipped in that step.
void HistoryChart::marks() const {
  const float wide = std::max(kLeastMarkWide * context_.scale,
                              area_.width / static_cast<float>(std::max<std::size_t>(history_.steps.size(), 1)) - 1);
  const float high = kMarkLow * context_.scale;
  for (const HistoryPoint& point : pin_.points) {
    const bool nan = point.bad > 0 || (point.value && !std::isfinite(*point.value));
    if (!nan && point.clipped == 0) continue;
    const Area mark{x(point.step) - wide / 2, area_.bottom() - high, wide, high};
    fill_cell(context_.theme, context_.fonts, mark, nan ? kNan : kClipped);
  }
}

void HistoryChart::draw() const {
  fill(area_, context_.theme.background.alpha(120), 3 * context_.scale);
  bands();
  const float top = area_.y + kBand * context_.scale;
  const float bottom = area_.bottom() - (kMarkLow + 4) * context_.scale;
  const Color healthy = context_.theme.cell(kHealthyLast);
  const bool scales = std::any_of(pin_.points.begin(), pin_.points.end(), [](const auto& p) { return p.scale; });
  const float middle = scales ? top + (bottom - top) * 0.6F : bottom;
  if (pin_.is_element()) {
    curve([](const HistoryPoint& point) { return point.value; }, false, healthy, top, middle);
  } else {
    curve([](const HistoryPoint& point) { return std::optional(point.absmax); }, true, healthy, top, middle);
  }
  if (scales) {
    curve([](const HistoryPoint& point) { return point.scale; }, true, context_.theme.accent,
          middle + 8 * context_.scale, bottom);
  }
  marks();
  const Place& selected = context_.selection.place;
  for (std::size_t i = 0; i < history_.steps.size(); ++i) {
    const HistoryStep& step = history_.steps[i];
    if (selected.request == step.request && selected.step == step.index) {
      fill({std::floor(x(i)), area_.y, 1, area_.height}, context_.theme.text.alpha(150));
    }
  }
}

const HistoryPoint* HistoryChart::pointed() const {
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  if (!ImGui::IsWindowHovered() || !area_.holds(mouse) || pin_.points.empty()) return nullptr;
  return &*std::min_element(pin_.points.begin(), pin_.points.end(), [&](const auto& a, const auto& b) {
    return std::abs(x(a.step) - mouse.x) < std::abs(x(b.step) - mouse.x);
  });
}

const HistoryPoint* HistoryChart::at(std::int64_t request, std::int64_t index) const {
  const auto found = std::find_if(pin_.points.begin(), pin_.points.end(), [&](const HistoryPoint& point) {
    const HistoryStep& step = history_.steps[point.step];
    return step.request == request && step.index == index;
  });
  return found == pin_.points.end() ? nullptr : &*found;
}

std::string point_words(const PinHistory& pin, const HistoryPoint& point) {
  const bool nothing = !pin.is_element() && point.bad > 0 && !(point.absmax > 0);
  std::string words = nothing                    ? std::string("nothing finite")
                      : !pin.is_element()        ? fmt::format("largest |x| {:.6g}", point.absmax)
                      : !point.value             ? std::string("no value")
                      : std::isnan(*point.value) ? std::string("NaN")
                                                 : fmt::format("{:.7g}", *point.value);
  if (point.scale) words += fmt::format(", scale {:.5g}", *point.scale);
  if (point.bad > 0) words += fmt::format(", {} bad in the tensor", point.bad);
  if (point.clipped > 0) words += fmt::format(", {} clipped", point.clipped);
  return words;
}

}  // namespace nanscope::gui
