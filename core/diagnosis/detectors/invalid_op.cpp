#include "core/diagnosis/detectors/births.h"

namespace nanscope {

/// NaN or Inf made of finite inputs by an op of no more specific class.
FaultReport detect_invalid_op(Facts& facts) {
  return report_births(facts, BirthClass::invalid_op, "an operation without a finite result",
                       "look at the operands with 'nanscope why' and widen or guard the operation",
                       "0 ops outside the other classes made NaN or Inf of finite inputs");
}

}  // namespace nanscope
