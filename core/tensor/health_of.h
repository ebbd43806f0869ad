#pragma once
#include <cstdint>
#include <limits>
#include <span>

#include "core/tensor/health.h"

namespace nanscope {

/// Health of values one by one, for what no kernel scans. `first` is the row-major index of the first of them,
/// `largest_finite` that of their format: what reaches it counts as saturated. Subnormals are not counted.
Health health_of(std::span<const float> values, std::int64_t first,
                 float largest_finite = std::numeric_limits<float>::infinity());

}  // namespace nanscope
