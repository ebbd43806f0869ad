#pragma once
#include "core/blocks/loops/lanes.h"

/// The largest magnitudes of blocks.
namespace nanscope::NANSCOPE_ISA {

/// The largest magnitude of each lane of a block, as bits.
NANSCOPE_LOOP I largest_lanes(const float* x, std::int64_t width) {
  I largest = {};
  for (std::int64_t chunk = 0; chunk < width; chunk += kChunk) {
    largest = most(as<I>(magnitudes_of(load<F>(x + chunk))), largest);
  }
  return largest;
}

static void magnitudes(const float* x, std::int64_t blocks, std::int64_t width, float* extremes) {
  std::int64_t block = 0;
  for (; block + 4 <= blocks; block += 4, x += 4 * width) {
    const I4 now = largest_of_four(largest_lanes(x, width), largest_lanes(x + width, width),
                                   largest_lanes(x + 2 * width, width), largest_lanes(x + 3 * width, width));
    store(extremes + block, most(now, load<I4>(extremes + block)));
  }
  for (; block < blocks; ++block, x += width) {
    const auto before = static_cast<std::int32_t>(bits_of(extremes[block]));
    const std::int32_t now = largest_of(largest_lanes(x, width));
    extremes[block] = float_of(static_cast<std::uint32_t>(now > before ? now : before));
  }
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

static void signed_extremes(const float* x, std::int64_t blocks, std::int64_t width, float* extremes) {
  const auto either = [](const I4& positive, const Words& below) __attribute__((always_inline)) {
    const Words negative = I4(as<I4>(below) < 0) ? below & 0x7fffffffU : Words{};
    const Words up = as<Words>(positive);
    const Words larger = I4(positive > as<I4>(negative)) ? up : negative | 0x80000000U;
    return Words(I4(up == negative) ? Words{} + kCanonicalNan : larger);
  };
  std::int64_t block = 0;
  for (; block + 4 <= blocks; block += 4, x += 4 * width) {
    const Extremes a = both_extremes(x, width);
    const Extremes b = both_extremes(x + width, width);
    const Extremes c = both_extremes(x + 2 * width, width);
    const Extremes d = both_extremes(x + 3 * width, width);
    store(extremes + block, either(largest_of_four(a.positive, b.positive, c.positive, d.positive),
                                   largest_of_four(a.negative, b.negative, c.negative, d.negative)));
  }
  for (; block < blocks; ++block, x += width) {
    const Extremes one = both_extremes(x, width);
    const Words found = either(I4{} + largest_of(one.positive), Words{} + largest_of(one.negative));
    extremes[block] = float_of(found[0]);
  }
}

}  // namespace nanscope::NANSCOPE_ISA
