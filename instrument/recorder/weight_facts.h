#pragma once
#include <string>
#include <unordered_map>

#include "core/recording/rows.h"
#include "core/result.h"
#include "instrument/recorder/tensor_observer.h"
#include "kernels/device.h"
#include "kernels/tensor_view.h"

namespace nanscope {

/// Hash and health of the weights of one loaded model, looked at once and then remembered: they do not
/// change from run to run, and are often larger than all that a short run computes. Later versions of a weight are of
/// one run alone, and are not remembered.
class WeightFacts {
 public:
  explicit WeightFacts(kernels::Device& device) : observer_(device) {}

  /// `weight` with its hash and health; `view` is where it lies.
  Result<WeightRow> of(const WeightRow& weight, const kernels::TensorView& view);

  /// Forgets all: to be called when another model is loaded.
  void clear() { known_.clear(); }

 private:
  TensorObserver observer_;
  std::unordered_map<std::string, WeightRow> known_;
};

}  // namespace nanscope
