#include "core/diagnosis/detectors/births.h"

namespace nanscope {

/// A router's weights that are NaN though its logits are finite: the values of the chosen experts add up to zero.
FaultReport detect_router_cancellation(Facts& facts) {
  return report_births(facts, BirthClass::router_cancellation, "the chosen experts' weights are 0/0",
                       "weigh the experts by their gates, not by what is left of gate + bias; or add 1e-20 to the sum",
                       "0 routers made NaN of finite logits");
}

}  // namespace nanscope
