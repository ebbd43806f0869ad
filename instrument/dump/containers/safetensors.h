#pragma once
#include <filesystem>
#include <memory>

#include "core/result.h"
#include "instrument/dump/container.h"
#include "instrument/dump/containers/file_bytes.h"

namespace nanscope {

/// A safetensors file; tensors are views into its map, in the order of their bytes. Tensors of dtypes
/// that nanscope cannot decode are skipped with the dtype's name.
Result<std::unique_ptr<Container>> open_safetensors(const std::filesystem::path& path);
Result<std::unique_ptr<Container>> open_safetensors(FileBytes file);

}  // namespace nanscope
