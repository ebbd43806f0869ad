/// K-quants: 256 elements whose parts of 16 or 32 have scales of 4 to 8 bits, under one f16 for all; and ternary codes.
#include <array>

#include "instrument/gguf/types/decoders.h"

namespace nanscope::gguf {
namespace {

constexpr std::size_t kElements = 256;

/// The scale and the minimum of a part of 32, six bits each, of twelve bytes: four of the first parts in the lower six
/// bits of eight bytes, the others in nibbles behind them and in the upper two bits of those eight.
struct SixBits {
  unsigned scale;
  unsigned minimum;
};

SixBits six_bits(const std::byte* packed, std::size_t part) {
  if (part < 4) return {byte_at(packed, part) & 63U, byte_at(packed, part + 4) & 63U};
  const unsigned low = byte_at(packed, part + 4);
  return {(low & 15U) | byte_at(packed, part - 4) >> 6 << 4, low >> 4 | byte_at(packed, part) >> 6 << 4};
}

float number(unsigned code) { return static_cast<float>(code); }
float number(int code) { return static_cast<float>(code); }

/// Q4_K and Q5_K: `fifths` are 32 bytes whose bit p is of part p; null: codes have four bits.
void with_minimums(const std::byte* block, const std::byte* fifths, const std::byte* codes, float* values) {
  const float scale = half_at(block);
  const float minimum = half_at(block + 2);
  for (std::size_t part = 0; part < 8; ++part) {
    const SixBits six = six_bits(block + 4, part);
    const float step = scale * number(six.scale);
    const float least = minimum * number(six.minimum);
    for (std::size_t i = 0; i < 32; ++i) {
      unsigned code = byte_at(codes, part / 2 * 32 + i) >> (part % 2 * 4) & 15U;
      if (fifths != nullptr) code |= (byte_at(fifths, i) >> part & 1U) << 4;
      values[part * 32 + i] = step * number(code) - least;
    }
  }
}

/// Codes of two bits: those of a half of the block in four turns of 32, two bits further up in the same 32 bytes.
unsigned two_bits(const std::byte* codes, std::size_t i) {
  return byte_at(codes, i / 128 * 32 + i % 32) >> (i / 32 % 4 * 2) & 3U;
}

}  // namespace

void decode_Q2_K(const std::byte* block, float* values) {
  const float scale = half_at(block + 80);
  const float minimum = half_at(block + 82);
  for (std::size_t part = 0; part < 16; ++part) {
    const unsigned packed = byte_at(block, part);
    const float step = scale * number(packed & 15U);
    const float least = minimum * number(packed >> 4);
    for (std::size_t i = part * 16; i < part * 16 + 16; ++i) values[i] = step * number(two_bits(block + 16, i)) - least;
  }
}

void decode_Q3_K(const std::byte* block, float* values) {
  const float scale = half_at(block + 108);
  const std::byte* packed = block + 96;
  for (std::size_t part = 0; part < 16; ++part) {
    const unsigned low = byte_at(packed, part % 8) >> (part / 8 * 4) & 15U;
    const unsigned high = byte_at(packed, 8 + part % 4) >> (part / 4 * 2) & 3U;
    const float step = scale * number(static_cast<int>(low | high << 4) - 32);
    for (std::size_t i = part * 16; i < part * 16 + 16; ++i) {
      const unsigned third = byte_at(block, i % 32) >> (i / 32) & 1U;
      values[i] = step * number(static_cast<int>(two_bits(block + 32, i) | third << 2) - 4);
    }
  }
}

void decode_Q4_K(const std::byte* block, float* values) { with_minimums(block, nullptr, block + 16, values); }

void decode_Q5_K(const std::byte* block, float* values) { with_minimums(block, block + 16, block + 48, values); }

void decode_Q6_K(const std::byte* block, float* values) {
  const float scale = half_at(block + 208);
  for (std::size_t i = 0; i < kElements; ++i) {
    const std::size_t half = i / 128;
    const std::size_t turn = i / 32 % 4;
    const unsigned low = byte_at(block, half * 64 + turn % 2 * 32 + i % 32) >> (turn / 2 * 4) & 15U;
    const unsigned high = byte_at(block + 128, half * 32 + i % 32) >> (turn * 2) & 3U;
    const float step = scale * static_cast<float>(load<std::int8_t>(block + 192 + i / 16));
    values[i] = step * number(static_cast<int>(low | high << 4) - 32);
  }
}

/// Five digits of base 3 in a byte, as the fraction digits / 243 of 256: the byte times 3^n has digit n above it.
void decode_TQ1_0(const std::byte* block, float* values) {
  constexpr std::array<unsigned, 5> kPowers = {1, 3, 9, 27, 81};
  const float scale = half_at(block + 52);
  const auto digits = [&](std::size_t first, std::size_t bytes, std::size_t count) {
    for (std::size_t n = 0; n < count; ++n) {
      for (std::size_t i = 0; i < bytes; ++i) {
        const unsigned rest = byte_at(block, first + i) * kPowers[n] & 255U;
        *values++ = scale * number(static_cast<int>(rest * 3 >> 8) - 1);
      }
    }
  };
  digits(0, 32, 5);
  digits(32, 16, 5);
  digits(48, 4, 4);
}

void decode_TQ2_0(const std::byte* block, float* values) {
  const float scale = half_at(block + 64);
  for (std::size_t i = 0; i < kElements; ++i) values[i] = scale * number(static_cast<int>(two_bits(block, i)) - 1);
}

}  // namespace nanscope::gguf
