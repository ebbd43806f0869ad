#pragma once
#include <cstdint>
#include <vector>

#include "core/run/run.h"

namespace nanscope {

/// Positions that the columns of scores stand for.
std::vector<std::int64_t> column_positions(const Step& step, const Span& span, std::int64_t columns);

}  // namespace nanscope
