#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/run/kv_slots.h"
#include "core/run/run_view.h"

namespace nanscope {

/// A key, or value, row that attention reads, and who left what is in it.
struct KeyRow {
  std::int64_t row = 0;           ///< of the tensor that is read
  std::int64_t position = 0;      ///< in the sequence that reads it
  std::optional<PoolSlot> slot;   ///< nothing when the history does not say
  const KvRow* writer = nullptr;  ///< null: never written, as far as was recorded
  bool in_context = false;        ///< the step may attend to it; else it is the tail of a block
  bool own = false;               ///< the sequence itself wrote it, in this step or an earlier one
  bool fresh = false;             ///< this step did
  bool given_back = false;        ///< the sequence had given its block back, as one behind a window is
};

/// The row of a store's codes that went into a slot.
struct StoredRow {
  const Tensor* codes = nullptr;
  std::int64_t row = 0;
};

/// The logical KV cache: for each position of a sequence where its key and value lie, and whose they are. Out of the KV
/// history of a recording, or of the block tables and slot mappings of a dump.
class KvCache {
 public:
  explicit KvCache(RunView& run);

  /// The row of `read` (what attention takes as keys or values) that holds `position` of a span's sequence.
  std::optional<std::int64_t> row_of(const Tensor& read, const Step& step, const Span& span, std::int64_t position);
  /// One past the last position of a sequence that can have a row in a tensor of keys. The context of a span is a
  /// number of a file, and may be any.
  static std::int64_t end_in(const Tensor& read);
  /// All rows of `read` that attention goes over for a span, `keys` of them, by position.
  std::vector<KeyRow> key_rows(const Tensor& read, const Step& step, const Span& span, std::int64_t keys,
                               std::optional<std::int64_t> layer);
  KeyRow key_row(const Tensor& read, const Step& step, const Span& span, std::int64_t row,
                 std::optional<std::int64_t> layer);
  /// The codes (`target` k or v) that a write put into `slot`; nothing when no recorded store did.
  std::optional<StoredRow> stored_row(const KvRow& write, const PoolSlot& slot, std::optional<std::int64_t> layer,
                                      std::string_view target);
  const KvSlots& slots() { return slots_; }
  /// Slots of a block in the pool of a layer; 0 when it is not known.
  std::int64_t block_size(const Step& step, std::optional<std::int64_t> layer);

 private:
  RunView& run_;
  KvSlots slots_;
};

/// Keys that a tensor of scores or probabilities goes over: its channels a head.
std::int64_t keys_of(const Tensor& scores);

}  // namespace nanscope
