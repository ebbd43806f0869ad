#include "instrument/engine/window_cache.h"

#include <algorithm>

#include "instrument/engine/scheme_book.h"

namespace nanscope {

std::int64_t rows_of_a_step(const EngineConfig& config, std::int64_t prompt) {
  const std::int64_t chunk = config.batch.chunk;
  return chunk > 0 ? std::min(chunk, prompt) : prompt;
}

std::int64_t most_blocks(const EngineConfig& config, std::int64_t prompt, std::int64_t tokens) {
  const auto blocks_of = [&](std::int64_t count) { return (count + config.kv.block_size - 1) / config.kv.block_size; };
  const std::int64_t all = blocks_of(tokens);
  if (config.kv.window_cache == WindowCache::all) return all;
  const std::int64_t window = config.model.window;
  const std::int64_t live = std::max(window, std::min(prompt, window + rows_of_a_step(config, prompt) - 1));
  return std::min(all, blocks_of(live) + (config.kv.window_cache == WindowCache::rolling ? 1 : 0));
}

std::int64_t blocks_behind(const EngineConfig& config, std::int64_t first) {
  if (config.kv.window_cache != WindowCache::rolling) return 0;
  return std::max<std::int64_t>(0, first - config.model.window + 1) / config.kv.block_size;
}

Status check_window_cache(const EngineConfig& config) {
  if (config.kv.window_cache == WindowCache::all) return {};
  if (config.model.window == 0 || !config.model.full_layers.empty()) {
    return fail(
        "kv.window_cache needs a model whose every layer has a window: model.window, without model.full_layers");
  }
  if (keeps_rows(config)) return fail("kv.window_cache needs a kv.scheme that keeps no rows as they are");
  if (config.batch.preempt == Preempt::stale) return fail("kv.window_cache needs engine.preempt=recompute");
  return {};
}

}  // namespace nanscope
