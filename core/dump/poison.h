#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/dump/facts.h"

/// NaN and Inf in what attention read from a KV cache: whose rows they are, and whether anything attended to them.
namespace nanscope {

struct PoisonedCache {
  TensorIndex cache = 0;              ///< k_cache, v_cache, k_read or v_read
  TensorIndex shown = 0;              ///< the first tensor after it that is bad because of it
  std::vector<std::int64_t> keys;     ///< positions of the bad rows, where they could be told, else rows
  std::int64_t attended = 0;          ///< of them, keys with a probability that is not zero
  bool probabilities = false;         ///< were dumped and finite, so that `attended` is known
  bool behind_the_end = false;        ///< all of them are slots that the pass has no token for
  std::int64_t written = 0;           ///< rows that the pass wrote itself and are healthy
  std::optional<TensorIndex> source;  ///< an earlier pass's tensor of the same layer and kind that is bad
};

/// Caches with bad rows whose own pass put nothing bad into them, and which did harm.
std::vector<PoisonedCache> poisoned_caches(DumpFacts& facts);

}  // namespace nanscope
