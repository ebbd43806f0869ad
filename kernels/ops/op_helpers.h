#pragma once
/// What several op bodies share: uniform reads of index and scale columns, and formats as constants.
#include <type_traits>

#include "core/numbers/codec.h"
#include "kernels/tensor_view.h"
#include "kernels/warp/tensor_access.h"

/// On a lambda: lanes must stay in registers, so what takes them is inlined.
#if defined(__CUDACC__)
#define NANSCOPE_INLINE_LAMBDA
#else
#define NANSCOPE_INLINE_LAMBDA __attribute__((always_inline))
#endif

namespace nanscope::kernels::NANSCOPE_ISA {

NANSCOPE_HOST std::int64_t div_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Element of a (T, 1) i32 column: tokens, slots, block tables.
NANSCOPE_FN std::int64_t read_index(const TensorView& view, std::int64_t row) {
  return static_cast<const std::int32_t*>(view.data)[row * view.stride];
}

/// Element of a (T, 1) f32 column, or the one element of a (1, 1) view; 1 when not given.
NANSCOPE_FN float read_scale(const TensorView& view, std::int64_t row) {
  if (!view.given()) return 1.0F;
  return static_cast<const float*>(view.data)[view.rows == 1 ? 0 : row * view.stride];
}

/// Lowest set bit of a ballot that is not 0.
NANSCOPE_FN int first_lane(std::uint32_t lanes) {
#if defined(__CUDA_ARCH__)
  return __ffs(static_cast<int>(lanes)) - 1;
#else
  return __builtin_ctz(lanes);
#endif
}

/// The 32 floats at p, which are also `loaded`, as f64. A CPU converts faster from memory than from
/// the halves of its registers.
NANSCOPE_FN F64 load_wide([[maybe_unused]] const float* p, const F32& loaded) {
#if defined(NANSCOPE_VECTOR_BYTES) && NANSCOPE_VECTOR_BYTES == 64
  F64 wide = to_f64(loaded);
  NANSCOPE_UNROLL for (int i = 0; i < F64::kCount; ++i) wide.v[i] = _mm512_cvtps_pd(_mm256_loadu_ps(p + 8 * i));
  return wide;
#else
  return to_f64(loaded);
#endif
}

/// Asks early for memory. Only a hint: what lies there needs not be valid memory.
NANSCOPE_FN void prefetch([[maybe_unused]] const void* p) {
#if !defined(__CUDACC__)
  __builtin_prefetch(p);
#endif
}

/// Asks early for memory that a streaming loop will read. A CPU's own prefetchers stop at a page's
/// end, and code that does much for every line cannot look past it.
NANSCOPE_FN void prefetch_ahead(const void* p) { prefetch(static_cast<const char*>(p) + 1024); }

/// The same value, in registers from here on. GCC otherwise merges what computes a value into every
/// select that uses it, as a masked operation each time, and no minimum instruction is left.
NANSCOPE_FN F32 settled(F32 x) {
#if defined(NANSCOPE_VECTOR_BYTES) && NANSCOPE_VECTOR_BYTES == 64
  NANSCOPE_UNROLL for (auto& reg : x.v) __asm__("" : "+v"(reg));
#endif
  return x;
}

/// Codes of a format known at compile time, all 32 lanes in memory.
template <Format F>
NANSCOPE_FN U32 load_whole_codes(const TensorView& view, std::int64_t row, std::int64_t column) {
  constexpr int kBytes = (kFormatTable[static_cast<std::size_t>(F)].bits + 7) / 8;
  if constexpr (kBytes == 4) return load_u32(element_ptr<const std::uint32_t>(view, row, column), kLanes);
  if constexpr (kBytes == 2) return load_u16(element_ptr<const std::uint16_t>(view, row, column), kLanes);
  return load_u8(element_ptr<const std::uint8_t>(view, row, column), kLanes);
}

template <Format F>
using FormatConstant = std::integral_constant<Format, F>;

/// Calls body(FormatConstant<F>{}): a loop inside it is compiled once a format, with the codec folded.
template <class Body>
NANSCOPE_FN void with_format(Format format, const Body& body) {
  switch (format) {
    case Format::f32:
      return body(FormatConstant<Format::f32>{});
    case Format::f16:
      return body(FormatConstant<Format::f16>{});
    case Format::bf16:
      return body(FormatConstant<Format::bf16>{});
    case Format::e4m3:
      return body(FormatConstant<Format::e4m3>{});
    case Format::e5m2:
      return body(FormatConstant<Format::e5m2>{});
    case Format::e4m3fnuz:
      return body(FormatConstant<Format::e4m3fnuz>{});
    case Format::e5m2fnuz:
      return body(FormatConstant<Format::e5m2fnuz>{});
    case Format::e3m2:
      return body(FormatConstant<Format::e3m2>{});
    case Format::e2m3:
      return body(FormatConstant<Format::e2m3>{});
    case Format::e2m1:
      return body(FormatConstant<Format::e2m1>{});
    case Format::e8m0:
      return body(FormatConstant<Format::e8m0>{});
    case Format::int8:
      return body(FormatConstant<Format::int8>{});
    case Format::i32:
      return body(FormatConstant<Format::i32>{});
  }
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
