#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <vector>

#include "core/result.h"
#include "instrument/engine/engine.h"

namespace nanscope {

/// One step of the model of a checkpoint folder over `ids`, in f32 on the CPU, listened to by what `listen` makes once
/// it is loaded. Errors: those of loading it; an id beyond the vocabulary; those of the probe; stopped.
Status run_checkpoint(
    const std::filesystem::path& folder, const std::vector<std::int32_t>& ids, std::stop_token stop,
    const std::function<std::unique_ptr<Probe>(kernels::Device& device, const LoadedModel& model)>& listen);

/// The values of a tensor that a probe is told of, rows behind each other.
Result<std::vector<float>> floats_of(kernels::Device& device, const kernels::TensorView& view);

}  // namespace nanscope
