#pragma once
#include <cstdint>

#include "core/run/kv_cache.h"
#include "gui/prepare/run_map.h"

namespace nanscope::gui {

/// A map and the run that it is of.
struct MappedRun {
  const RunMap& map;
  RunView& view;
  KvCache& cache;
};

/// Visits the rows of a tensor of a step that are somebody's, with their columns of the map. Keys are of all tokens of
/// their sequence. `first`: index in RunMap::steps of what the step does for its first request.
template <class Visit>
void each_map_token(const MappedRun& run, const nanscope::Step& step, std::uint32_t first, const Tensor& tensor,
                    const Visit& visit) {
  const auto step_of = [&](const Span& span) -> const MapStep& {
    return run.map.steps[first + static_cast<std::size_t>(&span - step.spans.data())];
  };
  if (tensor.axis == Axis::slots) {
    for (const Span& span : step.spans) {
      const MapStep& one = step_of(span);
      for (std::int64_t i = 0; i < one.tokens; ++i) {
        const auto row = run.cache.row_of(tensor, step, span, span.first_token + i);
        if (row) visit(*row, one.first_column + i);
      }
    }
    return;
  }
  for (std::int64_t row = 0; row < tensor.tokens; ++row) {
    const RowToken token = run.view.token_of(tensor, row);
    if (token.span == nullptr) continue;
    const MapStep& one = step_of(*token.span);
    if (tensor.axis == Axis::keys) {
      for (std::int64_t i = 0; i < one.tokens; ++i) visit(row, one.first_column + i);
      continue;
    }
    const std::int64_t column = token.position - token.span->first_token;
    if (column >= 0 && column < one.tokens) visit(row, one.first_column + column);
  }
}

}  // namespace nanscope::gui
