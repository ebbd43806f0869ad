#pragma once
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/result.h"
#include "gui/cell.h"
#include "gui/prepare/run_map.h"
#include "gui/selection.h"
#include "instrument/diagnosis/facts.h"

namespace nanscope::gui {

/// Whose bytes a slot of the KV cache holds.
enum class SlotState : std::uint8_t {
  never_written,
  live,      ///< written by a request that holds the block
  shared,    ///< written by another request, for a prefix that both have
  stale,     ///< left behind by somebody who has given the block back
  scrubbed,  ///< cleared since
};

/// One slot, in all layers, during a step.
struct KvSlot {
  SlotState state = SlotState::never_written;
  bool foreign = false;             ///< the bytes are no keys and values: a recurrent layer's state
  bool unknown = false;             ///< who wrote it was not dumped
  bool read = false;                ///< the step reads it
  Cell health = kAbsent;            ///< the worst of what was stored, over layers, k and v
  std::int64_t request = 0;         ///< who wrote it
  std::int64_t token = 0;           ///< the position of what was written
  std::vector<std::string> words;   ///< who wrote it, when, as what, and what became of it
  std::optional<Selection> target;  ///< what was stored, where it is worst
};

struct KvBlock {
  std::int64_t id = 0;
  std::vector<std::int64_t> holders;  ///< requests
  std::string words;                  ///< "held by request 3, a prefix shared with request 2"
  std::vector<KvSlot> slots;
};

/// The paged KV cache as one step reads and leaves it, before its requests give anything back.
struct KvMap {
  std::string when;  ///< "request 2 step 0", "step 3 of 4 requests"
  std::vector<KvBlock> blocks;
  std::size_t slots = 0;
  std::size_t written = 0;
  std::size_t bad = 0;    ///< slots that hold NaN or Inf
  std::size_t stale = 0;  ///< slots that hold what a request left behind
};

/// `clipped`: rows of codes that hold clipped values, where no recording counted them. Errors: rows cannot be read,
/// more slots than any screen shows, stopped.
Result<KvMap> make_kv_map(Facts& facts, const Step& step, const std::stop_token& stop = {},
                          const ClippedRows* clipped = nullptr);

}  // namespace nanscope::gui
