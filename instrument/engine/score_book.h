#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/recording/rows.h"
#include "core/result.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/engine/scale_policies.h"
#include "instrument/engine/workspace.h"
#include "instrument/spectral/score_policy.h"
#include "kernels/device.h"

namespace nanscope {

/// A run's scales of attention's scores, where scores.format quantizes them: one policy for each attention layer.
class ScoreBook {
 public:
  /// Policies that follow from weights read those of `model`, each layer's once. Errors: those of layer_scales(), or a
  /// layer that nothing bounds.
  static Result<ScoreBook> create(const EngineConfig& config, kernels::Device& device, const LoadedModel& model);

  struct Use {
    float scale = 1;
    double absmax = 0;  ///< of the scores, NaN where one is
    ScaleOrigin origin;
  };
  Result<Use> use(const ScaleContext& context, std::int64_t attention_rank, const kernels::TensorView& scores,
                  Workspace& workspace);
  ScaleRow ledger_row(const ScaleContext& context, std::int64_t op, const Use& use) const;

 private:
  ScoreBook(const EngineConfig& config, kernels::Device& device) : config_(&config), device_(&device) {}

  struct Layer {
    std::unique_ptr<ScorePolicy> policy;
    double bound = 0;    ///< calibrated, of policies that follow from weights
    ScaleOrigin before;  ///< of the step that had the largest scores so far
  };

  const EngineConfig* config_;
  kernels::Device* device_;
  std::vector<Layer> layers_;  ///< those with attention
};

/// Refuses scores.* that do not go together, by name.
Status check_scores(const EngineConfig& config);

}  // namespace nanscope
