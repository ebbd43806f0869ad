#pragma once
#include <vector>

#include "core/run/ranks.h"
#include "instrument/diagnosis/facts.h"
#include "instrument/diff/diff.h"

namespace nanscope::align {

/// A difference of two recordings, or a tensor of one alone, and when it was computed.
struct Moved {
  Moment moment;
  Difference difference;
};

/// Compares tensors bit for bit: by hashes where the same rows lie in the same order, else by their elements. Adds to
/// the report's numbers; elements are read later, see describe_bits().
void compare_bits(Side& a, Side& b, const std::vector<Partner>& partners, DiffReport& report,
                  std::vector<Moved>& found);

/// Reads the elements of a difference and says in a sentence what differs.
void describe_bits(Facts& a, Facts& b, Difference& difference);

}  // namespace nanscope::align
