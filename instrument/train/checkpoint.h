#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "core/result.h"
#include "instrument/engine/config.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/train/trainer.h"

/// A training run on disk: a folder that the loader opens as a model (model_files.h), with the optimizer's state beside
/// it:
///   optimizer-STEP.safetensors  f32, row-major: master.NAME, first.NAME and second.NAME of each weight,
///                               and rounded.NAME where the model has it in fewer bits
///   trainer.json                step, loss scale, all knobs, hash of the text; names the file above and its hash
/// Files are replaced one by one, trainer.json last: until then the folder resumes from what it held before.
namespace nanscope::train {

/// Writes `folder`; a new one is whole or not there. Replaces an earlier checkpoint of the same run; with `replace`
/// also another run's, and other files of the same names. Errors: what cannot be written, a folder that holds something
/// else, and those of model_files(); then an earlier checkpoint is as it was.
Status save_checkpoint(const std::filesystem::path& folder, const EngineConfig& config, const LoadedModel& model,
                       kernels::Device& device, const TrainState& state, bool replace = false);

/// Whether `folder` holds a checkpoint, of whatever run.
bool has_checkpoint(const std::filesystem::path& folder);

/// The state of a checkpoint, every bit as it was saved. Errors: a file that is missing or damaged, or a pipe or folder
/// in the place of one that save_checkpoint() replaces; a configuration
/// that differs from `config` in a knob that bits depend on, or in the text's hash; more steps done than train.steps,
/// which may be another number than it was. Files of the model are compared by their last name, so that folders can be
/// moved.
Result<TrainState> load_checkpoint(const std::filesystem::path& folder, const EngineConfig& config);

}  // namespace nanscope::train
