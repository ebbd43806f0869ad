#pragma once
#include <memory>
#include <vector>

#include "core/result.h"
#include "instrument/engine/config.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/engine/op_plan.h"

namespace nanscope {

/// What one rank of tensor parallelism has: its heads and hidden channels of every layer, and all of what is not split
/// (embedding, norms, routers, head), as Megatron-LM and vLLM cut a layer: Q, K, V, gate and up by their outputs
/// (column-parallel), the projections that follow by their inputs (row-parallel), so that a layer is summed over ranks
/// twice.
struct Shard {
  EngineConfig config;  ///< whose model is the rank's part
  std::shared_ptr<const LoadedModel> model;
  ModelPlan plan;
};

/// Refuses a model, or a setting, that cannot be cut into engine.ranks parts, in one line that names the knob.
Status check_shards(const EngineConfig& config);

/// By rank; of one rank, all there is. Weights are views of the model's, in its memory. The configuration was checked.
std::vector<Shard> make_shards(const EngineConfig& config, std::shared_ptr<const LoadedModel> model);

}  // namespace nanscope
