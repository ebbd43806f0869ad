#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/dump/dtype.h"
#include "core/dump/layout.h"
#include "core/recording/rows.h"

/// How a KV pool that holds keys and values in one tensor is laid out: shapes alone do not tell, the values of the step
/// that wrote into it do.
namespace nanscope {

/// Keys or values of a step's rows, as they are stored: row r begins at element first + r * pitch.
struct StepRows {
  std::span<const std::byte> bytes;
  std::int64_t rows = 0;
  std::int64_t pitch = 0;
  std::int64_t first = 0;
};

/// The keys and values that a step computed. Keys may be those before the rotation.
struct StepKeys {
  StepRows keys;
  StepRows values;
};

/// One pair of layouts that a pool may have.
struct PoolLayouts {
  Layout keys;
  Layout values;
};

/// A pool whose layout the step's own keys and values show.
struct PagedCache {
  PoolLayouts layouts;
  /// For each row of the step, the slots that hold its key and value: several where rows are alike, none of padding.
  std::vector<std::vector<std::int64_t>> slots;
  std::vector<std::vector<bool>> unrotated;  ///< for each of them, whether it holds the key as it was before a rotation
};

/// What a pool of that shape may be: blocks by heads or slots, K and V beside each other in a slot, one behind the
/// other in a block, K transposed; or K and V as a dimension of their own.
std::vector<PoolLayouts> pool_layouts_of(const DumpTensor& cache);

/// The one layout in which slots of the pool hold the step's values bit for bit, and its keys, rotated or not, beside
/// them; nothing where none or several do. `step_of` gives the step's keys and values as rows of so many channels.
std::optional<PagedCache> paged_cache_of(const DumpTensor& cache, std::span<const std::byte> bytes,
                                         const std::function<std::optional<StepKeys>(std::int64_t channels)>& step_of);

/// The sequences of a step by the slots of their rows, and each row's slot. A sequence begins with the slot of a block
/// that holds its first key unrotated, as position 0 leaves it. Nothing where a sequence begins elsewhere, or where
/// the slots allow another reading.
struct SlotSequences {
  std::vector<Span> spans;
  std::vector<std::int64_t> slots;
};
std::optional<SlotSequences> sequences_of(const PagedCache& cache);

}  // namespace nanscope
