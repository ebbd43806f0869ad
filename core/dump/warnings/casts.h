#pragma once
#include <optional>
#include <vector>

#include "core/dump/quantized.h"
#include "core/dump/warnings/warning.h"

namespace nanscope::dump_warnings {

/// A cast to codes with one scale, and how far the largest value is from the end of its range.
struct Cast {
  TensorIndex codes = 0;
  std::optional<TensorIndex> source;
  TensorIndex scale = 0;
  double scale_value = 0;
  double absmax = 0;  ///< before the cast; of the codes where that was not dumped
  double headroom = 0;
};

/// All casts that are watched and have a dumped scale of one positive number, in order.
std::vector<Cast> casts_of(DumpFacts& facts, const IsWatched& watched);

/// Casts of the same module in the same run, request and rank, in order, of which `cast` is the last.
std::vector<Cast> casts_before(const DumpFacts& facts, const std::vector<Cast>& casts, const Cast& cast);

}  // namespace nanscope::dump_warnings
