#include "kernels/cpu/float_environment.h"

#include <cfenv>
#include <cfloat>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static_assert(FLT_EVAL_METHOD == 0, "float expressions must not be kept in a wider type");

namespace nanscope::kernels {
namespace {

constexpr unsigned kFlushToZero = 0x8000U;
constexpr unsigned kRounding = 0x6000U;
constexpr unsigned kDenormalsAreZero = 0x0040U;
constexpr unsigned kModeBits = kFlushToZero | kRounding | kDenormalsAreZero;

}  // namespace

bool FloatEnvironment::is_default() const { return control == 0; }

std::string FloatEnvironment::text() const {
  static constexpr const char* kRoundingNames[] = {"nearest-even", "downward", "upward", "toward-zero"};
  std::string text = kRoundingNames[(control & kRounding) >> 13];
  text += (control & kFlushToZero) != 0 ? ", FTZ on" : ", FTZ off";
  text += (control & kDenormalsAreZero) != 0 ? ", DAZ on" : ", DAZ off";
  return text;
}

#if defined(__x86_64__)

FloatEnvironment current_float_environment() { return {_mm_getcsr() & kModeBits}; }

void set_default_float_environment() { _mm_setcsr(_mm_getcsr() & ~kModeBits); }

#else

FloatEnvironment current_float_environment() {
  switch (std::fegetround()) {
    case FE_DOWNWARD:
      return {0x2000U};
    case FE_UPWARD:
      return {0x4000U};
    case FE_TOWARDZERO:
      return {0x6000U};
    default:
      return {};
  }
}

void set_default_float_environment() { std::fesetenv(FE_DFL_ENV); }

#endif

}  // namespace nanscope::kernels
