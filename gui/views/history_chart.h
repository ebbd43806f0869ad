#pragma once
#include "gui/prepare/pin_history.h"
#include "gui/views/view.h"

namespace nanscope::gui {

/// The curve of one place over the steps of the run: of an element its values, of a tensor its largest magnitude on a
/// logarithmic axis; its scale as a second curve. Where something is bad there is a mark of its colour.
class HistoryChart {
 public:
  HistoryChart(const ViewContext& context, const History& history, const PinHistory& pin, Area area);

  void draw() const;
  /// The point that is pointed at; null when there is none.
  const HistoryPoint* pointed() const;
  /// The point of a step; null where the step has none.
  const HistoryPoint* at(std::int64_t request, std::int64_t index) const;

 private:
  float x(std::size_t step) const;
  void bands() const;
  void marks() const;
  template <class Value>
  void curve(const Value& value, bool logarithmic, Color color, float top, float bottom) const;

  const ViewContext& context_;
  const History& history_;
  const PinHistory& pin_;
  Area area_;
};

/// "42.6, 3 bad", "NaN", "not there".
std::string point_words(const PinHistory& pin, const HistoryPoint& point);

}  // namespace nanscope::gui
