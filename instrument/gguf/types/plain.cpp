/// Types whose elements are numbers of their own, and blocks of 32 or 64 with one scale for all, or for 16.
#include <array>

#include "instrument/gguf/types/decoders.h"

namespace nanscope::gguf {
namespace {

/// The numbers of E2M1, doubled: whole ones.
constexpr std::array<float, 16> kDoubledE2m1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// Sixteen bytes hold 32 codes: the first half of them in the lower four bits, the second in the upper.
template <class Value>
void halves(const std::byte* codes, std::size_t bytes, float* values, Value value) {
  for (std::size_t i = 0; i < bytes; ++i) {
    values[i] = value(byte_at(codes, i) & 15U, i);
    values[i + bytes] = value(byte_at(codes, i) >> 4, i + bytes);
  }
}

/// With the fifth bit of code i in bit i of a word.
unsigned with_fifth(unsigned code, std::uint32_t fifths, std::size_t i) { return code | (fifths >> i & 1U) << 4; }

float whole(unsigned code, int less) { return static_cast<float>(static_cast<int>(code) - less); }

}  // namespace

void decode_F32(const std::byte* block, float* values) { *values = load<float>(block); }
void decode_F16(const std::byte* block, float* values) { *values = half_at(block); }
void decode_BF16(const std::byte* block, float* values) {
  *values = std::bit_cast<float>(std::uint32_t{load<std::uint16_t>(block)} << 16);
}
void decode_F64(const std::byte* block, float* values) { *values = static_cast<float>(load<double>(block)); }
void decode_I8(const std::byte* block, float* values) { *values = load<std::int8_t>(block); }
void decode_I16(const std::byte* block, float* values) { *values = load<std::int16_t>(block); }
void decode_I32(const std::byte* block, float* values) { *values = static_cast<float>(load<std::int32_t>(block)); }
void decode_I64(const std::byte* block, float* values) { *values = static_cast<float>(load<std::int64_t>(block)); }

void decode_Q4_0(const std::byte* block, float* values) {
  const float scale = half_at(block);
  halves(block + 2, 16, values, [&](unsigned code, std::size_t) { return scale * whole(code, 8); });
}

void decode_Q4_1(const std::byte* block, float* values) {
  const float scale = half_at(block);
  const float least = half_at(block + 2);
  halves(block + 4, 16, values, [&](unsigned code, std::size_t) { return scale * whole(code, 0) + least; });
}

void decode_Q5_0(const std::byte* block, float* values) {
  const float scale = half_at(block);
  const auto fifths = load<std::uint32_t>(block + 2);
  halves(block + 6, 16, values,
         [&](unsigned code, std::size_t i) { return scale * whole(with_fifth(code, fifths, i), 16); });
}

void decode_Q5_1(const std::byte* block, float* values) {
  const float scale = half_at(block);
  const float least = half_at(block + 2);
  const auto fifths = load<std::uint32_t>(block + 4);
  halves(block + 8, 16, values,
         [&](unsigned code, std::size_t i) { return scale * whole(with_fifth(code, fifths, i), 0) + least; });
}

void decode_Q8_0(const std::byte* block, float* values) {
  const float scale = half_at(block);
  for (std::size_t i = 0; i < 32; ++i) values[i] = scale * static_cast<float>(load<std::int8_t>(block + 2 + i));
}

void decode_MXFP4(const std::byte* block, float* values) {
  const float scale = half_of_e8m0(byte_at(block, 0));
  halves(block + 1, 16, values, [&](unsigned code, std::size_t) { return scale * kDoubledE2m1[code]; });
}

void decode_NVFP4(const std::byte* block, float* values) {
  for (std::size_t part = 0; part < 4; ++part) {
    const float scale = ue4m3(byte_at(block, part)) / 2;
    halves(block + 4 + 8 * part, 8, values + 16 * part,
           [&](unsigned code, std::size_t) { return scale * kDoubledE2m1[code]; });
  }
}

}  // namespace nanscope::gguf
