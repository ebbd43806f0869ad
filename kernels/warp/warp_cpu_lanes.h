#pragma once
/// Second part of warp_cpu.h: lanes talking to each other and to memory.
#include "kernels/warp/warp_cpu_narrow.h"

namespace nanscope::kernels::NANSCOPE_ISA {

// Lanes talking to each other.

namespace detail {
template <int Bit, class T, int... I>
NANSCOPE_FN Register<T> xor_in_register(Register<T> a, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, a, (I ^ Bit)...);
}
/// Lane i gets lane i ^ Bit, Bit a power of two.
template <int Bit, class T>
NANSCOPE_FN Lanes<T> xor_bit(const Lanes<T>& a) {
  using L = Lanes<T>;
  L r;
  NANSCOPE_UNROLL for (int i = 0; i < L::kCount; ++i) {
    if constexpr (Bit >= L::kWidth) {
      r.v[i] = a.v[i ^ (Bit / L::kWidth)];
    } else {
      r.v[i] = xor_in_register<Bit, T>(a.v[i], std::make_integer_sequence<int, L::kWidth>{});
    }
  }
  return r;
}

/// The butterfly 16 8 4 2 1 of a commutative operation. Lane 0's result is the answer: for a tie of
/// +0 and -0 the lanes of a maximum may differ in sign.
template <class T, class Combine>
NANSCOPE_FN T reduce(Lanes<T> a, Combine combine) {
  a = combine(a, xor_bit<16>(a));
  a = combine(a, xor_bit<8>(a));
  a = combine(a, xor_bit<4>(a));
  a = combine(a, xor_bit<2>(a));
  a = combine(a, xor_bit<1>(a));
  return a.v[0][0];
}
}  // namespace detail

/// Lane i gets lane i ^ m, 0 <= m < 32.
template <class T>
NANSCOPE_FN Lanes<T> xor_lane(const Lanes<T>& a, int m) {
  Lanes<T> r = a;
  if ((m & 16) != 0) r = detail::xor_bit<16>(r);
  if ((m & 8) != 0) r = detail::xor_bit<8>(r);
  if ((m & 4) != 0) r = detail::xor_bit<4>(r);
  if ((m & 2) != 0) r = detail::xor_bit<2>(r);
  if ((m & 1) != 0) r = detail::xor_bit<1>(r);
  return r;
}

/// The value of one lane, uniform.
template <class T>
NANSCOPE_FN T broadcast(const Lanes<T>& a, int lane) {
  return a.v[lane / Lanes<T>::kWidth][lane % Lanes<T>::kWidth];
}

NANSCOPE_FN float sum(const F32& a) {
  return detail::reduce(
      a, [](const F32& x, const F32& y) __attribute__((always_inline)) { return x + y; });
}
NANSCOPE_FN double sum(const F64& a) {
  return detail::reduce(
      a, [](const F64& x, const F64& y) __attribute__((always_inline)) { return x + y; });
}
NANSCOPE_FN std::uint32_t sum_u32(const U32& a) {
  return detail::reduce(
      a, [](const U32& x, const U32& y) __attribute__((always_inline)) { return x + y; });
}
NANSCOPE_FN std::uint64_t sum_u64(const U64& a) {
  return detail::reduce(
      a, [](const U64& x, const U64& y) __attribute__((always_inline)) { return x + y; });
}
NANSCOPE_FN float max_propagate_across(const F32& a) {
  return detail::reduce(
      a, [](const F32& x, const F32& y) __attribute__((always_inline)) { return max_propagate(x, y); });
}
NANSCOPE_FN float min_propagate_across(const F32& a) {
  return detail::reduce(
      a, [](const F32& x, const F32& y) __attribute__((always_inline)) { return min_propagate(x, y); });
}
NANSCOPE_FN float max_ignore_across(const F32& a) {
  return detail::reduce(
      a, [](const F32& x, const F32& y) __attribute__((always_inline)) { return max_ignore(x, y); });
}
NANSCOPE_FN float min_ignore_across(const F32& a) {
  return detail::reduce(
      a, [](const F32& x, const F32& y) __attribute__((always_inline)) { return min_ignore(x, y); });
}
/// Of lanes without NaN. Where zeros of both signs tie, either.
NANSCOPE_FN float lowest_across(const F32& a) {
  return detail::reduce(
      a, [](const F32& x, const F32& y) __attribute__((always_inline)) { return select(x < y, x, y); });
}
NANSCOPE_FN float highest_across(const F32& a) {
  return detail::reduce(
      a, [](const F32& x, const F32& y) __attribute__((always_inline)) { return select(x > y, x, y); });
}
NANSCOPE_FN std::int32_t min_i32_across(const I32& a) {
  return detail::reduce(
      a, [](const I32& x, const I32& y) __attribute__((always_inline)) { return select(x <= y, x, y); });
}
NANSCOPE_FN std::int32_t max_i32_across(const I32& a) {
  return detail::reduce(
      a, [](const I32& x, const I32& y) __attribute__((always_inline)) { return select(x >= y, x, y); });
}
NANSCOPE_FN std::uint32_t min_u32_across(const U32& a) {
  return detail::reduce(
      a, [](const U32& x, const U32& y) __attribute__((always_inline)) { return select(x <= y, x, y); });
}
NANSCOPE_FN std::uint32_t max_u32_across(const U32& a) {
  return detail::reduce(
      a, [](const U32& x, const U32& y) __attribute__((always_inline)) { return select(x >= y, x, y); });
}

// Memory: lane i touches element i, lanes i < n only.

namespace detail {
template <class T, class Stored>
NANSCOPE_FN Lanes<T> load_whole(const Stored* p) {
  if constexpr (sizeof(T) == sizeof(Stored)) {
    Lanes<T> r;
    NANSCOPE_UNROLL for (int i = 0; i < Lanes<T>::kCount; ++i) {
      std::memcpy(&r.v[i], p + i * Lanes<T>::kWidth, sizeof(r.v[i]));
    }
    return r;
  } else {
    return load_narrow(p);
  }
}
template <class T, class Stored>
NANSCOPE_FN void store_whole(Stored* p, const Lanes<T>& a) {
  if constexpr (sizeof(T) == sizeof(Stored)) {
    NANSCOPE_UNROLL for (int i = 0; i < Lanes<T>::kCount; ++i) {
      std::memcpy(p + i * Lanes<T>::kWidth, &a.v[i], sizeof(a.v[i]));
    }
  } else {
    store_narrow(p, a);
  }
}
template <class T, class Stored>
NANSCOPE_FN Lanes<T> load_lanes(const Stored* p, std::int64_t n, Stored fill) {
  if (n >= kLanes) return load_whole<T>(p);
  alignas(64) Stored whole[kLanes];
  for (Stored& element : whole) element = fill;
  for (std::int64_t i = 0; i < n; ++i) whole[i] = p[i];
  return load_whole<T>(static_cast<const Stored*>(whole));
}
template <class T, class Stored>
NANSCOPE_FN void store_lanes(Stored* p, const Lanes<T>& a, std::int64_t n) {
  if (n >= kLanes) return store_whole(p, a);
  alignas(64) Stored whole[kLanes];
  store_whole(static_cast<Stored*>(whole), a);
  for (std::int64_t i = 0; i < n; ++i) p[i] = whole[i];
}
}  // namespace detail

/// Lanes beyond n, which may exceed 32 or be negative, get `fill`.
NANSCOPE_FN F32 load_f32(const float* p, std::int64_t n, float fill) { return detail::load_lanes<float>(p, n, fill); }
NANSCOPE_FN U32 load_u32(const std::uint32_t* p, std::int64_t n) { return detail::load_lanes<std::uint32_t>(p, n, 0U); }
NANSCOPE_FN I32 load_i32(const std::int32_t* p, std::int64_t n) { return detail::load_lanes<std::int32_t>(p, n, 0); }
NANSCOPE_FN U64 load_u64(const std::uint64_t* p, std::int64_t n) {
  return detail::load_lanes<std::uint64_t>(p, n, std::uint64_t{0});
}
NANSCOPE_FN U32 load_u16(const std::uint16_t* p, std::int64_t n) {
  return detail::load_lanes<std::uint32_t>(p, n, std::uint16_t{0});
}
NANSCOPE_FN U32 load_u8(const std::uint8_t* p, std::int64_t n) {
  return detail::load_lanes<std::uint32_t>(p, n, std::uint8_t{0});
}

/// Lane i reads the 8 bytes from offset + 8 i on of a byte stream: rows of row_bytes that lie
/// stride_bytes apart. Bytes at `total` and beyond are 0.
NANSCOPE_FN U64 load_bytes(const std::uint8_t* base, std::int64_t offset, std::int64_t total, std::int64_t row_bytes,
                           std::int64_t stride_bytes) {
  constexpr std::int64_t kBlock = 8 * kLanes;
  std::int64_t row = offset / row_bytes;
  std::int64_t column = offset - row * row_bytes;
  const std::uint8_t* from = base + row * stride_bytes + column;
  alignas(64) std::uint8_t block[kBlock];
  if (row_bytes - column < kBlock || total - offset < kBlock) {
    const std::int64_t wanted = total - offset < kBlock ? total - offset : kBlock;
    std::memset(block, 0, sizeof(block));
    for (std::int64_t done = 0; done < wanted; ++row, column = 0) {
      const std::int64_t in_row = row_bytes - column < wanted - done ? row_bytes - column : wanted - done;
      std::memcpy(block + done, base + row * stride_bytes + column, static_cast<std::size_t>(in_row));
      done += in_row;
    }
    from = block;
  }
  U64 r;
  NANSCOPE_UNROLL for (int i = 0; i < U64::kCount; ++i) {
    std::memcpy(&r.v[i], from + i * static_cast<int>(sizeof(r.v[i])), sizeof(r.v[i]));
  }
  return r;
}

/// NaN is stored canonical: this is where computed bits become observable.
NANSCOPE_FN void store_f32(float* p, const F32& a, std::int64_t n) { detail::store_lanes(p, canonical(a), n); }
/// Bits unchanged: pure moves, and sums that are not finished.
NANSCOPE_FN void store_raw_f32(float* p, const F32& a, std::int64_t n) { detail::store_lanes(p, a, n); }
NANSCOPE_FN void store_u32(std::uint32_t* p, const U32& a, std::int64_t n) { detail::store_lanes(p, a, n); }
NANSCOPE_FN void store_i32(std::int32_t* p, const I32& a, std::int64_t n) { detail::store_lanes(p, a, n); }
NANSCOPE_FN void store_u64(std::uint64_t* p, const U64& a, std::int64_t n) { detail::store_lanes(p, a, n); }
/// The low bits of each lane.
NANSCOPE_FN void store_u16(std::uint16_t* p, const U32& a, std::int64_t n) { detail::store_lanes(p, a, n); }
NANSCOPE_FN void store_u8(std::uint8_t* p, const U32& a, std::int64_t n) { detail::store_lanes(p, a, n); }

/// Copies n bytes, bits unchanged; the warp walks over them.
NANSCOPE_FN void copy_bytes(void* to, const void* from, std::int64_t n) {
  std::memcpy(to, from, static_cast<std::size_t>(n));
}

/// base[index] in lanes of the mask, +0 elsewhere; other lanes read nothing.
NANSCOPE_FN F32 gather_f32(const float* base, const I32& index, const Mask& mask) {
  F32 r;
  NANSCOPE_UNROLL for (int i = 0; i < F32::kCount; ++i) {
    for (int j = 0; j < F32::kWidth; ++j) r.v[i][j] = mask.v[i][j] != 0 ? base[index.v[i][j]] : 0.0F;
  }
  return r;
}

/// The same of codes of any size, in the low bits.
template <class T>
NANSCOPE_FN U32 gather_code(const T* base, const I32& index, const Mask& mask) {
  U32 r;
  NANSCOPE_UNROLL for (int i = 0; i < U32::kCount; ++i) {
    for (int j = 0; j < U32::kWidth; ++j) r.v[i][j] = mask.v[i][j] != 0 ? base[index.v[i][j]] : 0U;
  }
  return r;
}

/// One value of memory for the whole warp.
template <class T>
NANSCOPE_FN T load_scalar(const T* p) {
  return *p;
}
/// Stores one uniform value once. Floats: canonicalise first with canonical_uniform().
template <class T>
NANSCOPE_FN void store_uniform(T* p, T value) {
  *p = value;
}
NANSCOPE_FN std::uint32_t raw_bits_uniform(float value) { return std::bit_cast<std::uint32_t>(value); }
NANSCOPE_FN float from_bits_uniform(std::uint32_t value) { return std::bit_cast<float>(value); }
NANSCOPE_FN bool is_nan_uniform(float value) { return (raw_bits_uniform(value) & 0x7fffffffU) > 0x7f800000U; }
NANSCOPE_FN float canonical_uniform(float value) {
  return is_nan_uniform(value) ? from_bits_uniform(kCanonicalNan) : value;
}
/// Makes earlier stores of this warp visible to its own later loads by other lanes.
NANSCOPE_FN void warp_sync() {}

}  // namespace nanscope::kernels::NANSCOPE_ISA
