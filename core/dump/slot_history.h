#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "core/recording/rows.h"
#include "core/run/run.h"

namespace nanscope {

/// What a pass says about its paged cache, as far as it was dumped.
struct SlotMap {
  std::vector<std::int64_t> slots;  ///< of each row of the step, -1: none; empty when it was not dumped
  std::vector<std::int64_t> table;  ///< blocks, a row a sequence; empty when it was not dumped
  std::int64_t table_width = 0;
  std::int64_t pool_rows = 0;
  std::int64_t stated_block = 0;  ///< slots of a block where the pool's shape or the dump says so, else 0
  Format format = Format::bf16;
};

/// Slots of a block: stated, or the number with which table, positions and slots agree; the whole pool where there are
/// no blocks; 0 when nothing tells.
std::int64_t block_size_of(const SlotMap& map, const Step& step);

/// Whether each row of the step lies where the table puts it with blocks of so many slots.
bool has_block_size(const SlotMap& map, const Step& step, std::int64_t size);

/// Blocks that requests hold.
using HeldBlocks = std::map<std::int64_t, std::set<std::int64_t>>;

/// Rows of the KV history of a step: the blocks that its sequences hold and did not hold in their step before, and the
/// slots that it wrote. `held` has the blocks of the step before, and is updated to this step.
std::vector<KvRow> slot_history(const SlotMap& map, const Step& step, std::int64_t block_size, HeldBlocks& held);

}  // namespace nanscope
