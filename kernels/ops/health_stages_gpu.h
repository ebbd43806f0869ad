#pragma once
/// How the forms for large tensors on a GPU read and write memory. A warp copies what it reads to a ring of stages in
/// shared memory, ahead of what it adds up: registers would hold too few bytes on their way to keep the memory of an
/// H200 busy. Health of 32 tiles is written at once, because 16 bytes at a time every 112 take a memory's sectors
/// several times each.
#include "kernels/ops/health_pieces_gpu.h"

#if defined(__CUDACC__)
#include <utility>

#include "kernels/warp/warp_cuda_async.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// A thread's copies are 16 bytes, a quad.
inline constexpr int kStagePieces = 4;
inline constexpr int kStageBytes = kStagePieces * kPieceBytes;  ///< of a tile

/// A warp's ring: a stage is kStageBytes of each of its eight tiles, in rows. Rows::of(tile) is where a tile's bytes
/// begin, after those of tile 0. Lanes copy 256 bytes side by side, each not what it reads itself. In odd rows the
/// quads of two pieces have changed places, so that two tiles' are read from different banks. Registers are scarce and
/// each step counts: addresses are those of shared memory, and what follows from another is not kept.
template <class Rows, int kStages>
struct StageRing {
  static constexpr int kRow = kStageBytes / 16;  ///< quads
  static constexpr int kStage = kTilesAtOnce * kRow;
  static constexpr int kAll = kStages * kStage;
  static constexpr int kAhead = kStages - 1;
  static constexpr int kCopies = kStage / kLanes;

  U32 to;                    ///< the lane's first quad of the first stage, as it copies
  U32 even;                  ///< its quad in pieces 0 and 2 of the first stage, as it reads
  const char* from;          ///< what it copies next
  U32 last = place(kAhead);  ///< the stage taken last, where the loop's turns do not tell

  /// In bytes, of a stage.
  NANSCOPE_LANE constexpr U32 place(int stage) { return static_cast<U32>(stage * kStage * 16); }

  /// `memory`: a multiple of kRingAlignment. `base`: the first byte of tile 0, a multiple of 16.
  NANSCOPE_LANE StageRing begin(const uint4* memory, const void* base) {
    static_assert(kLanes == 2 * kRow, "a copy of all lanes has an even row and an odd one");
    const U32 row = lane_id() / kRow;
    const U32 quad = lane_id() % kRow;
    const U32 own = tile_of_lane() * kRow + place_in_tile() + tile_of_lane() % 2 * kTileLanes;
    return {shared_address(memory) + (row * kRow + (quad ^ (kTileLanes * row))) * 16, shared_address(memory) + own * 16,
            static_cast<const char*>(base) + Rows::of(static_cast<int>(row)) + quad * 16};
  }

  template <int... i>
  NANSCOPE_LANE void copy(U32 to, const char* from, std::integer_sequence<int, i...> /*copies*/) {
    (copy_async<i* static_cast<int>(kLanes) * 16, Rows::of(2 * i)>(to, from), ...);
  }
  /// Begins to fill the stage at `place`, or leaves it as it is; then moves on by `forward` bytes.
  NANSCOPE_LANE void fetch(StageRing& ring, U32 place, bool some, int forward) {
    if (some) copy(ring.to + place, ring.from, std::make_integer_sequence<int, kCopies>{});
    commit_async();  // an empty group too, so that wait_async() counts right
    ring.from += forward;
  }
  NANSCOPE_LANE void take(const StageRing& ring, U32 place, uint4 (&pieces)[kStagePieces]) {
    static_assert(kStagePieces == 4);
    const U32 even = ring.even + place;
    const U32 odd = even ^ kPieceBytes;
    pieces[0] = load_shared<0>(even);
    pieces[1] = load_shared<0>(odd);
    pieces[2] = load_shared<2 * kPieceBytes>(even);
    pieces[3] = load_shared<2 * kPieceBytes>(odd);
  }

  /// Takes step `step` of the kTurn in a loop's turn, all of which begin with the same, and fetches, if there is
  /// `some`, that kAhead steps on. The lanes' barrier does both: what they have copied of this step is there for all,
  /// and all have read the step before, whose stage is filled next.
  template <int kTurn>
  NANSCOPE_LANE void step(StageRing& ring, int step, bool some, int forward, uint4 (&pieces)[kStagePieces]) {
    wait_async<kAhead - 1>();
    warp_sync();
    if constexpr (kTurn % kStages == 0) {
      fetch(ring, place((step + kAhead) % kStages), some, forward);
      take(ring, place(step % kStages), pieces);
    } else {
      fetch(ring, ring.last, some, forward);
      ring.last = ring.last == place(kAhead) ? 0 : ring.last + place(1);
      take(ring, ring.last, pieces);
    }
  }
};
/// So that a bit of an address is that of a piece.
inline constexpr int kRingAlignment = 2 * kPieceBytes;

/// Shared memory of a block, in quads: the secrets of all words of a chunk, then what each warp has of its own.
inline constexpr int kSecretQuads = static_cast<int>(kHashChunk) / 16;
template <int kWarpQuads>
struct LargeMemory {
  static constexpr int kAll = kSecretQuads + kBlockWarps * kWarpQuads;
  static_assert(kSecretQuads * 16 % kRingAlignment == 0 && kWarpQuads * 16 % kRingAlignment == 0);
  NANSCOPE_LANE uint4* own(uint4* memory) { return memory + kSecretQuads + block_warp() * kWarpQuads; }
};
/// By all warps of the block. The caller waits for the others.
NANSCOPE_FN void make_secrets(uint4* memory) {
  constexpr int kThreads = kBlockWarps * kLanes;
  auto* secrets = reinterpret_cast<ulonglong2*>(memory);
  U64 secret = static_cast<U64>(4 * threadIdx.x + 1) * kSecretStep;
  NANSCOPE_UNROLL for (int i = 0; i < kSecretQuads / kThreads; ++i) {
    secrets[i * kThreads + threadIdx.x] = {secret, secret + 2 * kSecretStep};
    secret += 4 * kThreads * kSecretStep;
  }
}

inline constexpr int kHealthQuads = static_cast<int>(sizeof(Health)) / 16;

/// Health of 32 tiles, one a lane, by way of 32 * kHealthQuads of shared memory. Lanes of kTogether have tiles side by
/// side in `result`; the next such begin kApart tiles on. When it ends other lanes may still store and read `memory`.
template <int kTogether, int kApart>
NANSCOPE_FN void store_tiles(Health* result, uint4* memory, bool sums, const TileSummary& tile) {
  store_health(reinterpret_cast<Health*>(memory) + lane_id(), sums, tile);
  warp_sync();
  auto* to = reinterpret_cast<uint4*>(result);
  NANSCOPE_UNROLL for (int i = 0; i < kHealthQuads; ++i) {
    constexpr int kGroup = kTogether * kHealthQuads;
    const U32 at = i * static_cast<U32>(kLanes) + lane_id();
    to[kTogether == kLanes ? at : at / kGroup * (kApart * kHealthQuads) + at % kGroup] = memory[at];
  }
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
