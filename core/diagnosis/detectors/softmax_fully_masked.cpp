#include "core/diagnosis/detectors/births.h"

namespace nanscope {

/// A softmax row with no key to attend to, or no token to choose: -Inf - -Inf, then 0/0.
FaultReport detect_softmax_fully_masked(Facts& facts) {
  return report_births(facts, BirthClass::softmax_fully_masked, "a softmax row with nothing to choose from",
                       "let a row without keys give zeros, leave padding rows out of the batch, and end a request "
                       "whose grammar allows no token",
                       "0 softmax rows became NaN from finite scores for want of a key");
}

}  // namespace nanscope
