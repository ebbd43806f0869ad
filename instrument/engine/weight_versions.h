#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/engine/transient.h"
#include "instrument/engine/weight_source.h"
#include "instrument/spectral/layer_scales.h"
#include "kernels/device.h"

/// Weights of a run that transients change, by the step that reads them.
namespace nanscope {

/// What a transient makes of weights before a step.
class WeightChange {
 public:
  /// Errors: what it loads cannot be opened.
  static Result<WeightChange> make(const Transient& transient, const ModelConfig& model, std::int64_t step);

  bool names(std::string_view weight) const { return transient_.names(weight); }
  /// The values of a weight, rows x columns, from those before. The signs of `shift` are bits of random_bits(), their
  /// stream that of the version's name; norms are taken in double. Errors: what it loads has no such weight of that
  /// shape.
  Result<std::vector<float>> apply(std::string_view weight, std::int64_t rows, std::int64_t columns,
                                   std::vector<float> before) const;

 private:
  WeightChange(Transient transient, std::int64_t step) : transient_(std::move(transient)), step_(step) {}

  Transient transient_;
  std::int64_t step_;
  std::shared_ptr<WeightSource> loaded_;
};

/// A copy whose layers point to weights of its own, in the memory of the model's.
std::shared_ptr<LoadedModel> copy_of(const LoadedModel& model);

/// Every pattern of the transients must be about a weight of the model. The error names one that is not.
Status check_names(std::span<const Transient> transients, const LoadedModel& model);

/// What becomes of a model before a step.
Result<ModelVersion> next_version(const LoadedModel& before, std::span<const Transient> transients, std::int64_t step,
                                  kernels::Device& device);

/// The same of a run that began with the model `first`, which remembers what is small.
Result<ModelVersion> remembered_version(const LoadedModel& first, const LoadedModel& before,
                                        std::span<const Transient> transients, std::int64_t step,
                                        kernels::Device& device);

/// Steps before which weights change, ascending, the last of them at most `last`.
std::vector<std::int64_t> steps_of_change(std::span<const Transient> transients, std::int64_t last);

/// The weights that a step reads, without an engine. Errors: the model's weights, or those that are loaded, cannot be
/// opened.
Result<NamedWeights> weights_at(const ModelConfig& model, std::span<const Transient> transients, std::int64_t step);

}  // namespace nanscope
