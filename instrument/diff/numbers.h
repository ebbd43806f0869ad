#pragma once
#include <cstddef>
#include <vector>

#include "instrument/diagnosis/facts.h"
#include "instrument/diff/diff.h"
#include "instrument/diff/floor.h"

namespace nanscope::align {

/// Which pairs lead to which: by the ops of A, through what was not compared.
void link_inputs(Side& a, std::vector<Measured>& pairs);

/// Adds pairs that were measured to a report: numbers, the noise of each, and the differences to describe.
void report_numbers(Side& a, Side& b, Facts& facts, const std::vector<Measured>& pairs, std::size_t limit,
                    DiffReport& report);

/// What was measured of two groups when they were dumped: the extremes, and whether there is a NaN or an Inf.
Difference stated_difference(const Group& a, const Group& b);

}  // namespace nanscope::align
