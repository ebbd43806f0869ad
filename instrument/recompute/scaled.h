#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>

#include "core/numbers/format.h"
#include "core/run/scale_grid.h"
#include "instrument/recompute/values.h"

namespace nanscope {

inline bool holds_codes(Format format) { return info(format).bits <= 8; }

/// Which row of the step went into which row of a pool.
std::unordered_map<std::int64_t, std::int64_t> own_slots(Values& values, const Tensor& pool);

/// The scale of codes by their row, or by the row of the step that was stored there.
struct RowScale {
  std::optional<ScaleGrid> grid;
  bool by_step_row = false;

  double at(std::int64_t row, std::int64_t step_row, std::int64_t channel) const {
    return grid ? grid->at(by_step_row ? step_row : row, channel) : 1;
  }
};

/// Of what an op reads as `role` (scale, k_scale, v_scale), or puts out as k_scales, v_scales, or of its entry in the
/// ledger.
RowScale row_scale(Values& values, const Op& op, std::string_view role, const Tensor& codes);

/// The one scale that codes and what was cast show: the median of their ratios, over codes that are neither clipped nor
/// subnormal. Nothing when there are fewer than eight.
std::optional<double> implied_scale(std::span<const float> source, std::span<const float> codes, Format format);

}  // namespace nanscope
