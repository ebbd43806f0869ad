#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/recording/rows.h"
#include "core/run/run.h"

namespace nanscope {

/// A slot of the paged KV pool.
struct PoolSlot {
  std::int64_t block = 0;
  std::int64_t slot = 0;  ///< within the block
};

inline constexpr std::string_view kRecurrentState = "recurrent_state";  ///< KvRow::writer

/// Answers "what lay in this slot when this step read it?" from the KV slot history. Each rank has a pool of its own:
/// a step sees what steps of its rank did.
class KvSlots {
 public:
  /// `steps` say which rank each is of, ids ascending; of none known all are rank 0's.
  explicit KvSlots(std::span<const KvRow> history, std::span<const Step> steps = {});

  /// The slot that holds key position `position` of `request` as of step `step` (StepRow::id);
  /// nothing when the history gives the request no such block.
  std::optional<PoolSlot> locate(std::int64_t request, std::int64_t position, std::int64_t step) const;
  /// The entry of the last write or scrub that a read of `layer` in `step` sees; null: never written.
  /// A recurrent state is written under its own layer but lies in the memory of an attention layer:
  /// with `states`, such a write counts whatever its layer.
  const KvRow* last_writer(const PoolSlot& slot, std::int64_t layer, std::int64_t step, bool states) const;
  /// Whether `request` had given back the block of that position before `step` read it, and got none for it since. In
  /// the step itself a block is given back before the rows of the step are written, or after all is read.
  bool given_back(std::int64_t request, std::int64_t position, std::int64_t step) const;
  /// The entry that gave `request` the block by sharing it; null when it did not come that way.
  const KvRow* shared(std::int64_t request, std::int64_t block, std::int64_t step) const;
  /// Whether the block was freed, by the last who had it, between that write and `step`.
  bool freed_since(const KvRow& write, std::int64_t step) const;

 private:
  std::int64_t rank_of(std::int64_t step) const;
  bool same_pool(const KvRow& row, std::int64_t step) const {
    return ranks_.empty() || rank_of(row.step) == rank_of(step);
  }

  std::span<const KvRow> history_;
  std::vector<std::pair<StepId, std::int64_t>> ranks_;  ///< of steps above rank 0, ascending
  std::unordered_map<std::int64_t, std::vector<std::size_t>> by_block_;
  std::unordered_map<std::int64_t, std::vector<std::size_t>> by_request_;
};

}  // namespace nanscope
