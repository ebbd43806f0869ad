#pragma once
/// Health: one pass over a tensor of any format, one Health per tile of one row by kTileChannels.
#include "core/tensor/health.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (T, D); source (T, D) f32/f16/bf16 or not given: what x was cast from, divided by scale
/// before the cast, for the flushed and clipped counts; tiles: T * ceil(D / kTileChannels) Health, row-major.
/// first_bad is the row-major index row * D + column. Sums: f64, per lane ascending, then the butterfly.
struct HealthScanArgs {
  TensorView x;
  TensorView source;
  TensorView source_scales;  ///< (T, 1) or (1, 1) f32; not given: 1
  Health* tiles = nullptr;
};

}  // namespace nanscope::kernels
