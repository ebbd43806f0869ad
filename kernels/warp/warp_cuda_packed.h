#pragma once
/// Instructions of a GPU that work on parts of a register or join several steps, and that nvcc does not choose by
/// itself. For what only a GPU's path of an op does; the PTX ISA's name of each is in its body.
#include "kernels/warp/warp_cuda.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// a * b + c of unsigned numbers, the product and the sum in 64 bits.
NANSCOPE_FN U64 mad_wide(U32 a, U32 b, U64 c) {
  U64 d;
  asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(d) : "r"(a), "r"(b), "l"(c));
  return d;
}
/// Adds a * a to the number of 64 bits that `low` and `high` are. For sums of many squares: nvcc keeps those of
/// mad_wide() in pairs of registers that it copies.
NANSCOPE_FN void add_square(U32 a, U32& low, U32& high) {
  asm("mad.lo.cc.u32 %0, %2, %2, %0;\n madc.hi.u32 %1, %2, %2, %1;" : "+&r"(low), "+r"(high) : "r"(a));
}
NANSCOPE_FN U64 join_halves(U32 low, U32 high) {
  U64 d;
  asm("mov.b64 %0, {%1, %2};" : "=l"(d) : "r"(low), "r"(high));
  return d;
}
NANSCOPE_FN void split_halves(U64 whole, U32& low, U32& high) {
  asm("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "l"(whole));
}
/// (a | b) & c.
NANSCOPE_FN U32 or_and(U32 a, U32 b, U32 c) {
  U32 d;
  asm("lop3.b32 %0, %1, %2, %3, 0xa8;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

/// An f32 by its bits, which nvcc would move to a register of another type first, at the price of an instruction.
struct F32Bits {
  NANSCOPE_FN U32 min(U32 a, U32 b) {
    U32 d;
    asm("min.f32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  NANSCOPE_FN U32 max(U32 a, U32 b) {
    U32 d;
    asm("max.f32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  /// The smaller of |a| and |b|, with a sign of no meaning; the number where one is NaN.
  NANSCOPE_FN U32 smaller_magnitude(U32 a, U32 b) {
    U32 d;
    asm("min.xorsign.abs.f32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  NANSCOPE_FN U32 add(U32 a, F32 b) {
    U32 d;
    asm("add.rn.f32 %0, %1, %2;" : "=r"(d) : "r"(a), "f"(b));
    return d;
  }
  NANSCOPE_FN F64 widen(U32 a) {
    F64 d;
    asm("cvt.f64.f32 %0, %1;" : "=d"(d) : "r"(a));
    return d;
  }
};

/// The larger and the smaller of two signed 16-bit numbers in each half; the larger of two unsigned ones.
NANSCOPE_FN U32 max_s16x2(U32 a, U32 b) {
  U32 d;
  asm("max.s16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}
NANSCOPE_FN U32 min_s16x2(U32 a, U32 b) {
  U32 d;
  asm("min.s16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

NANSCOPE_FN U32 max_u16x2(U32 a, U32 b) {
  U32 d;
  asm("max.u16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

/// Two bf16 in a register.
struct Bf16Pair {
  NANSCOPE_FN U32 min(U32 a, U32 b) {
    U32 d;
    asm("min.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  NANSCOPE_FN U32 max(U32 a, U32 b) {
    U32 d;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  NANSCOPE_FN U32 smaller_magnitude(U32 a, U32 b) {
    U32 d;
    asm("min.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  /// To bits of f32.
  NANSCOPE_FN void decode(U32 pair, U32& low, U32& high) {
    low = pair << 16;
    high = pair & 0xffff0000U;
  }
};

/// Two f16 in a register.
struct F16Pair {
  NANSCOPE_FN U32 min(U32 a, U32 b) {
    U32 d;
    asm("min.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  NANSCOPE_FN U32 max(U32 a, U32 b) {
    U32 d;
    asm("max.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  /// NaN where one is.
  NANSCOPE_FN U32 max_propagate(U32 a, U32 b) {
    U32 d;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  NANSCOPE_FN U32 smaller_magnitude(U32 a, U32 b) {
    U32 d;
    asm("min.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  /// To bits of f32.
  NANSCOPE_FN void decode(U32 pair, U32& low, U32& high) {
    asm("{.reg .b16 a, b;\n mov.b32 {a, b}, %2;\n cvt.f32.f16 %0, a;\n cvt.f32.f16 %1, b;}"
        : "=r"(low), "=r"(high)
        : "r"(pair));
  }
};

/// Four e4m3 codes as f16, exactly: the first two in `low`.
NANSCOPE_FN void decode_e4m3(U32 four, U32& low, U32& high) {
  asm("{.reg .b16 a, b;\n mov.b32 {a, b}, %2;\n cvt.rn.f16x2.e4m3x2 %0, a;\n cvt.rn.f16x2.e4m3x2 %1, b;}"
      : "=r"(low), "=r"(high)
      : "r"(four));
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
