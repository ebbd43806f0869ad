#pragma once
#include <functional>
#include <vector>

#include "core/run/run.h"
#include "instrument/recompute/recipe.h"

namespace nanscope {

struct Recomputed;
class Recomputer;

/// What the configuration of a run's model says. Members that are empty: it is not known.
struct KnownModel {
  /// The ways in which the model may compute an output.
  OpForms forms;
  /// Whether the configuration decides how ops of a kind are computed. What it leaves open is chosen by the numbers,
  /// alike for all layers. Empty: it decides all, and what is left open is chosen for each op.
  std::function<bool(OpKind)> decides;
  /// Judges the tables that a step was given, such as cosines and sines.
  std::function<std::vector<Recomputed>(Recomputer&, const Step&)> tables;
  /// What its norms add to the variance, where `forms` is empty; tried before the usual numbers.
  std::vector<double> norm_eps;
};

}  // namespace nanscope
