#pragma once
#include <filesystem>

#include "core/result.h"
#include "instrument/engine/config.h"
#include "instrument/model/model_spec.h"

namespace nanscope {

/// Makes `config` run the model of a Hugging Face checkpoint folder: its config.json sets every knob of the model, its
/// positions and experts, norm.eps, and the formats of activations and cache, which become the checkpoint's dtype.
/// Errors: those of read_model_spec(), and a model that does not fit together; `config` is then unchanged.
Status use_model_folder(EngineConfig& config, const std::filesystem::path& folder);

/// The same of what was read already.
Status use_model_spec(EngineConfig& config, const ModelSpec& spec);

}  // namespace nanscope
