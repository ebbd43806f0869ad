#pragma once
#include <string>
#include <string_view>

#include "instrument/verify/verify.h"

/// What is said of an output that was checked, in the report and in the window. Names of files may stand in it: they
/// are made harmless by whoever writes them.
namespace nanscope::report {

/// "shown", "possible", "none"
std::string_view certainty_word(HowSure certainty);
/// "softmax of layer 0, step 1"
/// Whether it is a weight that holds NaN or Inf in the checkpoint.
bool bad_weight(const VerifiedOutput& one);
std::string verified_place(const VerifiedOutput& one);
/// "224 of 576 elements are off by up to 2.636e+04 times what rounding allows (0.0023 instead of 0.0036 at [9,17])"
std::string verified_off(const VerifiedOutput& one);
/// "shown: the cap of the scores left out (explains 100 % of 576 elements)"
std::string verified_because(const VerifiedOutput& one);

}  // namespace nanscope::report
