#pragma once
#include <cstdint>
#include <span>

#include "instrument/train/backward.h"

/// Backward ops on some rows alone: gathered before, put back behind. Both are lookups, whose order nothing depends on.
namespace nanscope::train {

/// Of `all` rows those named by `rows`, which ascend.
const RowSelection& select_rows(Backward& backward, std::span<const std::int32_t> rows, std::int64_t all);

/// The selected rows of x, for this op; x itself where `rows` is null.
kernels::TensorView selected(Backward& backward, const RowSelection* rows, const kernels::TensorView& x);

/// Memory for what an op makes of the selected rows, or where `rows` is null of all `count` of them.
kernels::TensorView memory_of(Backward& backward, const RowSelection* rows, Format format, std::int64_t count,
                              std::int64_t columns);

/// What memory_of() was filled with as rows of the whole tensor, zeros in those that were not selected.
kernels::TensorView put_back(Backward& backward, const RowSelection* rows, const kernels::TensorView& part);

/// Numbers of rows on the device, (rows, 1) i32, that last as long as gradients do.
kernels::TensorView uploaded(Backward& backward, std::span<const std::int32_t> rows);

/// A matrix of zeros that lasts as long as gradients do.
kernels::TensorView zeros(Backward& backward, std::int64_t rows, std::int64_t columns);

}  // namespace nanscope::train
