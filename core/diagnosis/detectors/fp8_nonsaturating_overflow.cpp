#include "core/diagnosis/detectors/births.h"

namespace nanscope {

/// A cast to fp8 without saturation: what lies beyond the largest finite value becomes NaN or Inf.
FaultReport detect_fp8_nonsaturating_overflow(Facts& facts) {
  return report_births(facts, BirthClass::fp8_nonsaturating_overflow, "an fp8 cast overflowed",
                       "saturate the cast, and scale so that it need not",
                       "0 fp8 codes became NaN or Inf from finite values");
}

}  // namespace nanscope
