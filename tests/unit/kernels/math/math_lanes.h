#pragma once
#include <cstdint>
#include <vector>

/// The functions of kernels/math as each build of the lane code computes them, over arrays.
namespace nanscope::kernels {

enum class MathF32 { exp, log, sin, cos, tanh, erf, sigmoid };
enum class MathF64 { exp, log, sin, cos };

struct MathTable {
  /// count is a multiple of 32.
  void (*f32)(MathF32 function, const float* in, float* out, std::int64_t count);
  void (*f64)(MathF64 function, const double* in, double* out, std::int64_t count);
};

namespace baseline {
extern const MathTable math_table;
}
namespace avx2 {
extern const MathTable math_table;
}
namespace avx512 {
extern const MathTable math_table;
}

struct MathBuild {
  const char* name;
  const MathTable* table;
};

/// The builds that this CPU runs, baseline first.
std::vector<MathBuild> math_builds();

}  // namespace nanscope::kernels
