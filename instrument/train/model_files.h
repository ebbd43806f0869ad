#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "core/result.h"
#include "instrument/engine/config.h"
#include "instrument/engine/loaded_model.h"
#include "kernels/device.h"

namespace nanscope::train {

/// A file of a folder that is written.
struct FolderFile {
  std::string name;
  std::vector<std::byte> bytes;
};

/// The files of a folder that the loader opens as `model`, each weight in the format that it has there.
///
/// Of a checkpoint's family: model.safetensors under the names of the family, and what lies beside the weights in
/// model.weights (config.json ...) as it is there. Of our own names (model.family empty):
/// model.safetensors under the names of docs/weights.md, and config.json of the family "reference"; no config.json
/// where that cannot state a knob of the model. Of both tokenizer.json, if the model has one.
///
/// Errors: a weight that is quantized, or that the family has no name for; the folder of model.weights is not what it
/// was.
Result<std::vector<FolderFile>> model_files(const EngineConfig& config, const LoadedModel& model,
                                            kernels::Device& device);

}  // namespace nanscope::train
