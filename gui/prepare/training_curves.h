#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "core/place.h"
#include "core/result.h"
#include "core/run/run_data.h"
#include "gui/prepare/ledger.h"
#include "gui/prepare/prepared.h"

namespace nanscope::gui {

/// The curves of a training run, in the order in which they are drawn.
enum class TrainingCurve : std::uint8_t { loss, gradient_norm, learning_rate, loss_scale };
inline constexpr std::size_t kTrainingCurves = 4;

/// What one training step came to. A number that nothing states is a NaN, and not told.
struct TrainingPoint {
  std::array<double, kTrainingCurves> values{};
  std::array<bool, kTrainingCurves> told{};
  bool skipped = false;                       ///< no weight was changed
  std::array<Place, kTrainingCurves> places;  ///< whose number it is
};

/// Loss, gradient norm, learning rate and loss scale by training step, from 0.
struct TrainingCurves final : Prepared {
  std::vector<TrainingPoint> points;
  std::array<LogRange, kTrainingCurves> ranges;  ///< of what is finite and positive
  std::string headline;                          ///< what is to be known, in a sentence
};

std::string_view name_of(TrainingCurve curve);

/// From attributes and health of the ops of a recorded training run: no element is read. Without steps of training
/// there are no points. Errors: rows cannot be read, stopped.
Result<TrainingCurves> make_training_curves(RunData& rows, const std::stop_token& stop);

}  // namespace nanscope::gui
