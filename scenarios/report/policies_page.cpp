#include "scenarios/report/policies_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/text/safe_text.h"
#include "scenarios/report/policies_report.h"
#include "scenarios/report/text.h"

namespace nanscope::report {
namespace {

constexpr double kPlotWidth = 1000;
constexpr double kPlotHeight = 460;
constexpr double kPlotLeft = 64;
constexpr double kPlotRight = 220;  ///< for names beside the points
constexpr double kPlotTop = 16;
constexpr double kPlotBottom = 44;
constexpr double kNameHeight = 15;

std::string escaped(std::string_view text) { return xml_text(printable(text, {})); }

/// Logarithms from one end of an axis to the other.
struct Scale {
  double least = 0;
  double most = 1;
  double from = 0;
  double to = 1;

  double at(double value) const {
    return from + (to - from) * (std::log10(value) - least) / std::max(1e-9, most - least);
  }
};

struct PlotPoint {
  const PolicyResult* policy = nullptr;
  double x = 0;
  double y = 0;
};

bool has_point(const PolicyResult& one) {
  return one.problem.empty() && !one.layers.empty() && std::isfinite(one.error) && one.bytes > 0;
}

class Plot {
 public:
  explicit Plot(const PolicyReport& made) {
    double least_bytes = INFINITY, most_bytes = 0, least_error = INFINITY, most_error = 0;
    for (const PolicyResult& one : made.policies) {
      if (!has_point(one)) continue;
      least_bytes = std::min(least_bytes, one.bytes);
      most_bytes = std::max(most_bytes, one.bytes);
      if (one.error > 0) least_error = std::min(least_error, one.error);
      most_error = std::max(most_error, one.error);
    }
    if (!(most_bytes > 0)) return;
    if (!(most_error > 0)) most_error = least_error = 1;
    bytes_ = {std::log10(least_bytes) - 0.03, std::log10(most_bytes) + 0.03, kPlotLeft, kPlotWidth - kPlotRight};
    // One decade below the least is where an error of 0 stands.
    none_ = std::floor(std::log10(least_error)) - 1;
    errors_ = {none_, std::ceil(std::log10(most_error) + 1e-9), kPlotHeight - kPlotBottom, kPlotTop};
    for (const PolicyResult& one : made.policies) {
      if (has_point(one))
        points_.push_back({&one, bytes_.at(one.bytes), errors_.at(one.error > 0 ? one.error : std::pow(10, none_))});
    }
  }

  std::string svg() const {
    if (points_.empty()) return {};
    std::string out = fmt::format(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"bytes a token against error of the output\" "
        "style=\"width:100%;height:auto;font-size:12px\">\n",
        kPlotWidth, kPlotHeight);
    return out + grid() + front() + dots() + names() + "</svg>\n";
  }

 private:
  std::string grid() const {
    std::string out;
    const double right = kPlotWidth - kPlotRight;
    for (double decade = none_; decade <= errors_.most; ++decade) {
      const double y = errors_.at(std::pow(10, decade));
      out += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"var(--line)\"/>", kPlotLeft,
                         right, y, y);
      out += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"var(--dim)\">{}</text>\n",
                         kPlotLeft - 8, y + 4, decade == none_ ? "0" : fmt::format("1e{:.0f}", decade));
    }
    for (double power = std::ceil(bytes_.least / std::log10(2)); power * std::log10(2) <= bytes_.most; ++power) {
      const double bytes = std::pow(2, power);
      const double x = bytes_.at(bytes);
      out += fmt::format("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\" stroke=\"var(--line)\"/>", x, x,
                         kPlotTop, kPlotHeight - kPlotBottom);
      out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\" fill=\"var(--dim)\">{}</text>\n", x,
                         kPlotHeight - kPlotBottom + 18, number_text(bytes));
    }
    out +=
        fmt::format("<text x=\"{}\" y=\"{}\" fill=\"var(--dim)\">bytes a token</text>\n", kPlotLeft, kPlotHeight - 6);
    return out;
  }

  /// Steps along what no other beats.
  std::string front() const {
    std::vector<PlotPoint> on;
    std::copy_if(points_.begin(), points_.end(), std::back_inserter(on),
                 [](const PlotPoint& one) { return one.policy->on_front; });
    std::sort(on.begin(), on.end(), [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
    std::string path;
    for (std::size_t i = 0; i < on.size(); ++i)
      path +=
          i == 0 ? fmt::format("M{:.1f} {:.1f}", on[i].x, on[i].y) : fmt::format("H{:.1f}V{:.1f}", on[i].x, on[i].y);
    return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"var(--good)\" stroke-width=\"1.5\"/>\n", path);
  }

  std::string dots() const {
    std::string out;
    for (const PlotPoint& one : points_) {
      const char* color = one.policy->not_finite > 0 ? "--bad" : one.policy->on_front ? "--good" : "--dim";
      out += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\" fill=\"var({})\"><title>{}: {} bytes, error "
          "{:.2e}</title></circle>\n",
          one.x, one.y, color, escaped(one.policy->candidate.name), number_text(one.policy->bytes), one.policy->error);
    }
    return out;
  }

  /// Beside the points of the front, none on another.
  std::string names() const {
    std::vector<PlotPoint> on;
    std::copy_if(points_.begin(), points_.end(), std::back_inserter(on),
                 [](const PlotPoint& one) { return one.policy->on_front; });
    std::sort(on.begin(), on.end(), [](const PlotPoint& a, const PlotPoint& b) { return a.y < b.y; });
    double free = kPlotTop;
    for (PlotPoint& one : on) {
      one.y = std::max(free, one.y - kNameHeight / 2);
      free = one.y + kNameHeight;
    }
    double lowest = kPlotHeight - kPlotBottom - kNameHeight / 2;
    std::string out;
    for (auto one = on.rbegin(); one != on.rend(); ++one) {
      const double y = std::min(lowest, one->y);
      lowest = y - kNameHeight;
      out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"var(--ink)\">{}</text>\n", one->x + 9, y + 4,
                         escaped(one->policy->candidate.name));
    }
    return out;
  }

  Scale bytes_;
  Scale errors_;
  double none_ = 0;
  std::vector<PlotPoint> points_;
};

std::string policy_rows(const PolicyReport& made) {
  std::string html = "<div class=\"scroll\"><table><tr>";
  const std::vector<std::string>& titles = policy_titles();
  for (std::size_t i = 0; i < titles.size(); ++i)
    html += fmt::format("<th{}>{}</th>", i == 0 ? "" : " class=\"right\"", escaped(titles[i]));
  html += "</tr>\n";
  for (const PolicyResult& one : made.policies) {
    const std::vector<std::string> cells = policy_cells(one);
    html += fmt::format("<tr><td class=\"{}\">{}</td>", one.on_front ? "good" : "", escaped(one.candidate.name));
    if (cells.empty()) html += fmt::format("<td colspan=\"{}\">{}</td>", titles.size() - 1, escaped(one.problem));
    for (const std::string& cell : cells) html += fmt::format("<td class=\"right\">{}</td>", escaped(cell));
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

}  // namespace

std::string policies_section(const PolicyReport& made) {
  std::string html = "<h2>KV policies on this run</h2>\n<figure>" + Plot(made).svg();
  html +=
      "<figcaption>Bytes a token takes in these layers against the relative error of the attention output, both "
      "logarithmic; green: no other has less error and no more bytes.</figcaption></figure>\n";
  html += policy_rows(made);
  if (!made.claims.empty()) html += "<h2>What is said about KV caches, on this run</h2>\n<ul>";
  for (const PolicyClaim& claim : made.claims) {
    const char* tone = claim.verdict == ClaimVerdict::confirmed ? "good"
                       : claim.verdict == ClaimVerdict::refuted ? "bad"
                                                                : "dim";
    html += fmt::format("<li><b class=\"{}\">{}</b>: {}<br><span class=\"dim\">{}</span></li>\n", tone,
                        to_string(claim.verdict), escaped(claim.statement), escaped(claim.figures));
  }
  if (!made.claims.empty()) html += "</ul>\n";
  html += "<p class=\"dim\">";
  for (const std::string& fact : made.facts) html += escaped(fact) + "; ";
  for (const std::string& one : made.left_out) html += escaped(one) + "; ";
  return html + "</p>\n";
}

}  // namespace nanscope::report
