#include "scenarios/report/scores_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "core/counted.h"

namespace nanscope::report {
namespace {

constexpr double kWidth = 1000;
constexpr double kHeight = 190;
constexpr double kLeft = 56;
constexpr double kTop = 22;
constexpr double kBottom = 8;
constexpr double kSplit = 620;  ///< left of it scaled scores, right of it scales
constexpr double kGap = 70;
constexpr std::size_t kMostLayers = 16;

/// In the order of the trials.
constexpr std::array kColors = {"var(--dim)", "#b59b00", "#857312", "#b0579a", "var(--link)", "var(--good)"};

/// Step by step in a layer.
using Points = std::vector<std::size_t>;

/// One of the two curves of a layer, in its part of the picture.
class CurvePlot {
 public:
  CurvePlot(const ScoreReplayWords& words, const std::map<StepId, std::size_t>& steps, bool scaled)
      : words_(words),
        steps_(steps),
        scaled_(scaled),
        left_(scaled ? kLeft : kSplit + kGap),
        right_(scaled ? kSplit : kWidth) {
    double low = std::numeric_limits<double>::infinity();
    double high = 0;
    const auto cover = [&](double value) {
      if (!(value > 0) || !std::isfinite(value)) return;
      low = std::min(low, value);
      high = std::max(high, value);
    };
    for (const scenarios::ScoreTrial& trial : words.trials) {
      for (std::size_t i = 0; i < trial.points.size(); ++i) cover(value(trial, i));
    }
    if (scaled) cover(words.settings.largest);
    low_ = high > 0 ? std::floor(std::log10(low) * 2) / 2 : 0;
    high_ = high > 0 ? std::max(std::ceil(std::log10(high) * 2) / 2, low_ + 0.5) : 1;
  }

  std::string svg(std::int64_t layer, const Points& points) const {
    std::string out = fmt::format("<text x=\"{:.0f}\" y=\"14\" fill=\"var(--ink)\">layer {}: {}</text>\n", left_, layer,
                                  scaled_ ? "largest score / scale" : "scale");
    out += grid();
    // Curves of like policies lie on each other: the first is drawn last, and thinner.
    for (std::size_t i = words_.trials.size(); i-- > 0;) out += curve(i, points);
    for (std::size_t i = 0; scaled_ && i < words_.trials.size(); ++i) out += marks(i, points);
    return out;
  }

 private:
  double value(const scenarios::ScoreTrial& trial, std::size_t point) const {
    return scaled_ ? trial.points[point].scaled : trial.points[point].scale;
  }
  double x(std::size_t point) const {
    const auto step = static_cast<double>(steps_.at(words_.points[point].step));
    return left_ + (right_ - left_) * (step + 0.5) / static_cast<double>(steps_.size());
  }
  double y(double value) const {
    return kHeight - kBottom - (kHeight - kBottom - kTop) * (std::log10(value) - low_) / (high_ - low_);
  }

  std::string grid() const {
    std::string out;
    for (double power = std::ceil(low_); power <= high_; ++power) {
      const double at = y(std::pow(10, power));
      out += fmt::format(
          "<line x1=\"{:.0f}\" y1=\"{:.1f}\" x2=\"{:.0f}\" y2=\"{:.1f}\" stroke=\"var(--line)\"/><text x=\"{:.0f}\" "
          "y=\"{:.1f}\" fill=\"var(--dim)\" text-anchor=\"end\">{:g}</text>\n",
          left_, at, right_, at, left_ - 6, at + 4, std::pow(10, power));
    }
    if (!scaled_) return out;
    const double limit = y(words_.settings.largest);
    return out + fmt::format(
                     "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.1f}\" fill=\"var(--bad)\" "
                     "opacity=\"0.1\"/><line x1=\"{:.0f}\" y1=\"{:.1f}\" x2=\"{:.0f}\" y2=\"{:.1f}\" "
                     "stroke=\"var(--bad)\"/><text x=\"{:.0f}\" y=\"{:.1f}\" fill=\"var(--bad)\">{:g}</text>\n",
                     left_, kTop, right_ - left_, std::max(0.0, limit - kTop), left_, limit, right_, limit, left_ + 4,
                     limit - 4, words_.settings.largest);
  }

  std::string curve(std::size_t trial, const Points& points) const {
    if (!words_.trials[trial].problem.empty()) return {};
    std::string path;
    bool broken = true;
    double before_x = 0;
    double before_y = 0;
    for (const std::size_t point : points) {
      const double one = value(words_.trials[trial], point);
      if (!(one > 0) || !std::isfinite(one)) {
        broken = true;
        continue;
      }
      const double here_x = x(point);
      const double here_y = y(one);
      if (!broken && std::abs(here_x - before_x) < 0.5 && std::abs(here_y - before_y) < 0.5) continue;
      path += fmt::format("{}{:.1f} {:.1f}", broken ? "M" : "L", here_x, here_y);
      broken = false;
      before_x = here_x;
      before_y = here_y;
    }
    return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:.1f}\"/>\n", path, color(trial),
                       1.4 + 0.14 * static_cast<double>(trial * trial));
  }

  std::string marks(std::size_t trial, const Points& points) const {
    const scenarios::ScoreTrial& one = words_.trials[trial];
    std::string out;
    for (const std::size_t point : points) {
      if (!one.problem.empty() || !scenarios::overflows(one.points[point].scaled, words_.settings.largest)) continue;
      out += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"var(--bad)\" stroke=\"{}\" "
          "stroke-width=\"1.5\"><title>{}, "
          "step {}: {:.4g} over a scale of {:.4g} is {:.4g}</title></circle>\n",
          x(point), y(one.points[point].scaled), color(trial), one.policy, words_.points[point].step,
          words_.points[point].absmax, one.points[point].scale, one.points[point].scaled);
    }
    return out;
  }

 public:
  static const char* color(std::size_t trial) { return kColors.at(trial % kColors.size()); }

 private:
  const ScoreReplayWords& words_;
  const std::map<StepId, std::size_t>& steps_;
  bool scaled_;
  double left_;
  double right_;
  double low_ = 0;
  double high_ = 1;
};

std::string table_of(const ScoreReplayWords& words) {
  std::string html =
      "<div class=\"scroll\"><table><tr><th>policy</th><th class=\"right\">overflows</th><th "
      "class=\"right\">largest</th>"
      "<th class=\"right\">used</th></tr>\n";
  for (std::size_t i = 0; i < words.trials.size(); ++i) {
    const scenarios::ScoreTrial& trial = words.trials[i];
    html += fmt::format("<tr><td><span style=\"color:{}\">&#9632;</span> {}</td>", CurvePlot::color(i), trial.policy);
    html += trial.problem.empty()
                ? fmt::format(
                      "<td class=\"right{}\">{}</td><td class=\"right\">{:.4g}</td><td class=\"right\">{:.1f} "
                      "%</td></tr>\n",
                      trial.overflows > 0 ? " bad" : "", trial.overflows, trial.largest, 100 * trial.utilization)
                : fmt::format("<td colspan=\"3\">{}</td></tr>\n", xml_text(trial.problem));
  }
  return html + "</table></div>\n";
}

/// All layers, or those with most overflows.
std::vector<std::int64_t> layers_shown(const ScoreReplayWords& words, const std::map<std::int64_t, Points>& layers) {
  std::map<std::int64_t, std::int64_t> overflows;
  for (const scenarios::ScoreTrial& trial : words.trials) {
    for (const auto& one : scenarios::by_layer(trial, words.points, words.settings.largest)) {
      overflows[one.layer] += one.overflows;
    }
  }
  std::vector<std::int64_t> shown;
  shown.reserve(layers.size());
  for (const auto& [layer, points] : layers) shown.push_back(layer);
  std::stable_sort(shown.begin(), shown.end(),
                   [&](std::int64_t a, std::int64_t b) { return overflows[a] > overflows[b]; });
  shown.resize(std::min(shown.size(), kMostLayers));
  std::sort(shown.begin(), shown.end());
  return shown;
}

}  // namespace

std::string scores_section(const ScoreReplayWords& words) {
  std::map<StepId, std::size_t> steps;
  std::map<std::int64_t, Points> layers;
  for (std::size_t i = 0; i < words.points.size(); ++i) {
    steps.try_emplace(words.points[i].step, steps.size());
    layers[words.points[i].layer].push_back(i);
  }
  std::string html = "<h2>Scales of attention's scores, by policy</h2>\n" + table_of(words) + "<figure>";
  const CurvePlot scaled(words, steps, true);
  const CurvePlot scales(words, steps, false);
  const std::vector<std::int64_t> shown = layers_shown(words, layers);
  for (const std::int64_t layer : shown) {
    html += fmt::format(
        "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\" aria-label=\"scales of layer {2} over the steps\" "
        "style=\"width:100%;height:auto;font-size:12px\">\n",
        kWidth, kHeight, layer);
    html += scaled.svg(layer, layers.at(layer)) + scales.svg(layer, layers.at(layer)) + "</svg>\n";
  }
  html += fmt::format(
      "<figcaption>Over {}: a score beyond {:g} times its scale overflows; where one does there is a "
      "dot.{}</figcaption></figure>\n",
      counted(steps.size(), "step"), words.settings.largest,
      shown.size() < layers.size() ? fmt::format(" The {} of {} layers with most of them.", shown.size(), layers.size())
                                   : std::string());
  return html;
}

}  // namespace nanscope::report
