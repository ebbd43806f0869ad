#pragma once
#include <ctime>

namespace nanscope {

/// Seconds of a CPU that this process has used. Tests limit these, because other programs may run at the same time.
inline double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace nanscope
