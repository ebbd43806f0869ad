#pragma once
#include <cstddef>

#include "core/result.h"

/// What a GPU and its bus give to who does nothing else: what a benchmark's figures are measured against. Errors are
/// CUDA's, by name.
namespace nanscope::bench {

/// Reads `bytes` (a multiple of 16) of the GPU's memory at `data` and waits for the end. `sink` is 4 bytes of the
/// GPU's.
Status plain_read(const void* data, std::size_t bytes, void* sink);

/// Seconds of one copy of `bytes` at `data` to pinned memory of the host.
Result<double> pinned_copy(const void* data, std::size_t bytes);

/// Waits for all streams.
Status wait_for_gpu();

}  // namespace nanscope::bench
