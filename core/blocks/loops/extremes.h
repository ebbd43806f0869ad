#pragma once
#include "core/blocks/loops/lanes.h"

/// The largest magnitudes of blocks.
namespace nanscope::NANSCOPE_ISA {

/// Vectors of one register: g++ 12 takes comparisons of wider ones apart, element by element.
#if defined(__AVX2__)
typedef std::int32_t OwnI __attribute__((vector_size(32)));   // NOLINT
typedef std::uint32_t OwnU __attribute__((vector_size(32)));  // NOLINT
#else
typedef I4 OwnI;     // NOLINT
typedef Words OwnU;  // NOLINT
#endif

/// The largest of `width` elements' bits under a mask, as signed or unsigned numbers.
template <class V>
NANSCOPE_LOOP auto largest_bits(const float* x, std::int64_t width, std::uint32_t mask) {
  V largest = {};
  for (std::int64_t i = 0; i < width; i += std::int64_t{sizeof(V)} / 4) {
    const V bits = as<V>(load<OwnU>(x + i) & mask);
    largest = bits > largest ? bits : largest;
  }
  auto most_of = largest[0];
  for (std::size_t i = 1; i < sizeof(V) / 4; ++i) most_of = largest[i] > most_of ? largest[i] : most_of;
  return most_of;
}

/// The largest magnitude of each lane of a block, as bits.
NANSCOPE_LOOP I largest_lanes(const float* x, std::int64_t width) {
  I largest = as<I>(magnitudes_of(load<F>(x)));
  for (std::int64_t chunk = kChunk; chunk < width; chunk += kChunk) {
    largest = most(as<I>(magnitudes_of(load<F>(x + chunk))), largest);
  }
  return largest;
}

/// The largest magnitudes of 16 blocks, as bits.
NANSCOPE_LOOP I largest_of_sixteen(const float* x, std::int64_t width) {
  const auto larger = [](const I& u, const I& v) __attribute__((always_inline)) { return most(u, v); };
  const auto four = [&](std::int64_t block) __attribute__((always_inline)) {
    const float* from = x + block * width;
    const I a = largest_lanes(from, width);  // in the order in which they lie in memory
    const I b = largest_lanes(from + width, width);
    const I c = largest_lanes(from + 2 * width, width);
    const I d = largest_lanes(from + 3 * width, width);
    return joined_quarters(a, b, c, d, larger);
  };
  const I a = four(0);
  const I b = four(4);
  const I c = four(8);
  const I d = four(12);
  return joined_shares(a, b, c, d, larger);
}

template <std::int64_t kWidth>
NANSCOPE_LOOP void magnitudes_by(const float* x, std::int64_t blocks, std::int64_t width, float* extremes) {
  if (kWidth > 0) width = kWidth;
  std::int64_t block = 0;
  for (; kFours && block + kChunk <= blocks; block += kChunk, x += kChunk * width) {
    store(extremes + block, most(largest_of_sixteen(x, width), load<I>(extremes + block)));
  }
  for (; block < blocks; ++block, x += width) {
    const auto before = static_cast<std::int32_t>(bits_of(extremes[block]));
    const std::int32_t now = largest_bits<OwnI>(x, width, 0x7fffffffU);
    extremes[block] = float_of(static_cast<std::uint32_t>(now > before ? now : before));
  }
}

static void magnitudes(const float* x, std::int64_t blocks, std::int64_t width, float* extremes) {
  if (width == 16) return magnitudes_by<16>(x, blocks, width, extremes);
  magnitudes_by<0>(x, blocks, width, extremes);
}

struct Extremes {
  I positive = {};  ///< bits; 0: none
  U negative = {};  ///< bits with the sign; below 0x80000000: none
};

NANSCOPE_LOOP Extremes both_extremes(const float* x, std::int64_t width) {
  Extremes found;
  for (std::int64_t chunk = 0; chunk < width; chunk += kChunk) {
    const U bits = load<U>(x + chunk);
    found.positive = most(as<I>(bits), found.positive);
    found.negative = most(bits, found.negative);
  }
  return found;
}

/// Of 16 blocks.
NANSCOPE_LOOP Extremes extremes_of_sixteen(const float* x, std::int64_t width) {
  const auto larger = [](const auto& u, const auto& v) __attribute__((always_inline)) { return most(u, v); };
  const auto four = [&](std::int64_t block) __attribute__((always_inline)) {
    const float* from = x + block * width;
    const Extremes a = both_extremes(from, width);
    const Extremes b = both_extremes(from + width, width);
    const Extremes c = both_extremes(from + 2 * width, width);
    const Extremes d = both_extremes(from + 3 * width, width);
    return Extremes{joined_quarters(a.positive, b.positive, c.positive, d.positive, larger),
                    joined_quarters(a.negative, b.negative, c.negative, d.negative, larger)};
  };
  const Extremes a = four(0);
  const Extremes b = four(4);
  const Extremes c = four(8);
  const Extremes d = four(12);
  return {joined_shares(a.positive, b.positive, c.positive, d.positive, larger),
          joined_shares(a.negative, b.negative, c.negative, d.negative, larger)};
}

/// The larger one, with its sign; NaN where they are as large.
NANSCOPE_LOOP U either(const Extremes& found) {
  const U negative = pick(as<I>(found.negative) < 0, found.negative & 0x7fffffffU, U{});
  const U up = as<U>(found.positive);
  const U larger = pick(found.positive > as<I>(negative), up, negative | 0x80000000U);
  return pick(as<I>(up == negative), splat(kCanonicalNan), larger);
}

static void signed_extremes(const float* x, std::int64_t blocks, std::int64_t width, float* extremes) {
  std::int64_t block = 0;
  for (; kFours && block + kChunk <= blocks; block += kChunk, x += kChunk * width) {
    store(extremes + block, either(extremes_of_sixteen(x, width)));
  }
  for (; block < blocks; ++block, x += width) {
    const auto up = static_cast<std::uint32_t>(largest_bits<OwnI>(x, width, 0xffffffffU));
    const std::uint32_t bits = largest_bits<OwnU>(x, width, 0xffffffffU);
    const std::uint32_t down = bits < 0x80000000U ? 0 : bits & 0x7fffffffU;
    extremes[block] = float_of(up == down ? kCanonicalNan : up > down ? up : bits);
  }
}

}  // namespace nanscope::NANSCOPE_ISA
