#include "instrument/engine/prefix_cache.h"

#include <xxhash.h>

namespace nanscope {

std::uint64_t PrefixCache::chain(std::uint64_t before, std::span<const std::uint64_t> token_keys) {
  return XXH3_64bits_withSeed(token_keys.data(), token_keys.size_bytes(), before);
}

std::optional<std::int64_t> PrefixCache::find(std::uint64_t hash) const {
  const auto found = block_of_.find(hash);
  return found == block_of_.end() ? std::nullopt : std::optional(found->second);
}

void PrefixCache::insert(std::uint64_t hash, std::int64_t block) {
  if (!block_of_.try_emplace(hash, block).second) return;
  hash_of_[block] = hash;
}

void PrefixCache::forget(std::int64_t block) {
  const auto found = hash_of_.find(block);
  if (found == hash_of_.end()) return;
  block_of_.erase(found->second);
  hash_of_.erase(found);
}

}  // namespace nanscope
