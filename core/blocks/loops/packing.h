#pragma once
#include "core/blocks/block_loops.h"
#include "core/blocks/loops/lanes.h"

/// Codes of fewer than 8 bits to bytes and back, and blocks that lie apart.
namespace nanscope::NANSCOPE_ISA {

/// Where what is stored after so many bytes more will be: stores wait for memory that nobody has asked for.
NANSCOPE_LOOP void ask_for_store(const std::uint8_t* to, std::int64_t ahead) { __builtin_prefetch(to + ahead, 1); }

NANSCOPE_LOOP void pack_pairs(const std::uint8_t* codes, std::uint8_t* to) {
  const Pairs pairs = load<Pairs>(codes);
  store(to, __builtin_convertvector((pairs & 0x0fU) | (pairs >> 4 & 0xf0U), Bytes));
}

/// 64 codes.
NANSCOPE_LOOP void pack_four_chunks(const std::uint8_t* codes, std::uint8_t* to) {
#if defined(__AVX512BW__)
  const __m512i low = _mm512_and_si512(load<__m512i>(codes), _mm512_set1_epi8(15));
  store(to, _mm512_cvtepi16_epi8(_mm512_maddubs_epi16(low, _mm512_set1_epi16(0x1001))));
#else
  pack_pairs(codes, to);
  pack_pairs(codes + 2 * kChunk, to + kChunk);
#endif
}

static void pack_low_first(const std::uint8_t* codes, std::int64_t bytes, std::uint8_t* to) {
  std::int64_t i = 0;
  for (; i + 2 * kChunk <= bytes; i += 2 * kChunk) {
    ask_for_store(to + i, bytes);  // in the next row
    pack_four_chunks(codes + 2 * i, to + i);
  }
  for (; i + kChunk <= bytes; i += kChunk) pack_pairs(codes + 2 * i, to + i);
  for (; i < bytes; ++i)
    to[i] = static_cast<std::uint8_t>((codes[2 * i] & 15U) | static_cast<unsigned>(codes[2 * i + 1]) << 4);
}

static void unpack_low_first(const std::uint8_t* from, std::int64_t bytes, std::uint8_t* codes) {
  std::int64_t i = 0;
#if defined(__AVX512BW__)
  for (; i + 2 * kChunk <= bytes; i += 2 * kChunk) {
    const __m512i pairs = _mm512_cvtepu8_epi16(load<__m256i>(from + i));
    const __m512i both = _mm512_or_si512(pairs, _mm512_slli_epi16(pairs, 4));
    store(codes + 2 * i, _mm512_and_si512(both, _mm512_set1_epi8(15)));
  }
#endif
  for (; i + kChunk <= bytes; i += kChunk) {
    const Pairs pairs = __builtin_convertvector(load<Bytes>(from + i), Pairs);
    store(codes + 2 * i, (pairs & 0x0fU) | (pairs & 0xf0U) << 4);
  }
  for (; i < bytes; ++i) {
    codes[2 * i] = from[i] & 15U;
    codes[2 * i + 1] = static_cast<std::uint8_t>(from[i] >> 4);
  }
}

NANSCOPE_LOOP Bytes close_words(const std::uint8_t* codes) {
  const Words four = load<Words>(codes);
  const Bytes packed =
      as<Bytes>((four & 0x3fU) | (four >> 2 & 0xfc0U) | (four >> 4 & 0x3f000U) | (four >> 6 & 0xfc0000U));
  return __builtin_shufflevector(packed, packed, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 3, 3, 3);
}

NANSCOPE_LOOP Words open_words(const Bytes& close) {
  const Words four =
      as<Words>(__builtin_shufflevector(close, close, 0, 1, 2, 15, 3, 4, 5, 15, 6, 7, 8, 15, 9, 10, 11, 15));
  return (four & 0x3fU) | (four & 0xfc0U) << 2 | (four & 0x3f000U) << 4 | (four & 0xfc0000U) << 6;
}

/// Four words at a time. 16 bytes are moved for 12, but for the last.
static void pack_six_bit(const std::uint8_t* codes, std::int64_t words, std::uint8_t* to) {
  std::int64_t word = 0;
  for (; word + 8 <= words; word += 4) store(to + 3 * word, close_words(codes + 4 * word));
  for (; word + 4 <= words; word += 4) {
    const Bytes close = close_words(codes + 4 * word);
    std::memcpy(to + 3 * word, &close, 12);
  }
}

static void unpack_six_bit(const std::uint8_t* from, std::int64_t words, std::uint8_t* codes) {
  std::int64_t word = 0;
  for (; word + 8 <= words; word += 4) store(codes + 4 * word, open_words(load<Bytes>(from + 3 * word)));
  for (; word + 4 <= words; word += 4) {
    Bytes close = {};
    std::memcpy(&close, from + 3 * word, 12);
    store(codes + 4 * word, open_words(close));
  }
}

constexpr std::uint64_t kNibbles = 0x0f0f0f0f0f0f0f0fULL;

/// One block of halves, byte i holds code i low and code i + half high; of 16 codes or a multiple of 32.
NANSCOPE_LOOP void pack_half_block(std::int64_t half, std::uint8_t shift, const std::uint8_t* codes, std::uint8_t* to) {
  if (half == 8) {
    const std::uint64_t shifts = 0x0101010101010101U * shift;
    const std::uint64_t low = (load<std::uint64_t>(codes) ^ shifts) & kNibbles;
    const std::uint64_t high = (load<std::uint64_t>(codes + 8) ^ shifts) & kNibbles;
    return store(to, low | high << 4);
  }
  for (std::int64_t i = 0; i < half; i += kChunk) {
    const Bytes low = (load<Bytes>(codes + i) + shift) & 15;
    const Bytes high = (load<Bytes>(codes + half + i) + shift) << 4;
    store(to + i, low | high);
  }
}

NANSCOPE_LOOP void unpack_half_block(std::int64_t half, std::uint8_t shift, const std::uint8_t* from,
                                     std::uint8_t* codes) {
  if (half == 8) {
    const auto both = load<std::uint64_t>(from);
    const Halves nibbles = {both & kNibbles, both >> 4 & kNibbles};
    return store(codes, Bytes(as<Bytes>(nibbles) - shift));
  }
  for (std::int64_t i = 0; i < half; i += kChunk) {
    const auto both = load<Bytes>(from + i);
    store(codes + i, (both & 15) - shift);
    store(codes + half + i, (both >> 4) - shift);
  }
}

/// Two blocks of 16 beside each other.
NANSCOPE_LOOP void pack_two(std::uint8_t shift, const std::uint8_t* codes, std::uint8_t* to) {
  const Halves a = load<Halves>(codes);
  const Halves b = load<Halves>(codes + kChunk);
  const Bytes low = (as<Bytes>(Halves(__builtin_shufflevector(a, b, 0, 2))) + shift) & 15;
  const Bytes high = (as<Bytes>(Halves(__builtin_shufflevector(a, b, 1, 3))) + shift) << 4;
  store(to, low | high);
}

/// Calls visit(codes of a block, its place).
template <class Visit>
NANSCOPE_LOOP void for_blocks(const BlockPlaces& places, const Visit& visit) {
  std::int64_t block = 0;
  for (std::int64_t group = 0; block < places.blocks; ++group) {
    std::int64_t place = group * places.group_bytes;
    const std::int64_t end = block + places.together < places.blocks ? block + places.together : places.blocks;
    for (; block < end; ++block, place += places.block_bytes) visit(block * places.width, place);
  }
}

template <std::int64_t kWidth>
NANSCOPE_LOOP void pack_blocks_of(const BlockPlaces& places, const std::uint8_t* codes, std::uint8_t* to) {
  const std::int64_t width = kWidth > 0 ? kWidth : places.width;
  const std::int64_t row =
      places.blocks == 0 ? 0 : (places.blocks + places.together - 1) / places.together * places.group_bytes;
  if (kWidth == 16 && places.halves && places.together % 2 == 0 && places.blocks % 2 == 0) {
    BlockPlaces pairs = places;
    pairs.blocks /= 2;
    pairs.together /= 2;
    pairs.block_bytes *= 2;
    pairs.width *= 2;
    for_blocks(
        pairs, [&](std::int64_t code, std::int64_t place) __attribute__((always_inline)) {
          ask_for_store(to + place, row);
          pack_two(places.shift, codes + code, to + place);
        });
    return;
  }
  if (places.halves) {
    for_blocks(
        places, [&](std::int64_t code, std::int64_t place) __attribute__((always_inline)) {
          ask_for_store(to + place, row);
          pack_half_block(width / 2, places.shift, codes + code, to + place);
        });
    return;
  }
  for_blocks(
      places, [&](std::int64_t code, std::int64_t place) __attribute__((always_inline)) {
        for (std::int64_t i = 0; i < width; i += kChunk) store(to + place + i, load<Bytes>(codes + code + i));
      });
}

template <std::int64_t kWidth>
NANSCOPE_LOOP void unpack_blocks_of(const BlockPlaces& places, const std::uint8_t* from, std::uint8_t* codes) {
  const std::int64_t width = kWidth > 0 ? kWidth : places.width;
  if (places.halves) {
    for_blocks(
        places, [&](std::int64_t code, std::int64_t place) __attribute__((always_inline)) {
          unpack_half_block(width / 2, places.shift, from + place, codes + code);
        });
    return;
  }
  for_blocks(
      places, [&](std::int64_t code, std::int64_t place) __attribute__((always_inline)) {
        for (std::int64_t i = 0; i < width; i += kChunk) store(codes + code + i, load<Bytes>(from + place + i));
      });
}

static void pack_blocks(const BlockPlaces& places, const std::uint8_t* codes, std::uint8_t* to) {
  if (places.width == 16) return pack_blocks_of<16>(places, codes, to);
  if (places.width == 32) return pack_blocks_of<32>(places, codes, to);
  pack_blocks_of<0>(places, codes, to);
}

static void unpack_blocks(const BlockPlaces& places, const std::uint8_t* from, std::uint8_t* codes) {
  if (places.width == 16) return unpack_blocks_of<16>(places, from, codes);
  if (places.width == 32) return unpack_blocks_of<32>(places, from, codes);
  unpack_blocks_of<0>(places, from, codes);
}

}  // namespace nanscope::NANSCOPE_ISA
