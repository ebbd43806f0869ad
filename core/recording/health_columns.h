#pragma once
#include <cstdint>

#include "core/tensor/health.h"

/// Private to core/recording.
namespace nanscope::schema {

/// Calls integer(value) and real(value) for the columns of kHealthColumnNames, in their order.
template <class Integer, class Real>
void each_health_column(const Health& health, const Integer& integer, const Real& real) {
  for (const std::uint64_t count : {health.count, health.bad(), health.nan, health.pos_inf, health.neg_inf,
                                    health.saturated, health.subnormal, health.zero, health.flushed, health.clipped}) {
    integer(static_cast<std::int64_t>(count));
  }
  integer(health.first_bad);
  for (const double value :
       {health.sum, health.sum_sq, double{health.min}, double{health.max}, double{health.absmax}}) {
    real(value);
  }
}

}  // namespace nanscope::schema
