#pragma once
#include "core/blocks/block_format.h"
#include "core/numbers/codec.h"

/// An element of a block rounded to its code, by any rule for ties; in integers, for hosts, CUDA threads and lanes.
namespace nanscope {

namespace block_detail {

/// Integer shift right by 1 <= shift <= 31; `random`: 32 bits of a draw, read by Ties::stochastic alone.
template <class U>
NANSCOPE_HD U shift_with_ties(const U& value, const U& shift, Ties ties, const U& random) {
  const U one(1u);
  if (ties == Ties::even) return codec_detail::round_shift(value, shift);
  const U half = one << (shift - one);
  if (ties == Ties::away || ties == Ties::away_sum) return (value + half) >> shift;
  if (ties == Ties::stochastic) return (value + (random >> (U(32u) - shift))) >> shift;
  return (value + (half - one)) >> shift;
}

}  // namespace block_detail

/// f32 bits of the scaled element to a code of a format with exponent bits, or of int8; saturates. Ties::offset is for
/// no format that kernels know and is taken for Ties::even.
template <class U>
NANSCOPE_HD U encode_block_element(const CodecParams& p, Ties ties, const U& bits, const U& random) {
  if (ties == Ties::even || ties == Ties::offset) return encode_bits(p, bits, Overflow::saturate);
  const U magnitude = bits & U(0x7fffffffu);
  const auto nan = magnitude > U(0x7f800000u);
  const codec_detail::Unpacked<U> in = codec_detail::unpack(magnitude);
  // The exponent field whose unit is that of the smallest codes, 1 for int8.
  const int kept = p.exponent_bits == 0 ? p.mantissa_bits - 1 : p.mantissa_bits;
  const int lowest = p.exponent_bits == 0 ? 127 + kept : 128 - p.bias;
  const U smallest(static_cast<std::uint32_t>(lowest));
  const auto below = in.exponent < smallest;
  const U deficit = select(below, smallest - in.exponent, U(0u));
  const U wanted = U(static_cast<std::uint32_t>(23 - kept)) + deficit;
  // Beyond 31 the significand is cut first: no tie is left there, and chances of less than 2^-31 are rounded down.
  const U cut = select(wanted > U(31u), select(wanted > U(62u), U(31u), wanted - U(31u)), U(0u));
  const U shift = select(wanted > U(31u), U(31u), wanted);
  const U field = select(below, U(0u), in.exponent - smallest);
  const U rounded = (field << kept) + block_detail::shift_with_ties(in.sig >> cut, shift, ties, random);
  const U largest(p.max_finite_code);
  const U code = select(rounded > largest, largest, rounded);
  if (p.exponent_bits == 0) {
    const U both = select((bits >> 31) == U(1u), U(0u) - code, code) & U(0xffu);
    return select(nan, U(p.nan_code), both);
  }
  const U sign = (bits >> 31) << (p.exponent_bits + p.mantissa_bits);
  return select(nan, U(p.nan_code), code | sign);
}

/// 32 random bits for element `index` under `seed`: a counter, so that the order of the work does not matter
/// (the finaliser of MurmurHash3, twice).
template <class U>
NANSCOPE_HD U block_draw(const U& index, std::uint32_t seed) {
  U x = index ^ U(seed);
  for (int round = 0; round < 2; ++round) {
    x = x ^ (x >> 16);
    x = x * U(0x85ebca6bu);
    x = x ^ (x >> 13);
    x = x * U(0xc2b2ae35u);
    x = x ^ (x >> 16);
  }
  return x;
}

}  // namespace nanscope
