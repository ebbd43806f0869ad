#pragma once
/// cap * tanh(x / cap) over f32 lanes: a division, tanh, a product, each one rounding.
#include "kernels/math/tanh.h"

namespace nanscope::kernels::NANSCOPE_ISA {

NANSCOPE_FN F32 softcap(const F32& x, float cap) { return splat_f32(cap) * tanh(x / splat_f32(cap)); }

}  // namespace nanscope::kernels::NANSCOPE_ISA
