#include "tests/unit/kernels/math/math_lanes.h"

#include "kernels/math/erf.h"
#include "kernels/math/exp.h"
#include "kernels/math/log.h"
#include "kernels/math/sigmoid.h"
#include "kernels/math/sincos.h"
#include "kernels/math/tanh.h"

namespace nanscope::kernels::NANSCOPE_ISA {
namespace {

template <class Function>
void over_f32(const float* in, float* out, std::int64_t count, Function function) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    store_f32(out + i, function(load_f32(in + i, kLanes, 0.0F)), kLanes);
  }
}

template <class Function>
void over_f64(const double* in, double* out, std::int64_t count, Function function) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    F64 x;
    std::memcpy(&x, in + i, sizeof(x));
    const F64 y = function(x);
    std::memcpy(out + i, &y, sizeof(y));
  }
}

void f32(MathF32 function, const float* in, float* out, std::int64_t count) {
  switch (function) {
    case MathF32::exp:
      return over_f32(in, out, count, [](const F32& x) { return exp(x); });
    case MathF32::log:
      return over_f32(in, out, count, [](const F32& x) { return log(x); });
    case MathF32::sin:
      return over_f32(in, out, count, [](const F32& x) { return sin(x); });
    case MathF32::cos:
      return over_f32(in, out, count, [](const F32& x) { return cos(x); });
    case MathF32::tanh:
      return over_f32(in, out, count, [](const F32& x) { return tanh(x); });
    case MathF32::erf:
      return over_f32(in, out, count, [](const F32& x) { return erf(x); });
    case MathF32::sigmoid:
      return over_f32(in, out, count, [](const F32& x) { return sigmoid(x); });
  }
}

void f64(MathF64 function, const double* in, double* out, std::int64_t count) {
  switch (function) {
    case MathF64::exp:
      return over_f64(in, out, count, [](const F64& x) { return exp(x); });
    case MathF64::log:
      return over_f64(in, out, count, [](const F64& x) { return log(x); });
    case MathF64::sin:
      return over_f64(in, out, count, [](const F64& x) { return sin(x); });
    case MathF64::cos:
      return over_f64(in, out, count, [](const F64& x) { return cos(x); });
  }
}

}  // namespace

const MathTable math_table = {f32, f64};

}  // namespace nanscope::kernels::NANSCOPE_ISA
