#include "instrument/recompute/element_loops.h"

namespace nanscope {

namespace baseline {
extern const ElementLoops kElementLoops;
}
#if defined(NANSCOPE_ELEMENT_LOOPS_X86)
namespace avx2 {
extern const ElementLoops kElementLoops;
}
namespace avx512 {
extern const ElementLoops kElementLoops;
}
#endif

AllElementLoops all_element_loops() {
  AllElementLoops all;
  all.loops[all.count++] = &baseline::kElementLoops;
#if defined(NANSCOPE_ELEMENT_LOOPS_X86)
  const bool avx2_here = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool avx512_here = avx2_here && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                           __builtin_cpu_supports("avx512vl");
  if (avx2_here) all.loops[all.count++] = &avx2::kElementLoops;
  if (avx512_here) all.loops[all.count++] = &avx512::kElementLoops;
#endif
  return all;
}

const ElementLoops& element_loops() {
  static const ElementLoops& best = [&]() -> const ElementLoops& {
    const AllElementLoops all = all_element_loops();
    return *all.loops[all.count - 1];
  }();
  return best;
}

}  // namespace nanscope
