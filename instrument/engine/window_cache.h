#pragma once
#include <cstdint>
#include <vector>

#include "core/result.h"
#include "instrument/engine/config.h"

/// Caches of models whose every layer sees a sliding window: what lies behind it is overwritten, or given back.
namespace nanscope {

/// The most tokens of a prompt of so many that a step stores.
std::int64_t rows_of_a_step(const EngineConfig& config, std::int64_t prompt);

/// Blocks that a sequence with such a prompt has at most when it has come to `tokens`. kv.window_cache=all: one for
/// every kv.block_size tokens. A ring has as many as hold the window of a step's first token and the step's own tokens;
/// where blocks roll on, one more, for windows that begin within one.
std::int64_t most_blocks(const EngineConfig& config, std::int64_t prompt, std::int64_t tokens);

/// Leading blocks of a sequence that no token from `first` on sees; 0 where none are given back.
std::int64_t blocks_behind(const EngineConfig& config, std::int64_t first);

/// Refuses what such a cache cannot do, by name.
Status check_window_cache(const EngineConfig& config);

}  // namespace nanscope
