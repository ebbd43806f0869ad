#pragma once
#include <span>
#include <string_view>

#include "core/numbers/format.h"

/// What becomes of values beyond a format's range where people meet it: the one thing in which casts differ.
namespace nanscope {

struct CastRule {
  std::string_view stack;  ///< "torch from 2.13 on a CPU"
  Overflow overflow;
};

/// Of 8-bit floats, as run (torch 2.15.0 and ml_dtypes 0.6.0 on a CPU) or read (pytorch PRs 177870 and 178817, PTX's
/// cvt.satfinite); empty for other formats. The same input is NaN in one and 448 in another: jax-ml/ml_dtypes #400.
std::span<const CastRule> cast_rules(Format format);

}  // namespace nanscope
