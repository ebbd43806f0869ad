#pragma once
#include <functional>
#include <span>

#include "instrument/quantize/plan.h"

namespace nanscope {

/// Which tensor of stored_as() bytes are of, and where in it they go. Called from several threads.
using WriteAt = std::function<Status(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> bytes)>;

/// The largest magnitude of a matrix; NaN where it holds one. Errors: stopped.
Result<float> largest_magnitude(const CheckpointFiles::Tensor& tensor, const QuantizeOptions& options);

/// Codes and scales of one weight, written band by band on several threads. `amax` is the largest magnitude of what
/// shares its scale of the whole. Errors: a weight that holds NaN or Inf; those of `write`; stopped.
Result<QuantizedWeight> encode_weight(const QuantizePlan::Weight& weight, float amax, const QuantizeOptions& options,
                                      const WriteAt& write);

}  // namespace nanscope
