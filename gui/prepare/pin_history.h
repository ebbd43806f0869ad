#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/place.h"
#include "core/result.h"
#include "core/run/run_view.h"
#include "gui/prepare/prepared.h"
#include "gui/selection.h"

/// How a tensor, or one of its elements, goes on from step to step.
namespace nanscope::gui {

/// What a place is in one step.
struct HistoryPoint {
  std::size_t step = 0;  ///< index in History::steps
  /// Of an element its value as it is stored; nothing where it cannot be had. Of a tensor nothing.
  std::optional<double> value;
  std::optional<double> scale;  ///< that it was stored under
  double absmax = 0;            ///< of the tensor; 0 when nothing of it is finite
  std::uint64_t bad = 0;        ///< elements that are NaN, or Inf where it hides nothing
  std::uint64_t clipped = 0;
  Selection target;
};

/// The tensor of the same layer, op and role in every step that has it. An element is of the same channel, at the same
/// token where the step of its request has it, else at the step's last token, which is the one that is answered.
struct PinHistory {
  Place place;
  std::vector<HistoryPoint> points;  ///< in logical order
  std::size_t looked_at = 0;         ///< steps
  std::string problem;               ///< why a value is missing, the first time
  bool is_element() const { return place.channel.has_value(); }
};

struct HistoryStep {
  std::int64_t request = 0;
  std::int64_t index = 0;
};

struct History final : Prepared {
  std::vector<HistoryStep> steps;
  std::vector<std::shared_ptr<const PinHistory>> pins;  ///< as their places were asked for
  bool whole() const;
  /// Steps that were looked at, of all places together, for who waits.
  std::size_t looked_at() const;
};

/// Goes on from `known`, which may be null, and ends soon after the deadline, then with a history that is not whole.
/// Errors: rows cannot be read.
Result<std::shared_ptr<const History>> make_history(RunView& run, std::span<const Place> places, const History* known,
                                                    std::chrono::steady_clock::time_point deadline);

}  // namespace nanscope::gui
