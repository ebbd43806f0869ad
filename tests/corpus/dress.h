#pragma once
#include <cstdint>
#include <vector>

#include "tests/corpus/tape.h"

/// The same tensors as other servers keep them: batches, flattened sequences, ranks, pages, bytes without a type.
namespace nanscope::corpus {

enum class Padding : std::uint8_t { left, right };

/// Two passes of one model as one batch of two sequences of different lengths, with an attention mask. Padding rows
/// hold what the other sequence has there, or NaN, as rows have that attend to nothing.
Tape batched(const Tape& a, const Tape& b, const std::string& folder, Padding padding, bool nan_in_padding);

/// Two passes as one of rows behind one another, with the places where sequences begin, their lengths and positions.
Tape flattened(const Tape& a, const Tape& b, const std::string& folder);

/// One of two ranks of tensor parallelism: projections hold half of their columns or inputs, what is reduced is whole.
/// `whole` is what this rank would have by itself.
void add_shard(const Tape& whole, int rank, Tape& into);

enum class Pages : std::uint8_t {
  slots_first,    ///< (blocks, slots, heads, width), keys and values apart
  heads_first,    ///< (blocks, heads, slots, width)
  halves_first,   ///< (2, blocks, slots, heads, width)
  halves_second,  ///< (blocks, 2, slots, heads, width)
};

/// Caches as pools of blocks of four slots in no order, with a block table and a slot mapping. Slots that nobody wrote
/// hold the bytes of others.
Tape paged(const Tape& tape, Pages pages, std::uint64_t seed);

/// Codes of 8 bits as bytes.
Tape untyped(const Tape& tape);

/// Modules under names that nobody knows.
Tape renamed(const Tape& tape);

}  // namespace nanscope::corpus
