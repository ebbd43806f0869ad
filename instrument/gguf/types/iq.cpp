/// IQ types: codes stand for points of a grid, or for numbers that do not lie evenly.
#include <array>
#include <span>

#include "instrument/gguf/types/decoders.h"
#include "instrument/gguf/types/grids.h"

namespace nanscope::gguf {
namespace {

constexpr std::array<float, 4> kTwoBits = {8, 25, 43, 0};
constexpr std::array<float, 8> kThreeBits = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr std::array<float, 16> kUneven = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/// Seven signs; the eighth makes the number of minuses even.
unsigned eight_signs(unsigned seven) { return seven | (static_cast<unsigned>(std::popcount(seven)) & 1U) << 7; }

float signed_by(float value, unsigned signs, std::size_t i) { return (signs >> i & 1U) != 0 ? -value : value; }

/// Eight numbers of two bits each.
void point_of_8(unsigned point, unsigned signs, float step, float* values) {
  for (std::size_t i = 0; i < 8; ++i) values[i] = step * signed_by(kTwoBits[point >> (2 * i) & 3U], signs, i);
}

/// Four numbers; bit `first` of the signs is of the first.
template <class Level>
void point_of_4(unsigned point, unsigned signs, float step, float* values, Level level) {
  for (std::size_t i = 0; i < 4; ++i) values[i] = step * signed_by(level(point >> (3 * i) & 7U), signs, i);
}

float step_of(float scale, unsigned code, float factor) { return scale * (0.5F + static_cast<float>(code)) * factor; }

/// Eight numbers of -1, 0 and 1, and what is added to each.
void ternary_point(unsigned point, float delta, float step, float* values) {
  for (std::size_t i = 0; i < 8; ++i)
    values[i] = step * (static_cast<float>(static_cast<int>(point >> (2 * i) & 3U) - 1) + delta);
}

/// 1 + 2 x three bits.
float odd(unsigned code) { return static_cast<float>(2 * (code & 7U) + 1); }

constexpr float kDelta = 0.125F;

}  // namespace

void decode_IQ2_XXS(const std::byte* block, float* values) {
  const float scale = half_at(block);
  for (std::size_t part = 0; part < 8; ++part) {
    const std::byte* points = block + 2 + 8 * part;
    const auto rest = load<std::uint32_t>(points + 4);
    const float step = step_of(scale, rest >> 28, 0.25F);
    for (std::size_t k = 0; k < 4; ++k) {
      point_of_8(kGridIq2Xxs[byte_at(points, k)], eight_signs(rest >> (7 * k) & 127U), step,
                 values + 32 * part + 8 * k);
    }
  }
}

void decode_IQ2_XS(const std::byte* block, float* values) {
  const float scale = half_at(block);
  for (std::size_t k = 0; k < 32; ++k) {
    const unsigned code = load<std::uint16_t>(block + 2 + 2 * k);
    const unsigned steps = byte_at(block, 66 + k / 4);
    const float step = step_of(scale, k % 4 < 2 ? steps & 15U : steps >> 4, 0.25F);
    point_of_8(kGridIq2Xs[code & 511U], eight_signs(code >> 9), step, values + 8 * k);
  }
}

void decode_IQ2_S(const std::byte* block, float* values) {
  const float scale = half_at(block);
  for (std::size_t k = 0; k < 32; ++k) {
    const unsigned steps = byte_at(block, 74 + k / 4);
    const float step = step_of(scale, k % 4 < 2 ? steps & 15U : steps >> 4, 0.25F);
    const unsigned high = byte_at(block, 66 + k / 4) >> (2 * (k % 4)) & 3U;
    point_of_8(kGridIq2S[byte_at(block, 2 + k) | high << 8], byte_at(block, 34 + k), step, values + 8 * k);
  }
}

void decode_IQ3_XXS(const std::byte* block, float* values) {
  const float scale = half_at(block);
  const auto level = [](unsigned code) { return kThreeBits[code]; };
  for (std::size_t part = 0; part < 8; ++part) {
    const auto rest = load<std::uint32_t>(block + 66 + 4 * part);
    const float step = step_of(scale, rest >> 28, 0.5F);
    for (std::size_t k = 0; k < 8; ++k) {
      const unsigned signs = eight_signs(rest >> (7 * (k / 2)) & 127U) >> (k % 2 * 4);
      point_of_4(kGridIq3Xxs[byte_at(block, 2 + 8 * part + k)], signs, step, values + 32 * part + 4 * k, level);
    }
  }
}

void decode_IQ3_S(const std::byte* block, float* values) {
  const float scale = half_at(block);
  const auto level = [](unsigned code) { return static_cast<float>(2 * code + 1); };
  for (std::size_t k = 0; k < 64; ++k) {
    const unsigned code = byte_at(block, 106 + k / 16) >> (k / 8 % 2 * 4) & 15U;
    const float step = scale * static_cast<float>(1 + 2 * code);
    const unsigned ninth = byte_at(block, 66 + k / 8) >> (k % 8) & 1U;
    const unsigned signs = byte_at(block, 74 + k / 2) >> (k % 2 * 4);
    point_of_4(kGridIq3S[byte_at(block, 2 + k) | ninth << 8], signs, step, values + 4 * k, level);
  }
}

void decode_IQ1_S(const std::byte* block, float* values) {
  const float scale = half_at(block);
  for (std::size_t k = 0; k < 32; ++k) {
    const unsigned high = load<std::uint16_t>(block + 34 + k / 4 * 2);
    const unsigned point = byte_at(block, 2 + k) | (high >> (3 * (k % 4)) & 7U) << 8;
    ternary_point(kGridIq1[point], (high & 0x8000U) != 0 ? -kDelta : kDelta, scale * odd(high >> 12), values + 8 * k);
  }
}

void decode_IQ1_M(const std::byte* block, float* values) {
  const std::byte* steps = block + 48;
  const float scale = spread_half(steps);
  for (std::size_t k = 0; k < 32; ++k) {
    const unsigned high = byte_at(block, 32 + k / 2) >> (k % 2 * 4);
    const unsigned three = load<std::uint16_t>(steps + k / 8 * 2) >> (k / 2 % 4 * 3);
    ternary_point(kGridIq1[byte_at(block, k) | (high & 7U) << 8], (high & 8U) != 0 ? -kDelta : kDelta,
                  scale * odd(three), values + 8 * k);
  }
}

void decode_IQ4_NL(const std::byte* block, float* values) {
  const float scale = half_at(block);
  for (std::size_t i = 0; i < 32; ++i) values[i] = scale * kUneven[byte_at(block, 2 + i % 16) >> (i / 16 * 4) & 15U];
}

void decode_IQ4_XS(const std::byte* block, float* values) {
  const float scale = half_at(block);
  const unsigned high = load<std::uint16_t>(block + 2);
  for (std::size_t part = 0; part < 8; ++part) {
    const unsigned low = byte_at(block, 4 + part / 2) >> (part % 2 * 4) & 15U;
    const float step = scale * static_cast<float>(static_cast<int>(low | (high >> (2 * part) & 3U) << 4) - 32);
    const std::byte* codes = block + 8 + 16 * part;
    for (std::size_t i = 0; i < 32; ++i)
      values[32 * part + i] = step * kUneven[byte_at(codes, i % 16) >> (i / 16 * 4) & 15U];
  }
}

}  // namespace nanscope::gguf
