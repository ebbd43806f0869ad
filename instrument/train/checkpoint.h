#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "core/result.h"
#include "instrument/engine/config.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/train/trainer.h"

/// A training run on disk: a folder that the loader opens as a model, with the optimizer's state beside it.
namespace nanscope::train {

/// Writes `folder` whole or not at all: config.json, model.safetensors and the tokenizer as the family of the model has
/// them, the master weights and moments in f32 (optimizer.safetensors), step, loss scale and the run's configuration
/// (trainer.json). Replaces an earlier checkpoint of the same run. Errors: what cannot be written, and a family or a
/// weight that has no name in a checkpoint.
Status save_checkpoint(const std::filesystem::path& folder, const EngineConfig& config, const LoadedModel& model,
                       kernels::Device& device, const TrainState& state);

/// The state of a checkpoint. Errors: a file that is missing or damaged, or a configuration that differs from
/// `config` in a knob that bits depend on; train.steps may be more than it was.
Result<TrainState> load_checkpoint(const std::filesystem::path& folder, const EngineConfig& config);

}  // namespace nanscope::train
