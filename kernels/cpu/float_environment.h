#pragma once
#include <string>

namespace nanscope::kernels {

/// The thread's rounding mode and treatment of subnormals. Bit equality needs IEEE's default: nearest
/// even, subnormals kept. A library built with fast-math may change it for the whole process when it
/// is loaded, so it is checked at every launch and set in every worker thread.
struct FloatEnvironment {
  unsigned control = 0;  ///< the mode bits of MXCSR; sticky exception flags are left out

  bool is_default() const;
  /// "nearest-even, FTZ off, DAZ off"
  std::string text() const;
};

FloatEnvironment current_float_environment();
/// Sets IEEE's default in the calling thread.
void set_default_float_environment();

}  // namespace nanscope::kernels
