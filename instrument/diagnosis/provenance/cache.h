#pragma once
#include <cstdint>
#include <optional>

#include "instrument/diagnosis/provenance/rule.h"

/// Caches that a dump holds whole: what lies in a row was written by this pass, by another one, or by nobody.
namespace nanscope {

/// Rows of other passes lie in it too.
bool is_cache(const Tensor& tensor);

/// Whose block a slot of a pool is in, and which of its positions the slot is.
struct Holder {
  const Span* span = nullptr;
  std::int64_t position = 0;
};

/// Of the sequences of a step, the one that holds `row` of its pool; nothing when none does, as far as is known.
std::optional<Holder> holder_of(Facts& facts, const Step& step, std::optional<std::int64_t> layer, std::int64_t row);

struct Written {
  std::optional<std::int64_t> row;  ///< of what this pass stored there; else what follows says more
  std::optional<KeyRow> key;        ///< the slot of a pool, and who wrote it last
  const Span* reader = nullptr;     ///< whose sequence holds the slot
  std::optional<Element> before;    ///< where another pass of the sequence has it
};

/// Who wrote the explained row of a cache, of which this pass stored `stored`.
Written written_by(const Subject& subject, const Tensor& stored);

/// What a write of another pass put into a slot: its cache as that pass left it, else what it stored.
std::optional<Element> stored_elsewhere(const Subject& subject, const KvRow& write, const PoolSlot& slot);

/// The first pass before this one in whose cache the explained row is bad already; null when there is none.
const Tensor* bad_before(const Subject& subject);

}  // namespace nanscope
