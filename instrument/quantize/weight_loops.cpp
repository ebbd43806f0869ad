#include "instrument/quantize/weight_loops.h"

namespace nanscope {

namespace baseline {
extern const WeightLoops kWeightLoops;
}
#if defined(NANSCOPE_WEIGHT_LOOPS_X86)
namespace avx2 {
extern const WeightLoops kWeightLoops;
}
namespace avx512 {
extern const WeightLoops kWeightLoops;
}
#endif

const WeightLoops& weight_loops() {
#if defined(NANSCOPE_WEIGHT_LOOPS_X86)
  const bool avx2_here = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool avx512_here = avx2_here && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                           __builtin_cpu_supports("avx512vl");
  if (avx512_here) return avx512::kWeightLoops;
  if (avx2_here) return avx2::kWeightLoops;
#endif
  return baseline::kWeightLoops;
}

}  // namespace nanscope
