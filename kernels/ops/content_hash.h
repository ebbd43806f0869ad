#pragma once
/// 64-bit content hash of a tensor's bytes, in row-major order without padding: what replay compares.
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Bytes hashed by one warp.
inline constexpr std::int64_t kHashChunk = 8192;

/// Shapes: x (T, D) contiguous or strided; chunks: ceil(bytes / kHashChunk) u64 in device memory;
/// combine_hash() folds them in order on the host, together with the byte count.
struct ContentHashArgs {
  TensorView x;
  std::uint64_t* chunks = nullptr;
};

}  // namespace nanscope::kernels
