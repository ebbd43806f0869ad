#pragma once
#include <memory>
#include <string>
#include <vector>

#include "instrument/dump/container.h"

namespace nanscope {

/// A tensor that somebody holds in memory: row-major, little-endian, without gaps.
struct NamedTensor {
  std::string name;  ///< as a file of tensors would have it: "model.layers.0.mlp.output", "step_00000/..."
  const Dtype* dtype = nullptr;
  std::vector<std::int64_t> shape;
  TensorBytes bytes;  ///< read where they are; they must not change while they are
};

/// Tensors in memory as a file would hold them, in their order. Errors: a name that is empty or there twice, a negative
/// extent, bytes that are more or fewer than the shape says.
Result<std::unique_ptr<Container>> memory_container(std::vector<NamedTensor> tensors);

}  // namespace nanscope
