#pragma once
/// The warp on a CPU: a lane type is a struct of SIMD registers that together hold 32 lanes, by the
/// vector extensions of GCC and Clang. NANSCOPE_VECTOR_BYTES (16, 32 or 64) is the register width of
/// the instruction set that this translation unit is compiled for.
///
/// Every function is forced inline and lives in the instruction set's own namespace, so that objects
/// for different instruction sets share no code. Structs are passed by reference: by value their
/// calling convention would depend on the instruction set.
///
/// Numeric contract: warp.h. What a lane computes is IEEE 754 binary32/64, round to nearest even;
/// the register width is invisible in every result.
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
// GCC 12's own AVX-512 header starts from an undefined register, and its warnings call that a mistake.
#pragma GCC diagnostic push
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#ifndef NANSCOPE_VECTOR_BYTES
#error "lane code for a CPU needs NANSCOPE_VECTOR_BYTES: 16, 32 or 64"
#endif

#define NANSCOPE_FN static inline __attribute__((always_inline))
#define NANSCOPE_LANE static inline __attribute__((always_inline))
#define NANSCOPE_HOST static inline __attribute__((always_inline))
#define NANSCOPE_CALLED [[maybe_unused]] static __attribute__((noinline))
#define NANSCOPE_UNROLL _Pragma("GCC unroll 32")

namespace nanscope::kernels::NANSCOPE_ISA {

/// One SIMD register of T, and one of half the width (conversions between 32 and 64 bit lanes).
template <class T>
struct RegisterOf {
  typedef T Full __attribute__((vector_size(NANSCOPE_VECTOR_BYTES)));
  typedef T Half __attribute__((vector_size(NANSCOPE_VECTOR_BYTES / 2)));
};
template <class T>
using Register = typename RegisterOf<T>::Full;
template <class T>
using HalfRegister = typename RegisterOf<T>::Half;

namespace detail {
/// An initialiser list, not 0 + value: that would turn -0 into +0.
template <class T, int... I>
NANSCOPE_FN Register<T> splat_register(T value, std::integer_sequence<int, I...>) {
  return Register<T>{((void)I, value)...};
}
}  // namespace detail

/// 32 lanes of T.
template <class T>
struct Lanes {
  static constexpr int kWidth = NANSCOPE_VECTOR_BYTES / static_cast<int>(sizeof(T));  ///< lanes a register
  static constexpr int kCount = kLanes / kWidth;                                      ///< registers
  Register<T> v[kCount];

  Lanes() = default;
  __attribute__((always_inline)) explicit Lanes(T value) {
    const Register<T> reg = detail::splat_register<T>(value, std::make_integer_sequence<int, kWidth>{});
    NANSCOPE_UNROLL for (int i = 0; i < kCount; ++i) v[i] = reg;
  }
};

using F32 = Lanes<float>;
using U32 = Lanes<std::uint32_t>;
using I32 = Lanes<std::int32_t>;
using F64 = Lanes<double>;
using U64 = Lanes<std::uint64_t>;

/// All ones or all zeros a lane.
struct Mask {
  Register<std::int32_t> v[I32::kCount];
};

// Uniform to varying.

NANSCOPE_FN F32 splat_f32(float value) { return F32(value); }
NANSCOPE_FN F64 splat_f64(double value) { return F64(value); }
NANSCOPE_FN U32 splat_u32(std::uint32_t value) { return U32(value); }
NANSCOPE_FN I32 splat_i32(std::int32_t value) { return I32(value); }
NANSCOPE_FN U64 splat_u64(std::uint64_t value) { return U64(value); }

namespace detail {
template <int... I>
NANSCOPE_FN U32 lane_ids(std::integer_sequence<int, I...>) {
  U32 r;
  NANSCOPE_UNROLL for (int i = 0; i < U32::kCount; ++i) {
    r.v[i] = Register<std::uint32_t>{static_cast<std::uint32_t>(I)...} + static_cast<std::uint32_t>(i * U32::kWidth);
  }
  return r;
}
}  // namespace detail

/// 0 to 31.
NANSCOPE_FN U32 lane_id() { return detail::lane_ids(std::make_integer_sequence<int, U32::kWidth>{}); }

// Arithmetic and bit operations.

#define NANSCOPE_BINARY(op)                                                               \
  template <class T>                                                                      \
  NANSCOPE_FN Lanes<T> operator op(const Lanes<T>& a, const Lanes<T>& b) {                \
    Lanes<T> r;                                                                           \
    NANSCOPE_UNROLL for (int i = 0; i < Lanes<T>::kCount; ++i) r.v[i] = a.v[i] op b.v[i]; \
    return r;                                                                             \
  }
NANSCOPE_BINARY(+)
NANSCOPE_BINARY(-)
NANSCOPE_BINARY(*)
NANSCOPE_BINARY(/)  // integer lanes never divide; float division is correctly rounded
NANSCOPE_BINARY(&)
NANSCOPE_BINARY(|)
NANSCOPE_BINARY(^)
NANSCOPE_BINARY(<<)
NANSCOPE_BINARY(>>)
#undef NANSCOPE_BINARY

template <class T>
NANSCOPE_FN Lanes<T> operator~(const Lanes<T>& a) {
  Lanes<T> r;
  NANSCOPE_UNROLL for (int i = 0; i < Lanes<T>::kCount; ++i) r.v[i] = ~a.v[i];
  return r;
}
template <class T>
NANSCOPE_FN Lanes<T> operator<<(const Lanes<T>& a, int count) {
  Lanes<T> r;
  NANSCOPE_UNROLL for (int i = 0; i < Lanes<T>::kCount; ++i) r.v[i] = a.v[i] << count;
  return r;
}
/// Arithmetic for signed lanes, logical for unsigned ones.
template <class T>
NANSCOPE_FN Lanes<T> operator>>(const Lanes<T>& a, int count) {
  Lanes<T> r;
  NANSCOPE_UNROLL for (int i = 0; i < Lanes<T>::kCount; ++i) r.v[i] = a.v[i] >> count;
  return r;
}

namespace detail {
template <class To, class From>
NANSCOPE_FN Lanes<To> reinterpret(const Lanes<From>& a) {
  static_assert(sizeof(To) == sizeof(From));
  Lanes<To> r;
  NANSCOPE_UNROLL for (int i = 0; i < Lanes<To>::kCount; ++i) r.v[i] = reinterpret_cast<Register<To>>(a.v[i]);
  return r;
}
}  // namespace detail

NANSCOPE_FN U32 raw_bits(const F32& a) { return detail::reinterpret<std::uint32_t>(a); }
NANSCOPE_FN F32 from_bits(const U32& a) { return detail::reinterpret<float>(a); }
NANSCOPE_FN U64 raw_bits(const F64& a) { return detail::reinterpret<std::uint64_t>(a); }
NANSCOPE_FN F64 from_bits(const U64& a) { return detail::reinterpret<double>(a); }
NANSCOPE_FN U32 to_u32(const I32& a) { return detail::reinterpret<std::uint32_t>(a); }
NANSCOPE_FN I32 to_i32(const U32& a) { return detail::reinterpret<std::int32_t>(a); }

/// Sign changes are bit operations: they never touch a NaN's payload.
NANSCOPE_FN F32 operator-(const F32& a) { return from_bits(raw_bits(a) ^ U32(0x80000000U)); }
NANSCOPE_FN F32 abs(const F32& a) { return from_bits(raw_bits(a) & U32(0x7fffffffU)); }
NANSCOPE_FN F64 operator-(const F64& a) { return from_bits(raw_bits(a) ^ U64(0x8000000000000000U)); }
NANSCOPE_FN F64 abs(const F64& a) { return from_bits(raw_bits(a) & U64(0x7fffffffffffffffU)); }
/// |a| with the sign of b.
NANSCOPE_FN F32 copy_sign(const F32& a, const F32& b) {
  return from_bits((raw_bits(a) & U32(0x7fffffffU)) | (raw_bits(b) & U32(0x80000000U)));
}
NANSCOPE_FN F64 copy_sign(const F64& a, const F64& b) {
  return from_bits((raw_bits(a) & U64(0x7fffffffffffffffU)) | (raw_bits(b) & U64(0x8000000000000000U)));
}

// Comparisons, masks, selection.

namespace detail {
template <int... I>
NANSCOPE_FN Register<std::int32_t> narrow(Register<std::int64_t> low, Register<std::int64_t> high,
                                          std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(reinterpret_cast<Register<std::int32_t>>(low),
                                 reinterpret_cast<Register<std::int32_t>>(high), (2 * I)...);
}
template <int Half, int... I>
NANSCOPE_FN Register<std::int64_t> widen(Register<std::int32_t> mask, std::integer_sequence<int, I...>) {
  return reinterpret_cast<Register<std::int64_t>>(
      __builtin_shufflevector(mask, mask, (Half * I32::kWidth / 2 + I / 2)...));
}
using Sequence32 = std::make_integer_sequence<int, I32::kWidth>;

/// Mask of 32 bit lanes out of comparisons of 64 bit lanes, and back.
NANSCOPE_FN Mask narrow_mask(const Lanes<std::int64_t>& wide) {
  Mask r;
  NANSCOPE_UNROLL for (int i = 0; i < I32::kCount; ++i) {
    r.v[i] = narrow(wide.v[2 * i], wide.v[2 * i + 1], Sequence32{});
  }
  return r;
}
NANSCOPE_FN Lanes<std::int64_t> widen_mask(const Mask& mask) {
  Lanes<std::int64_t> r;
  NANSCOPE_UNROLL for (int i = 0; i < I32::kCount; ++i) {
    r.v[2 * i] = widen<0>(mask.v[i], Sequence32{});
    r.v[2 * i + 1] = widen<1>(mask.v[i], Sequence32{});
  }
  return r;
}
}  // namespace detail

#define NANSCOPE_COMPARE(op)                                                                   \
  template <class T>                                                                           \
  NANSCOPE_FN Mask operator op(const Lanes<T>& a, const Lanes<T>& b) {                         \
    if constexpr (sizeof(T) == 4) {                                                            \
      Mask r;                                                                                  \
      NANSCOPE_UNROLL for (int i = 0; i < Lanes<T>::kCount; ++i) r.v[i] = a.v[i] op b.v[i];    \
      return r;                                                                                \
    } else {                                                                                   \
      Lanes<std::int64_t> wide;                                                                \
      NANSCOPE_UNROLL for (int i = 0; i < Lanes<T>::kCount; ++i) wide.v[i] = a.v[i] op b.v[i]; \
      return detail::narrow_mask(wide);                                                        \
    }                                                                                          \
  }
NANSCOPE_COMPARE(==)
NANSCOPE_COMPARE(!=)
NANSCOPE_COMPARE(<)
NANSCOPE_COMPARE(<=)
NANSCOPE_COMPARE(>)
NANSCOPE_COMPARE(>=)
#undef NANSCOPE_COMPARE

NANSCOPE_FN Mask operator&(const Mask& a, const Mask& b) {
  Mask r;
  NANSCOPE_UNROLL for (int i = 0; i < I32::kCount; ++i) r.v[i] = a.v[i] & b.v[i];
  return r;
}
NANSCOPE_FN Mask operator|(const Mask& a, const Mask& b) {
  Mask r;
  NANSCOPE_UNROLL for (int i = 0; i < I32::kCount; ++i) r.v[i] = a.v[i] | b.v[i];
  return r;
}
NANSCOPE_FN Mask operator!(const Mask& a) {
  Mask r;
  NANSCOPE_UNROLL for (int i = 0; i < I32::kCount; ++i) r.v[i] = ~a.v[i];
  return r;
}
/// The same condition in every lane.
NANSCOPE_FN Mask splat_mask(bool value) { return I32(value ? 1 : 0) != I32(0); }

/// Lane-wise: mask ? a : b.
template <class T>
NANSCOPE_FN Lanes<T> select(const Mask& mask, const Lanes<T>& a, const Lanes<T>& b) {
  Lanes<T> r;
  if constexpr (sizeof(T) == 4) {
    NANSCOPE_UNROLL for (int i = 0; i < Lanes<T>::kCount; ++i) r.v[i] = mask.v[i] ? a.v[i] : b.v[i];
  } else {
    const Lanes<std::int64_t> wide = detail::widen_mask(mask);
    NANSCOPE_UNROLL for (int i = 0; i < Lanes<T>::kCount; ++i) r.v[i] = wide.v[i] ? a.v[i] : b.v[i];
  }
  return r;
}

/// Lanes i < n.
NANSCOPE_FN Mask lanes_below(std::int64_t n) {
  const std::int64_t clamped = n < 0 ? 0 : (n > kLanes ? kLanes : n);
  return to_i32(lane_id()) < I32(static_cast<std::int32_t>(clamped));
}

/// Bit i is lane i.
NANSCOPE_FN std::uint32_t ballot(const Mask& mask) {
  std::uint32_t r = 0;
  NANSCOPE_UNROLL for (int i = 0; i < I32::kCount; ++i) {
#if NANSCOPE_VECTOR_BYTES == 64
    const auto bits = static_cast<std::uint32_t>(_mm512_movepi32_mask(reinterpret_cast<__m512i>(mask.v[i])));
#elif NANSCOPE_VECTOR_BYTES == 32
    const auto bits = static_cast<std::uint32_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(mask.v[i])));
#elif defined(__x86_64__)
    const auto bits = static_cast<std::uint32_t>(_mm_movemask_ps(reinterpret_cast<__m128>(mask.v[i])));
#else
    std::uint32_t bits = 0;
    for (int j = 0; j < I32::kWidth; ++j) bits |= static_cast<std::uint32_t>(mask.v[i][j] & 1) << j;
#endif
    r |= bits << (i * I32::kWidth);
  }
  return r;
}
NANSCOPE_FN bool any(const Mask& mask) { return ballot(mask) != 0; }
NANSCOPE_FN bool all(const Mask& mask) { return ballot(mask) == 0xffffffffU; }
NANSCOPE_FN int count(const Mask& mask) { return std::popcount(ballot(mask)); }

// fma, square root: one rounding.

NANSCOPE_FN float fma_uniform(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
NANSCOPE_FN double fma_uniform(double a, double b, double c) { return __builtin_fma(a, b, c); }
NANSCOPE_FN float sqrt_uniform(float a) { return __builtin_sqrtf(a); }
NANSCOPE_FN double sqrt_uniform(double a) { return __builtin_sqrt(a); }

namespace detail {
#if NANSCOPE_VECTOR_BYTES == 16 && defined(__x86_64__)
/// a * b + c of values of f32, rounded to odd, which once more rounded to f32 is what one rounding gives (Boldo and
/// Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008). An x86
/// without the instruction calls the C library for each lane else, in twice the time.
NANSCOPE_FN __m128d fma_to_odd(__m128d a, __m128d b, __m128d c) {
  const __m128d product = a * b;  // exact: 48 bits
  const __m128d sum = product + c;
  const __m128d back = sum - product;
  const __m128d lost =
      (product - (sum - back)) + (c - back);  // exact (Knuth's TwoSum); NaN where the sum is not finite
  const __m128i bits = _mm_castpd_si128(sum);
  const __m128i one = _mm_set1_epi64x(1);
  // All ones where something was lost and the last bit is even.
  const __m128i some =
      _mm_castpd_si128(_mm_or_pd(_mm_cmplt_pd(lost, _mm_setzero_pd()), _mm_cmpgt_pd(lost, _mm_setzero_pd())));
  const __m128i odd = _mm_and_si128(some, _mm_sub_epi64(_mm_and_si128(bits, one), one));
  // A unit away from zero where what was lost has the sum's sign, else towards it.
  const __m128i differ = _mm_srli_epi64(_mm_xor_si128(bits, _mm_castpd_si128(lost)), 63);
  const __m128i unit = _mm_sub_epi64(one, _mm_add_epi64(differ, differ));
  return _mm_castsi128_pd(_mm_add_epi64(bits, _mm_and_si128(odd, unit)));
}
#endif

NANSCOPE_FN Register<float> fma(Register<float> a, Register<float> b, Register<float> c) {
#if NANSCOPE_VECTOR_BYTES == 64
  return _mm512_fmadd_ps(a, b, c);
#elif NANSCOPE_VECTOR_BYTES == 32
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__x86_64__)
  const __m128d low = fma_to_odd(_mm_cvtps_pd(a), _mm_cvtps_pd(b), _mm_cvtps_pd(c));
  const __m128d high = fma_to_odd(_mm_cvtps_pd(_mm_movehl_ps(a, a)), _mm_cvtps_pd(_mm_movehl_ps(b, b)),
                                  _mm_cvtps_pd(_mm_movehl_ps(c, c)));
  return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
#else
  for (int j = 0; j < F32::kWidth; ++j) c[j] = __builtin_fmaf(a[j], b[j], c[j]);
  return c;
#endif
}
NANSCOPE_FN Register<double> fma(Register<double> a, Register<double> b, Register<double> c) {
#if NANSCOPE_VECTOR_BYTES == 64
  return _mm512_fmadd_pd(a, b, c);
#elif NANSCOPE_VECTOR_BYTES == 32
  return _mm256_fmadd_pd(a, b, c);
#else
  for (int j = 0; j < F64::kWidth; ++j) c[j] = __builtin_fma(a[j], b[j], c[j]);
  return c;
#endif
}
NANSCOPE_FN Register<float> sqrt(Register<float> a) {
#if NANSCOPE_VECTOR_BYTES == 64
  return _mm512_sqrt_ps(a);
#elif NANSCOPE_VECTOR_BYTES == 32
  return _mm256_sqrt_ps(a);
#elif defined(__x86_64__)
  return _mm_sqrt_ps(a);
#else
  for (int j = 0; j < F32::kWidth; ++j) a[j] = __builtin_sqrtf(a[j]);
  return a;
#endif
}
NANSCOPE_FN Register<double> sqrt(Register<double> a) {
#if NANSCOPE_VECTOR_BYTES == 64
  return _mm512_sqrt_pd(a);
#elif NANSCOPE_VECTOR_BYTES == 32
  return _mm256_sqrt_pd(a);
#elif defined(__x86_64__)
  return _mm_sqrt_pd(a);
#else
  for (int j = 0; j < F64::kWidth; ++j) a[j] = __builtin_sqrt(a[j]);
  return a;
#endif
}
}  // namespace detail

template <class T>
NANSCOPE_FN Lanes<T> fma(const Lanes<T>& a, const Lanes<T>& b, const Lanes<T>& c) {
  Lanes<T> r;
  NANSCOPE_UNROLL for (int i = 0; i < Lanes<T>::kCount; ++i) r.v[i] = detail::fma(a.v[i], b.v[i], c.v[i]);
  return r;
}
template <class T>
NANSCOPE_FN Lanes<T> sqrt(const Lanes<T>& a) {
  Lanes<T> r;
  NANSCOPE_UNROLL for (int i = 0; i < Lanes<T>::kCount; ++i) r.v[i] = detail::sqrt(a.v[i]);
  return r;
}

// Conversions between lane types.

namespace detail {
template <class T, int... I>
NANSCOPE_FN HalfRegister<T> low_half(Register<T> a, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, a, I...);
}
template <class T, int... I>
NANSCOPE_FN HalfRegister<T> high_half(Register<T> a, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, a, (I + static_cast<int>(sizeof...(I)))...);
}
template <class T, int... I>
NANSCOPE_FN Register<T> join(HalfRegister<T> low, HalfRegister<T> high, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(low, high, I...);
}
using HalfSequence = std::make_integer_sequence<int, I32::kWidth / 2>;

/// 32 bit lanes to 64 bit lanes and back, by the language's conversion of each lane.
template <class To, class From>
NANSCOPE_FN Lanes<To> widen_lanes(const Lanes<From>& a) {
  Lanes<To> r;
  NANSCOPE_UNROLL for (int i = 0; i < Lanes<From>::kCount; ++i) {
    r.v[2 * i] = __builtin_convertvector(low_half<From>(a.v[i], HalfSequence{}), Register<To>);
    r.v[2 * i + 1] = __builtin_convertvector(high_half<From>(a.v[i], HalfSequence{}), Register<To>);
  }
  return r;
}
template <class To, class From>
NANSCOPE_FN Lanes<To> narrow_lanes(const Lanes<From>& a) {
  Lanes<To> r;
  NANSCOPE_UNROLL for (int i = 0; i < Lanes<To>::kCount; ++i) {
    r.v[i] = join<To>(__builtin_convertvector(a.v[2 * i], HalfRegister<To>),
                      __builtin_convertvector(a.v[2 * i + 1], HalfRegister<To>), Sequence32{});
  }
  return r;
}
template <class To, class From>
NANSCOPE_FN Lanes<To> convert_lanes(const Lanes<From>& a) {
  Lanes<To> r;
  NANSCOPE_UNROLL for (int i = 0; i < Lanes<To>::kCount; ++i) r.v[i] = __builtin_convertvector(a.v[i], Register<To>);
  return r;
}
/// Every second 32 bit lane of a 64 bit lane type: the low or the high halves.
template <int Offset, int... I>
NANSCOPE_FN U32 halves(const U64& a, std::integer_sequence<int, I...>) {
  U32 r;
  NANSCOPE_UNROLL for (int i = 0; i < U32::kCount; ++i) {
    r.v[i] = __builtin_shufflevector(reinterpret_cast<Register<std::uint32_t>>(a.v[2 * i]),
                                     reinterpret_cast<Register<std::uint32_t>>(a.v[2 * i + 1]), (2 * I + Offset)...);
  }
  return r;
}
}  // namespace detail

NANSCOPE_FN F64 to_f64(const F32& a) {
  // GCC 12 takes the generic conversion apart into 128 bit ones.
#if NANSCOPE_VECTOR_BYTES == 64
  F64 r;
  NANSCOPE_UNROLL for (int i = 0; i < F32::kCount; ++i) {
    const __m512d whole = reinterpret_cast<__m512d>(a.v[i]);
    r.v[2 * i] = _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_castpd512_pd256(whole)));
    r.v[2 * i + 1] = _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(whole, 1)));
  }
  return r;
#elif NANSCOPE_VECTOR_BYTES == 32
  F64 r;
  NANSCOPE_UNROLL for (int i = 0; i < F32::kCount; ++i) {
    const __m256 whole = a.v[i];
    r.v[2 * i] = _mm256_cvtps_pd(_mm256_castps256_ps128(whole));
    r.v[2 * i + 1] = _mm256_cvtps_pd(_mm256_extractf128_ps(whole, 1));
  }
  return r;
#else
  return detail::widen_lanes<double>(a);
#endif
}
NANSCOPE_FN F64 to_f64(const I32& a) { return detail::widen_lanes<double>(a); }
/// Round to nearest even.
NANSCOPE_FN F32 to_f32(const F64& a) {
#if NANSCOPE_VECTOR_BYTES == 64
  F32 r;
  NANSCOPE_UNROLL for (int i = 0; i < F32::kCount; ++i) {
    const __m256d low = _mm256_castps_pd(_mm512_cvtpd_ps(a.v[2 * i]));
    const __m256d high = _mm256_castps_pd(_mm512_cvtpd_ps(a.v[2 * i + 1]));
    r.v[i] = reinterpret_cast<Register<float>>(_mm512_insertf64x4(_mm512_castpd256_pd512(low), high, 1));
  }
  return r;
#elif NANSCOPE_VECTOR_BYTES == 32
  F32 r;
  NANSCOPE_UNROLL for (int i = 0; i < F32::kCount; ++i) {
    r.v[i] = _mm256_set_m128(_mm256_cvtpd_ps(a.v[2 * i + 1]), _mm256_cvtpd_ps(a.v[2 * i]));
  }
  return r;
#else
  return detail::narrow_lanes<float>(a);
#endif
}
NANSCOPE_FN F32 to_f32(const I32& a) { return detail::convert_lanes<float>(a); }
/// Through f64, which holds every u32: one rounding.
NANSCOPE_FN U64 to_u64(const U32& a) { return detail::widen_lanes<std::uint64_t>(a); }
NANSCOPE_FN U32 low_u32(const U64& a) { return detail::halves<0>(a, detail::Sequence32{}); }
NANSCOPE_FN U32 high_u32(const U64& a) { return detail::halves<1>(a, detail::Sequence32{}); }
NANSCOPE_FN F64 to_f64(const U32& a) {
  // 2^52 + a is exact for a < 2^32 and has a in its low bits.
  return from_bits(to_u64(a) | U64(0x4330000000000000U)) - splat_f64(0x1p52);
}
NANSCOPE_FN F32 to_f32(const U32& a) { return to_f32(to_f64(a)); }
/// Nearest integer, ties to even; |a| < 2^31. Adding 1.5 x 2^52 leaves the integer in the low bits.
NANSCOPE_FN I32 to_i32_rne(const F64& a) { return to_i32(low_u32(raw_bits(a + splat_f64(0x1.8p52)))); }
/// The same for f32, |a| < 2^31.
NANSCOPE_FN I32 to_i32_rne(const F32& a) { return to_i32_rne(to_f64(a)); }
namespace detail {
NANSCOPE_FN Register<std::uint64_t> mul_low(Register<std::uint64_t> a, Register<std::uint64_t> b) {
#if NANSCOPE_VECTOR_BYTES == 64
  return reinterpret_cast<Register<std::uint64_t>>(
      _mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif NANSCOPE_VECTOR_BYTES == 32
  return reinterpret_cast<Register<std::uint64_t>>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__x86_64__)
  return reinterpret_cast<Register<std::uint64_t>>(
      _mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  return (a & 0xffffffffU) * (b & 0xffffffffU);
#endif
}
NANSCOPE_FN Register<std::uint64_t> swap_halves(Register<std::uint64_t> a) {
#if NANSCOPE_VECTOR_BYTES == 64
  return reinterpret_cast<Register<std::uint64_t>>(_mm512_shuffle_epi32(reinterpret_cast<__m512i>(a), _MM_PERM_CDAB));
#elif NANSCOPE_VECTOR_BYTES == 32
  return reinterpret_cast<Register<std::uint64_t>>(_mm256_shuffle_epi32(reinterpret_cast<__m256i>(a), 0xb1));
#elif defined(__x86_64__)
  return reinterpret_cast<Register<std::uint64_t>>(_mm_shuffle_epi32(reinterpret_cast<__m128i>(a), 0xb1));
#else
  return (a << 32) | (a >> 32);
#endif
}
}  // namespace detail

/// Product of the low halves: 32 x 32 -> 64 bit.
NANSCOPE_FN U64 mul_low(const U64& a, const U64& b) {
  U64 r;
  NANSCOPE_UNROLL for (int i = 0; i < U64::kCount; ++i) r.v[i] = detail::mul_low(a.v[i], b.v[i]);
  return r;
}

/// The two 32 bit halves change places.
NANSCOPE_FN U64 swap_halves(const U64& a) {
  U64 r;
  NANSCOPE_UNROLL for (int i = 0; i < U64::kCount; ++i) r.v[i] = detail::swap_halves(a.v[i]);
  return r;
}

// Classes of a float, by its bits.

NANSCOPE_FN Mask is_nan(const F32& a) { return to_i32(raw_bits(abs(a))) > I32(0x7f800000); }
NANSCOPE_FN Mask is_inf(const F32& a) { return to_i32(raw_bits(abs(a))) == I32(0x7f800000); }
NANSCOPE_FN Mask is_finite(const F32& a) { return to_i32(raw_bits(abs(a))) < I32(0x7f800000); }
NANSCOPE_FN Mask is_nan(const F64& a) { return a != a; }
/// The value with NaN replaced by the one NaN that is ever observable.
NANSCOPE_FN U32 bits(const F32& a) { return select(is_nan(a), U32(kCanonicalNan), raw_bits(a)); }
NANSCOPE_FN F32 canonical(const F32& a) { return from_bits(bits(a)); }

/// Largest integer not above a, for |a| < 2^51; NaN stays NaN.
NANSCOPE_FN F64 floor(const F64& a) {
  const F64 magic = splat_f64(0x1.8p52);
  const F64 nearest = (a + magic) - magic;
  return select(nearest > a, nearest - splat_f64(1.0), nearest);
}

// Maximum and minimum: compare and select, the NaN rule in the name; a wins a tie.

/// NaN when either is NaN.
NANSCOPE_FN F32 max_propagate(const F32& a, const F32& b) { return select((a >= b) | is_nan(a), a, b); }
NANSCOPE_FN F32 min_propagate(const F32& a, const F32& b) { return select((a <= b) | is_nan(a), a, b); }
/// NaN only when both are NaN.
NANSCOPE_FN F32 max_ignore(const F32& a, const F32& b) { return select((a >= b) | is_nan(b), a, b); }
NANSCOPE_FN F32 min_ignore(const F32& a, const F32& b) { return select((a <= b) | is_nan(b), a, b); }

}  // namespace nanscope::kernels::NANSCOPE_ISA

#include "kernels/warp/warp_cpu_lanes.h"
