#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/numbers/codec.h"

/// What the decoders of types.def share. Bytes are read as little-endian.
namespace nanscope::gguf {

#define NANSCOPE_GGUF_TYPE(id, name, elements, bytes, scales, format) \
  void decode_##name(const std::byte* block, float* values);
#include "instrument/gguf/types.def"
#undef NANSCOPE_GGUF_TYPE

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

inline unsigned byte_at(const std::byte* at, std::size_t index) { return std::to_integer<unsigned>(at[index]); }

inline float half_at(const std::byte* at) { return decode(Format::f16, load<std::uint16_t>(at)); }

/// E4M3 without a sign or a NaN: 0x7f is 0, and 0xff, whose highest bit counts for nothing, 480.
inline float ue4m3(unsigned code) {
  if (code == 0x7FU) return 0.0F;
  return code == 0xFFU ? 480.0F : decode(Format::e4m3, code & 127U);
}

/// 2^(code - 128): half of what E8M0 says, for numbers of E2M1 that are doubled.
inline float half_of_e8m0(unsigned code) {
  return std::bit_cast<float>(code < 2 ? 0x00200000U << code : (code - 1) << 23);
}

/// The f16 that IQ1_M has in the upper four bits of each of four words.
inline float spread_half(const std::byte* words) {
  unsigned bits = 0;
  for (std::size_t i = 0; i < 4; ++i) bits |= byte_at(words, 2 * i + 1) >> 4 << (4 * i);
  return decode(Format::f16, bits);
}

}  // namespace nanscope::gguf
