#pragma once
#include <cstdint>
#include <optional>

#include "core/dump/facts.h"

/// Ops done again in double precision from what a dump holds, one element at a time: what a result should have been.
namespace nanscope {

/// Element `row`, `channel` of the output of a linear module: x W' + b. `largest_term` is the largest |x w| of the sum,
/// which says how far rounding can move it. Nothing when its input or weight was not dumped, or their shapes do not
/// fit.
struct LinearElement {
  double value = 0;
  double largest_term = 0;
};
std::optional<LinearElement> linear_element(DumpFacts& facts, TensorIndex output, std::int64_t row,
                                            std::int64_t channel);

}  // namespace nanscope
