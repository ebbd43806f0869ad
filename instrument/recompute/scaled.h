#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/numbers/format.h"
#include "core/run/scale_grid.h"
#include "instrument/recompute/recipes.h"
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

/// What a reader, or a writer, of codes may have got wrong: how often it took the scale, or their flavour of fp8.
std::vector<OpForm> reading_faults(Format own, bool scaled, std::string_view what, std::string_view verb);

/// The zero points of integer codes, as what an op reads as `role` says: a value is (code - zero point) x scale.
/// Nothing where there are none, or where their shape fits no grid.
std::optional<ScaleGrid> zero_points(RunView& run, const Op& op, std::string_view role, const Tensor& codes);

/// What a store under a scheme says of its codes besides their format.
struct SchemeForm {
  bool stated = false;
  std::optional<std::int64_t> low, high;
  std::optional<ScaleGrid> zeros;
  bool zero_is_value = false;
  bool unrounded = false;

  double zero(std::int64_t row, std::int64_t channel) const { return zeros ? zeros->at(row, channel) : 0; }
  double within(double quotient) const {
    return high ? std::clamp(quotient, static_cast<double>(*low), static_cast<double>(*high)) : quotient;
  }
};
SchemeForm scheme_form(RunView& run, const Op& store, const Tensor& codes, const std::string& letter);

/// Which row of the step a row of codes holds, where scales are of the step's rows.
class StepRows {
 public:
  StepRows(Values& values, const Tensor& codes, const RowScale& scale);
  /// Nothing for a row that another step stored, whose scale it is not.
  std::optional<std::int64_t> of(std::int64_t row) const;

 private:
  bool mapped_;
  std::unordered_map<std::int64_t, std::int64_t> slots_;
};

/// code x scale of some rows of `codes`, for the rows of an output.
bool read_back(Values& values, const Tensor& codes, const RowScale& scale, const Tensor& out, const OpForm& form,
               std::int64_t first, std::int64_t count, Prediction& into);

}  // namespace nanscope
