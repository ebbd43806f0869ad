#pragma once
/// 64-bit content hash of a tensor's bytes, in row-major order without padding: what replay compares.
///
/// Each lane eats every 32nd 8-byte word of its chunk. A word is xored with a secret that depends on
/// its place and split into 32-bit halves whose 64-bit product is added to the lane's sum, next to the
/// word itself, halves swapped, so that a zero factor hides nothing. Lanes and chunks are then folded
/// with a full-width mixer in their order.
/// The multiplication is the only wide one that every instruction set and a GPU has.
#include <span>
#include <utility>

#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Bytes hashed by one warp, and those that its lanes take at a time.
inline constexpr std::int64_t kHashChunk = 8192;
inline constexpr std::int64_t kHashStep = 256;

/// Shapes: x (T, D) contiguous or strided; chunks: ceil(bytes / kHashChunk) u64 in device memory;
/// combine_hash() folds them in order on the host, together with the byte count.
struct ContentHashArgs {
  TensorView x;
  std::uint64_t* chunks = nullptr;
};

inline Status check(const ContentHashArgs& args) {
  return ArgsCheck("content_hash").given("x", args.x).that(args.chunks != nullptr, "room for the chunks").done();
}

/// Bytes that are hashed: those of the elements, without the gaps between rows.
constexpr std::int64_t hashed_bytes(const TensorView& view) { return view.elements() * storage_size(view.format); }

/// Chunks that the op writes.
constexpr std::int64_t hash_chunks(const TensorView& view) {
  return (hashed_bytes(view) + kHashChunk - 1) / kHashChunk;
}

/// Folds the chunks in their order, together with the byte count, into the tensor's hash.
constexpr std::uint64_t combine_hash(std::span<const std::uint64_t> chunks, std::uint64_t bytes) {
  const auto mix = [](std::uint64_t h) {
    h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93U;
    h = (h ^ (h >> 29)) * 0xa0761d6478bd642fU;
    return h ^ (h >> 32);
  };
  std::uint64_t hash = mix(bytes + 0x9e3779b97f4a7c15U);
  for (const std::uint64_t chunk : chunks) hash = mix((hash << 23 | hash >> 41) + chunk);
  return hash;
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/warp/tensor_access.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// The hash of one chunk while it is made, a step of kHashStep bytes at a time: a word a lane.
struct ChunkHash {
  static constexpr std::uint64_t kNextSecret = 0x9e3779b97f4a7c15U * 64;
  U64 secret = lane_secret();
  U64 total = lane_secret();

  /// Odd multiples of the golden ratio: no two words of a chunk share a secret.
  NANSCOPE_LANE U64 lane_secret() {
    return to_u64(lane_id() + lane_id() + splat_u32(1)) * splat_u64(0x9e3779b97f4a7c15U);
  }
  /// Every output bit depends on every input bit.
  NANSCOPE_LANE U64 mix(const U64& value) {
    const U64 h = (value ^ (value >> 32)) * splat_u64(0xd6e8feb86659fd93U);
    return h ^ (h >> 29);
  }
  NANSCOPE_LANE void add(ChunkHash& hash, const U64& word) {
    const U64 keyed = word ^ hash.secret;
    hash.total = hash.total + mul_low(keyed, keyed >> 32) + swap_halves(word);
    hash.secret = hash.secret + splat_u64(kNextSecret);
  }

#if defined(NANSCOPE_VECTOR_BYTES)
  /// Registers [kFirst, kFirst + kPart) of the lanes, over all steps: secrets and sums of 32 lanes do not fit the
  /// registers of a CPU.
  static constexpr int kPart = 4;
  template <int kFirst>
  NANSCOPE_LANE void add_part(ChunkHash& hash, const std::uint64_t* words, std::int64_t count) {
    Register<std::uint64_t> secret[kPart];
    Register<std::uint64_t> total[kPart];
    NANSCOPE_UNROLL for (int i = 0; i < kPart; ++i) {
      secret[i] = hash.secret.v[kFirst + i];
      total[i] = hash.total.v[kFirst + i];
    }
    for (const std::uint64_t* at = words; at < words + count; at += kLanes) {
      NANSCOPE_UNROLL for (int i = 0; i < kPart; ++i) {
        Register<std::uint64_t> word;
        __builtin_memcpy(&word, at + (kFirst + i) * U64::kWidth, sizeof word);
        const Register<std::uint64_t> keyed = word ^ secret[i];
        total[i] = total[i] + detail::mul_low(keyed, keyed >> 32) + detail::swap_halves(word);
        secret[i] = secret[i] + kNextSecret;
      }
    }
    NANSCOPE_UNROLL for (int i = 0; i < kPart; ++i) {
      hash.secret.v[kFirst + i] = secret[i];
      hash.total.v[kFirst + i] = total[i];
    }
  }
  template <int... kParts>
  NANSCOPE_LANE void add_parts(ChunkHash& hash, const std::uint64_t* words, std::int64_t count,
                               std::integer_sequence<int, kParts...>) {
    (add_part<kParts * kPart>(hash, words, count), ...);
  }
  /// `count` words, a multiple of 32, of contiguous memory.
  NANSCOPE_LANE void add_all(ChunkHash& hash, const std::uint64_t* words, std::int64_t count) {
    add_parts(hash, words, count, std::make_integer_sequence<int, U64::kCount / kPart>{});
  }
#else
  NANSCOPE_LANE void add_all(ChunkHash& hash, const std::uint64_t* words, std::int64_t count) {
    for (std::int64_t at = 0; at < count; at += kLanes) add(hash, load_u64(words + at, kLanes));
  }
#endif

  NANSCOPE_LANE std::uint64_t folded(const ChunkHash& hash) {
    const U64 of_lane = lane_secret();
    return sum_u64(mix(mix(hash.total ^ (of_lane >> 7)) + of_lane));
  }
};

struct ContentHash {
  using Args = ContentHashArgs;

  /// Warp = one chunk.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return hash_chunks(args.x); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args&) { return kHashChunk / 16; }

  /// Asks for the block kAhead bytes on: a CPU's own prefetchers stop at the end of a page. A hint; nothing
  /// need be there.
  NANSCOPE_LANE void prefetch([[maybe_unused]] const std::uint8_t* block) {
#if !defined(__CUDACC__)
    constexpr int kAhead = 2048;
    NANSCOPE_UNROLL for (int line = 0; line < kHashStep; line += 64) __builtin_prefetch(block + kAhead + line);
#endif
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t chunk) {
    const std::int64_t element = storage_size(args.x.format);
    const bool contiguous = args.x.stride == args.x.columns || args.x.rows == 1;
    const std::int64_t total = hashed_bytes(args.x);
    const std::int64_t row_bytes = contiguous ? total : args.x.columns * element;
    const std::int64_t begin = chunk * kHashChunk;
    const std::int64_t end = total - begin < kHashChunk ? total : begin + kHashChunk;
    const auto* base = static_cast<const std::uint8_t*>(args.x.data);
    const bool words = contiguous && reinterpret_cast<std::uintptr_t>(base) % 8 == 0;

    ChunkHash hash;
    std::int64_t offset = begin;
#if defined(NANSCOPE_VECTOR_BYTES)
    constexpr std::int64_t kAtOnce = 4 * kHashStep;
    for (; words && end - offset >= kAtOnce; offset += kAtOnce) {
      for (std::int64_t step = 0; step < kAtOnce; step += kHashStep) prefetch(base + offset + step);
      ChunkHash::add_all(hash, reinterpret_cast<const std::uint64_t*>(base + offset), kAtOnce / 8);
    }
#endif
    for (; offset < end; offset += kHashStep) {
      const U64 word = words && end - offset >= kHashStep
                           ? load_u64(reinterpret_cast<const std::uint64_t*>(base + offset), kLanes)
                           : load_bytes(base, offset, end, row_bytes, args.x.stride * element);
      ChunkHash::add(hash, word);
    }
    store_uniform(args.chunks + chunk, ChunkHash::folded(hash));
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
