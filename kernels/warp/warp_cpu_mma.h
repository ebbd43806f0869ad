#pragma once
/// The CPU's counterpart of mma_m16n8k16() in warp_cuda.h: the model of kernels/ops/gemm_tensor_core.h of what a tensor
/// core does, for one row of A and 32 columns of B, a lane a column. Operands are taken apart once, into significands
/// and exponents, so that a product is an integer and cutting off is a shift.
#include <cstdint>

#include "core/numbers/format.h"
#include "kernels/warp/warp.h"

namespace nanscope::kernels::NANSCOPE_ISA {

inline constexpr int kMmaProducts = 16;  ///< of one step
inline constexpr int kMmaFraction = 25;  ///< bits below the largest exponent that are kept
/// Exponent of a zero: below all others, and no sum of it and another overflows.
inline constexpr std::int32_t kMmaNothing = -4096;

/// Of the formats of 16 bits. `kShift` makes a product of two significands, of which one is shifted, a number of units
/// of 2^(E - kMmaFraction), where its own exponent is E; `kRaised` turns the exponent's field into that of f32.
template <Format F>
struct MmaFormat;
template <>
struct MmaFormat<Format::bf16> {
  static constexpr int kFractionBits = 7;
  static constexpr std::uint32_t kFields = 0xffU;
  static constexpr std::int32_t kRaised = 0;
  static constexpr int kShift = kMmaFraction - 14;
};
template <>
struct MmaFormat<Format::f16> {
  static constexpr int kFractionBits = 10;
  static constexpr std::uint32_t kFields = 0x1fU;
  static constexpr std::int32_t kRaised = 112;
  static constexpr int kShift = kMmaFraction - 20;
};

/// `Depth` values of a row of A.
template <std::int64_t Depth>
struct MmaRow {
  std::int32_t significands[Depth];  ///< with their signs
  std::int32_t exponents[Depth];     ///< as f32's field; kMmaNothing of zeros
  float values[Depth];
  bool special[Depth / kMmaProducts];  ///< whether there is a NaN or an Inf among the products of a step
};
/// The same of 32 columns of B, lane after lane; significands are shifted.
template <std::int64_t Depth>
struct MmaColumns {
  alignas(64) std::int32_t significands[Depth * kLanes];
  alignas(64) std::int32_t exponents[Depth * kLanes];
  alignas(64) float values[Depth * kLanes];
  bool special[Depth / kMmaProducts];
};

namespace detail {

struct MmaParts {
  I32 significand, exponent;
  Mask special;
};

template <Format F>
NANSCOPE_FN MmaParts mma_parts(const U32& code) {
  using Of = MmaFormat<F>;
  const U32 field = (code >> Of::kFractionBits) & U32(Of::kFields);
  const U32 fraction = code & U32((1U << Of::kFractionBits) - 1U);
  const Mask normal = field != U32(0U);
  const I32 magnitude = to_i32(fraction | select(normal, U32(1U << Of::kFractionBits), U32(0U)));
  const I32 sign = I32(0) - to_i32((code >> 15) & U32(1U));
  MmaParts parts;
  parts.significand = (magnitude ^ sign) - sign;
  const I32 exponent = to_i32(select(normal, field, U32(1U))) + I32(Of::kRaised);
  parts.exponent = select(magnitude == I32(0), I32(kMmaNothing), exponent);
  parts.special = field == U32(Of::kFields);
  return parts;
}

template <Format F>
NANSCOPE_FN F32 mma_value(const U32& code) {
  if constexpr (F == Format::f16) return decode_f16(code);
  return from_bits(code << 16);
}

NANSCOPE_FN I32 larger(const I32& a, const I32& b) { return select(a > b, a, b); }

/// Cut off towards zero by 2^places, which are not below 0.
NANSCOPE_FN I32 cut_off(const I32& number, const I32& places) {
  const I32 sign = number >> 31;
  const U32 most = to_u32(select(places > I32(31), I32(31), places));
  const I32 magnitude = to_i32(to_u32((number ^ sign) - sign) >> most);
  return (magnitude ^ sign) - sign;
}

/// To f32, towards zero; from 2^128 on Inf.
NANSCOPE_FN F32 cut_to_f32(const F64& sum) {
  const F32 nearest = to_f32(sum);
  const Mask above = to_f64(abs(nearest)) > abs(sum);
  const Mask fits = abs(sum) < splat_f64(0x1p128);
  return from_bits(raw_bits(nearest) - select(above & fits, U32(1U), U32(0U)));
}

}  // namespace detail

/// Takes `depth` codes apart; a multiple of kMmaProducts.
template <Format F, std::int64_t Depth>
NANSCOPE_FN void take_row(const std::uint32_t* codes, std::int64_t depth, MmaRow<Depth>& row) {
  for (std::int64_t k = 0; k < depth; k += kLanes) {
    const U32 code = load_u32(codes + k, kLanes);
    const detail::MmaParts parts = detail::mma_parts<F>(code);
    store_i32(row.significands + k, parts.significand, kLanes);
    store_i32(row.exponents + k, parts.exponent, kLanes);
    store_raw_f32(row.values + k, detail::mma_value<F>(code), kLanes);
    const std::uint32_t special = ballot(parts.special);
    row.special[k / kMmaProducts] = (special & 0xffffU) != 0;
    row.special[k / kMmaProducts + 1] = (special >> 16) != 0;
  }
}

/// Takes `depth` rows of 32 codes apart.
template <Format F, std::int64_t Depth>
NANSCOPE_FN void take_columns(const std::uint32_t* codes, std::int64_t depth, MmaColumns<Depth>& columns) {
  for (std::int64_t k = 0; k < depth; ++k) {
    const U32 code = load_u32(codes + k * kLanes, kLanes);
    const detail::MmaParts parts = detail::mma_parts<F>(code);
    store_i32(columns.significands + k * kLanes, parts.significand << MmaFormat<F>::kShift, kLanes);
    store_i32(columns.exponents + k * kLanes, parts.exponent, kLanes);
    store_raw_f32(columns.values + k * kLanes, detail::mma_value<F>(code), kLanes);
    bool& special = columns.special[k / kMmaProducts];
    special = (k % kMmaProducts != 0 && special) || any(parts.special);
  }
}

/// c + the products k to k + 15. The sum of the 16 products stays below 2^31: 16 * 255^2 * 2^11 and 16 * 2047^2 * 2^5
/// do. With the accumulator it may not, and is made in f64, which holds it.
template <Format F, std::int64_t Depth>
NANSCOPE_FN F32 mma_step(const MmaRow<Depth>& row, const MmaColumns<Depth>& columns, std::int64_t k, const F32& c) {
  constexpr std::int32_t kBias = 127;  // of one exponent: a product's has it twice
  const U32 bits = raw_bits(c);
  const I32 field = to_i32((bits >> 23) & U32(0xffU));
  const Mask normal = field != I32(0);
  const I32 magnitude = to_i32((bits & U32(0x7fffffU)) | select(normal, U32(0x800000U), U32(0U)));
  const I32 exponent = select(magnitude == I32(0), I32(kMmaNothing), select(normal, field, I32(1)) + I32(kBias));
  I32 largest = detail::larger(exponent, I32(2));  // no product's is less
  for (int i = 0; i < kMmaProducts; ++i) {
    const I32 b = load_i32(columns.exponents + (k + i) * kLanes, kLanes);
    largest = detail::larger(largest, b + I32(row.exponents[k + i]));
  }
  I32 products(0);
  for (int i = 0; i < kMmaProducts; ++i) {
    const I32 b = load_i32(columns.exponents + (k + i) * kLanes, kLanes);
    const I32 significand = load_i32(columns.significands + (k + i) * kLanes, kLanes);
    products =
        products + detail::cut_off(significand * I32(row.significands[k + i]), largest - b - I32(row.exponents[k + i]));
  }
  const I32 sign = I32(0) - to_i32(bits >> 31);
  const I32 number = ((magnitude << (kMmaFraction - 23)) ^ sign) - sign;
  const F64 units = to_f64(products) + to_f64(detail::cut_off(number, largest - exponent));
  const I32 unit = largest + I32(1023 - 2 * kBias - kMmaFraction);  // the field of 2^(E - 25) in f64
  const F32 sum = detail::cut_to_f32(units * from_bits(to_u64(to_u32(unit)) << 52));
  const bool special = row.special[k / kMmaProducts] || columns.special[k / kMmaProducts] || !all(is_finite(c));
  if (!special) return sum;
  F64 all_terms = to_f64(c);
  for (int i = 0; i < kMmaProducts; ++i) {
    const F64 b = to_f64(load_f32(columns.values + (k + i) * kLanes, kLanes, 0.0F));
    all_terms = all_terms + b * splat_f64(static_cast<double>(row.values[k + i]));
  }
  return select(abs(all_terms) <= splat_f64(0x1p1000), sum, to_f32(all_terms));
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
