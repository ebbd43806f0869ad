#pragma once
#include <optional>
#include <vector>

#include "gui/prepare/policies.h"
#include "gui/views/view.h"

/// The ledger as charts, one a layer's k or v: what was stored against what could be.
namespace nanscope::gui {

/// What is drawn in one frame.
struct ScaleSheet {
  const Ledger& ledger;
  const ScaleColumns& columns;
  const ViewContext& context;
  const ViewActions& actions;
  std::optional<std::size_t> chosen;  ///< entry
  const PolicyComparison* policies;   ///< null when there are none
  std::vector<std::size_t> limits;    ///< other policies whose limits are drawn, as indices in `policies`
  LogAxis axis;

  float px(float pixels) const { return pixels * context.scale; }
  const Theme& theme() const { return context.theme; }
  /// Of a step's middle.
  float x(Area plot, std::size_t step) const {
    return plot.x + plot.width * (static_cast<float>(step) + 0.5F) / static_cast<float>(ledger.steps.size());
  }
  float y(Area plot, double value) const { return plot.bottom() - plot.height * static_cast<float>(axis.at(value)); }
};

/// Selects an entry of the ledger, and tells of one that is pointed at.
void choose_entry(const ScaleSheet& sheet, std::size_t entry);
void hover_entry(const ScaleSheet& sheet, std::size_t entry);

/// The height of the band of requests above the charts.
inline constexpr float kRequestBand = 24;

/// How many columns charts in an area of that width show.
std::size_t chart_columns(float width, std::size_t lines, float scale);

void draw_charts(const ScaleSheet& sheet, Area area, std::optional<std::size_t> bring);

}  // namespace nanscope::gui
