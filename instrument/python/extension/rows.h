#pragma once
#include <string>

#include "core/run/run.h"

namespace nanscope::python {

/// A tensor with its place, which takes the run to tell.
struct TensorRowOf {
  Tensor tensor;
  std::string place;
};

}  // namespace nanscope::python
