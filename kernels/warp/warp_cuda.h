#pragma once
/// The warp on a GPU: a lane is a thread, a lane type is a scalar. The same names and the same bits
/// as warp_cpu.h. Operators are the language's own, so the file must be compiled with -fmad=false
/// (a*b+c stays two roundings) and without fast-math; a test reads the PTX to prove it.
///
/// Every function must be reached by all 32 threads of a warp together.
#include <cstdint>

#if !defined(__CUDACC__)
#error "warp_cuda.h is for nvcc"
#endif

#define NANSCOPE_FN static __device__ __forceinline__
#define NANSCOPE_LANE static __device__ __forceinline__
#define NANSCOPE_HOST static __host__ __device__ __forceinline__
#define NANSCOPE_CALLED [[maybe_unused]] static __device__ __noinline__
#define NANSCOPE_UNROLL _Pragma("unroll")

namespace nanscope::kernels::NANSCOPE_ISA {

using F32 = float;
using U32 = std::uint32_t;
using I32 = std::int32_t;
using F64 = double;
using U64 = std::uint64_t;
using Mask = bool;

inline constexpr std::uint32_t kWholeWarp = 0xffffffffU;

/// Kernels of one op, each a struct with the op's Args and run(): as its `Forms`. form(args), the op's, is the index of
/// the one to launch. For an op whose paths want registers and shared memory of their own.
template <class... Forms>
struct FormList {
  template <class... More>
  FormList<Forms..., More...> operator+(FormList<More...> more) const;
};
/// The forms of all lists, one after the other.
template <class... Lists>
using JoinedForms = decltype((Lists{} + ...));

// Uniform to varying.

NANSCOPE_FN F32 splat_f32(float value) { return value; }
NANSCOPE_FN F64 splat_f64(double value) { return value; }
NANSCOPE_FN U32 splat_u32(std::uint32_t value) { return value; }
NANSCOPE_FN I32 splat_i32(std::int32_t value) { return value; }
NANSCOPE_FN U64 splat_u64(std::uint64_t value) { return value; }
NANSCOPE_FN U32 lane_id() { return threadIdx.x & (kLanes - 1U); }

// Bits, signs.

NANSCOPE_FN U32 raw_bits(F32 a) { return __float_as_uint(a); }
NANSCOPE_FN F32 from_bits(U32 a) { return __uint_as_float(a); }
NANSCOPE_FN U64 raw_bits(F64 a) { return static_cast<U64>(__double_as_longlong(a)); }
NANSCOPE_FN F64 from_bits(U64 a) { return __longlong_as_double(static_cast<long long>(a)); }
NANSCOPE_FN U32 to_u32(I32 a) { return static_cast<U32>(a); }
NANSCOPE_FN I32 to_i32(U32 a) { return static_cast<I32>(a); }

NANSCOPE_FN F32 abs(F32 a) { return from_bits(raw_bits(a) & 0x7fffffffU); }
NANSCOPE_FN F64 abs(F64 a) { return from_bits(raw_bits(a) & 0x7fffffffffffffffU); }
NANSCOPE_FN F32 copy_sign(F32 a, F32 b) { return from_bits((raw_bits(a) & 0x7fffffffU) | (raw_bits(b) & 0x80000000U)); }
NANSCOPE_FN F64 copy_sign(F64 a, F64 b) {
  return from_bits((raw_bits(a) & 0x7fffffffffffffffU) | (raw_bits(b) & 0x8000000000000000U));
}

// Masks, selection.

NANSCOPE_FN Mask splat_mask(bool value) { return value; }
template <class T>
NANSCOPE_FN T select(Mask mask, T a, T b) {
  return mask ? a : b;
}
NANSCOPE_FN Mask lanes_below(std::int64_t n) { return static_cast<std::int64_t>(lane_id()) < n; }
NANSCOPE_FN std::uint32_t ballot(Mask mask) { return __ballot_sync(kWholeWarp, mask); }
NANSCOPE_FN bool any(Mask mask) { return __any_sync(kWholeWarp, mask) != 0; }
NANSCOPE_FN bool all(Mask mask) { return __all_sync(kWholeWarp, mask) != 0; }
NANSCOPE_FN int count(Mask mask) { return __popc(ballot(mask)); }

// fma, square root: one rounding.

NANSCOPE_FN F32 fma(F32 a, F32 b, F32 c) { return __fmaf_rn(a, b, c); }
NANSCOPE_FN F64 fma(F64 a, F64 b, F64 c) { return __fma_rn(a, b, c); }
NANSCOPE_FN F32 sqrt(F32 a) { return __fsqrt_rn(a); }
NANSCOPE_FN F64 sqrt(F64 a) { return __dsqrt_rn(a); }
NANSCOPE_FN float fma_uniform(float a, float b, float c) { return __fmaf_rn(a, b, c); }
NANSCOPE_FN double fma_uniform(double a, double b, double c) { return __fma_rn(a, b, c); }
NANSCOPE_FN float sqrt_uniform(float a) { return __fsqrt_rn(a); }
NANSCOPE_FN double sqrt_uniform(double a) { return __dsqrt_rn(a); }

// Conversions between lane types.

NANSCOPE_FN F64 to_f64(F32 a) { return static_cast<double>(a); }
NANSCOPE_FN F64 to_f64(I32 a) { return __int2double_rn(a); }
NANSCOPE_FN F64 to_f64(U32 a) { return __uint2double_rn(a); }
NANSCOPE_FN F32 to_f32(F64 a) { return __double2float_rn(a); }
NANSCOPE_FN F32 to_f32(I32 a) { return __int2float_rn(a); }
NANSCOPE_FN F32 to_f32(U32 a) { return __uint2float_rn(a); }
NANSCOPE_FN U64 to_u64(U32 a) { return a; }
NANSCOPE_FN U32 low_u32(U64 a) { return static_cast<U32>(a); }
NANSCOPE_FN U32 high_u32(U64 a) { return static_cast<U32>(a >> 32); }
NANSCOPE_FN I32 to_i32_rne(F64 a) { return to_i32(low_u32(raw_bits(__dadd_rn(a, 0x1.8p52)))); }
NANSCOPE_FN I32 to_i32_rne(F32 a) { return to_i32_rne(to_f64(a)); }
NANSCOPE_FN U64 mul_low(U64 a, U64 b) { return static_cast<U64>(low_u32(a)) * low_u32(b); }
NANSCOPE_FN U64 swap_halves(U64 a) { return (a << 32) | (a >> 32); }

// Classes of a float, by its bits.

NANSCOPE_FN Mask is_nan(F32 a) { return (raw_bits(a) & 0x7fffffffU) > 0x7f800000U; }
NANSCOPE_FN Mask is_inf(F32 a) { return (raw_bits(a) & 0x7fffffffU) == 0x7f800000U; }
NANSCOPE_FN Mask is_finite(F32 a) { return (raw_bits(a) & 0x7fffffffU) < 0x7f800000U; }
NANSCOPE_FN Mask is_nan(F64 a) { return (raw_bits(a) & 0x7fffffffffffffffU) > 0x7ff0000000000000U; }
NANSCOPE_FN U32 bits(F32 a) { return is_nan(a) ? kCanonicalNan : raw_bits(a); }
NANSCOPE_FN F32 canonical(F32 a) { return from_bits(bits(a)); }

NANSCOPE_FN F64 floor(F64 a) {
  const F64 nearest = __dadd_rn(__dadd_rn(a, 0x1.8p52), -0x1.8p52);
  return nearest > a ? __dadd_rn(nearest, -1.0) : nearest;
}

// Maximum and minimum: compare and select, the NaN rule in the name; a wins a tie.

NANSCOPE_FN F32 max_propagate(F32 a, F32 b) { return a >= b || is_nan(a) ? a : b; }
NANSCOPE_FN F32 min_propagate(F32 a, F32 b) { return a <= b || is_nan(a) ? a : b; }
NANSCOPE_FN F32 max_ignore(F32 a, F32 b) { return a >= b || is_nan(b) ? a : b; }
NANSCOPE_FN F32 min_ignore(F32 a, F32 b) { return a <= b || is_nan(b) ? a : b; }

// Lanes talking to each other.

template <class T>
NANSCOPE_FN T xor_lane(T a, int m) {
  return __shfl_xor_sync(kWholeWarp, a, m);
}
template <class T>
NANSCOPE_FN T broadcast(T a, int lane) {
  return __shfl_sync(kWholeWarp, a, lane);
}

namespace detail {
/// The butterfly of warp_cpu.h, and lane 0's result for all.
template <class T, class Combine>
NANSCOPE_FN T reduce(T a, Combine combine) {
  NANSCOPE_UNROLL for (int m = 16; m > 0; m >>= 1) a = combine(a, xor_lane(a, m));
  return broadcast(a, 0);
}
}  // namespace detail

NANSCOPE_FN float sum(F32 a) {
  return detail::reduce(a, [](F32 x, F32 y) { return __fadd_rn(x, y); });
}
NANSCOPE_FN double sum(F64 a) {
  return detail::reduce(a, [](F64 x, F64 y) { return __dadd_rn(x, y); });
}
/// Both sums by one butterfly: after its first step the lower lanes hold a's, the upper ones b's.
NANSCOPE_FN void sum_both(F64 a, F64 b, double& sum_a, double& sum_b) {
  const bool upper = (lane_id() & 16U) != 0;
  F64 kept = __dadd_rn(upper ? b : a, xor_lane(upper ? a : b, 16));
  NANSCOPE_UNROLL for (int m = 8; m > 0; m >>= 1) kept = __dadd_rn(kept, xor_lane(kept, m));
  sum_a = broadcast(kept, 0);
  sum_b = broadcast(kept, 16);
}
NANSCOPE_FN std::uint64_t sum_u64(U64 a) {
  return detail::reduce(a, [](U64 x, U64 y) { return x + y; });
}
NANSCOPE_FN float max_propagate_across(F32 a) {
  return detail::reduce(a, [](F32 x, F32 y) { return max_propagate(x, y); });
}
NANSCOPE_FN float min_propagate_across(F32 a) {
  return detail::reduce(a, [](F32 x, F32 y) { return min_propagate(x, y); });
}
NANSCOPE_FN float max_ignore_across(F32 a) {
  return detail::reduce(a, [](F32 x, F32 y) { return max_ignore(x, y); });
}
NANSCOPE_FN float min_ignore_across(F32 a) {
  return detail::reduce(a, [](F32 x, F32 y) { return min_ignore(x, y); });
}
// Integers are exact, so that the hardware's order is as good as the butterfly's.
NANSCOPE_FN std::uint32_t sum_u32(U32 a) { return __reduce_add_sync(kWholeWarp, a); }
NANSCOPE_FN std::int32_t min_i32_across(I32 a) { return __reduce_min_sync(kWholeWarp, a); }
NANSCOPE_FN std::int32_t max_i32_across(I32 a) { return __reduce_max_sync(kWholeWarp, a); }
NANSCOPE_FN std::uint32_t min_u32_across(U32 a) { return __reduce_min_sync(kWholeWarp, a); }
NANSCOPE_FN std::uint32_t max_u32_across(U32 a) { return __reduce_max_sync(kWholeWarp, a); }

namespace detail {
/// Signed integers in the order of the floats that are not NaN, -0 before +0; its own inverse.
NANSCOPE_FN I32 ordered(I32 float_bits) { return float_bits ^ ((float_bits >> 31) & 0x7fffffff); }
}  // namespace detail

NANSCOPE_FN float lowest_across(F32 a) {
  return from_bits(to_u32(detail::ordered(min_i32_across(detail::ordered(to_i32(raw_bits(a)))))));
}
NANSCOPE_FN float highest_across(F32 a) {
  return from_bits(to_u32(detail::ordered(max_i32_across(detail::ordered(to_i32(raw_bits(a)))))));
}

// Memory: lane i touches element i, lanes i < n only.

namespace detail {
template <class T, class Stored>
NANSCOPE_FN T load_lanes(const Stored* p, std::int64_t n, T fill) {
  return lanes_below(n) ? static_cast<T>(p[lane_id()]) : fill;
}
template <class T, class Stored>
NANSCOPE_FN void store_lanes(Stored* p, T a, std::int64_t n) {
  if (lanes_below(n)) p[lane_id()] = static_cast<Stored>(a);
}
}  // namespace detail

NANSCOPE_FN F32 load_f32(const float* p, std::int64_t n, float fill) { return detail::load_lanes(p, n, fill); }
NANSCOPE_FN U32 load_u32(const std::uint32_t* p, std::int64_t n) { return detail::load_lanes(p, n, 0U); }
NANSCOPE_FN I32 load_i32(const std::int32_t* p, std::int64_t n) { return detail::load_lanes(p, n, 0); }
NANSCOPE_FN U64 load_u64(const std::uint64_t* p, std::int64_t n) { return detail::load_lanes(p, n, U64{0}); }
NANSCOPE_FN U32 load_u16(const std::uint16_t* p, std::int64_t n) { return detail::load_lanes(p, n, 0U); }
NANSCOPE_FN U32 load_u8(const std::uint8_t* p, std::int64_t n) { return detail::load_lanes(p, n, 0U); }

NANSCOPE_FN void store_f32(float* p, F32 a, std::int64_t n) { detail::store_lanes(p, canonical(a), n); }
NANSCOPE_FN void store_raw_f32(float* p, F32 a, std::int64_t n) { detail::store_lanes(p, a, n); }
NANSCOPE_FN void store_u32(std::uint32_t* p, U32 a, std::int64_t n) { detail::store_lanes(p, a, n); }
NANSCOPE_FN void store_i32(std::int32_t* p, I32 a, std::int64_t n) { detail::store_lanes(p, a, n); }
NANSCOPE_FN void store_u64(std::uint64_t* p, U64 a, std::int64_t n) { detail::store_lanes(p, a, n); }
NANSCOPE_FN void store_u16(std::uint16_t* p, U32 a, std::int64_t n) { detail::store_lanes(p, a, n); }
NANSCOPE_FN void store_u8(std::uint8_t* p, U32 a, std::int64_t n) { detail::store_lanes(p, a, n); }

NANSCOPE_FN void copy_bytes(void* to, const void* from, std::int64_t n) {
  for (std::int64_t i = lane_id(); i < n; i += kLanes) {
    static_cast<std::uint8_t*>(to)[i] = static_cast<const std::uint8_t*>(from)[i];
  }
}

NANSCOPE_FN U64 load_bytes(const std::uint8_t* base, std::int64_t offset, std::int64_t total, std::int64_t row_bytes,
                           std::int64_t stride_bytes) {
  const std::int64_t at = offset + 8 * static_cast<std::int64_t>(lane_id());
  const std::int64_t row = at / row_bytes;
  const std::int64_t column = at - row * row_bytes;
  const std::uint8_t* from = base + row * stride_bytes + column;
  if (at + 8 <= total && column + 8 <= row_bytes && reinterpret_cast<std::uintptr_t>(from) % 8 == 0) {
    return *reinterpret_cast<const U64*>(from);
  }
  U64 word = 0;
  for (std::int64_t i = 0; i < 8 && at + i < total; ++i) {
    const std::int64_t byte_row = (at + i) / row_bytes;
    const std::uint8_t byte = base[byte_row * stride_bytes + (at + i - byte_row * row_bytes)];
    word |= static_cast<U64>(byte) << (8 * i);
  }
  return word;
}

NANSCOPE_FN F32 gather_f32(const float* base, I32 index, Mask mask) { return mask ? base[index] : 0.0F; }
template <class T>
NANSCOPE_FN U32 gather_code(const T* base, I32 index, Mask mask) {
  return mask ? base[index] : 0U;
}

template <class T>
NANSCOPE_FN T load_scalar(const T* p) {
  return *p;
}
template <class T>
NANSCOPE_FN void store_uniform(T* p, T value) {
  if (lane_id() == 0) *p = value;
}
NANSCOPE_FN std::uint32_t raw_bits_uniform(float value) { return __float_as_uint(value); }
NANSCOPE_FN float from_bits_uniform(std::uint32_t value) { return __uint_as_float(value); }
NANSCOPE_FN bool is_nan_uniform(float value) { return is_nan(value); }
NANSCOPE_FN float canonical_uniform(float value) { return canonical(value); }
NANSCOPE_FN void warp_sync() { __syncwarp(); }

// Tensor cores: kernels/ops/gemm_tensor_core.h says what they are taken to do; warp_cpu_mma.h is the CPU's half.

/// d += A B of 16 x 16 and 16 x 8 elements, two in each word, the lower first. As the PTX ISA lays them out, where
/// g = lane / 4 and t = lane % 4: a[0] is A's row g, columns 2t and 2t + 1; a[1] row g + 8; a[2] and a[3] the same
/// rows, columns 2t + 8 and 2t + 9; b[0] B's rows 2t and 2t + 1 of column g, b[1] rows 2t + 8 and 2t + 9; d[0] and d[1]
/// columns 2t and 2t + 1 of row g, d[2] and d[3] of row g + 8.
NANSCOPE_FN void mma_m16n8k16_bf16(float (&d)[4], const U32 (&a)[4], const U32 (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
NANSCOPE_FN void mma_m16n8k16_f16(float (&d)[4], const U32 (&a)[4], const U32 (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Blocks, which a CPU does not have: for what only a GPU's path of an op does.

/// Warps 4i to 4i + 3 run in one block, side by side. Where an op's warps() is a multiple of it, each warp of a block
/// has as many tasks as the others, and they may share memory and barriers.
inline constexpr int kBlockWarps = 4;
NANSCOPE_FN U32 block_warp() { return threadIdx.x / kLanes; }
NANSCOPE_FN void block_sync() { __syncthreads(); }
/// Whether a task is the first that this warp has.
NANSCOPE_FN bool first_task(std::int64_t task) {
  return task == static_cast<std::int64_t>(blockIdx.x) * kBlockWarps + block_warp();
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
