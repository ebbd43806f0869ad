#pragma once
#include <filesystem>
#include <vector>

#include "core/result.h"
#include "instrument/dump/containers/memory.h"

namespace nanscope {

/// The weights of a checkpoint with an adapter merged: W + lora_alpha / r B A (Hu et al. 2021, arXiv:2106.09685), by
/// the names of the checkpoint's tensors, in f32. `adapter` is a folder as PEFT writes it: adapter_config.json and
/// adapter_model.safetensors. Errors: they are not there or damaged; another kind of adapter than LoRA; a module that
/// the checkpoint does not have, or of another shape.
Result<std::vector<NamedTensor>> merged_weights(const std::filesystem::path& adapter,
                                                const std::filesystem::path& checkpoint);

}  // namespace nanscope
