#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>

namespace nanscope {

/// Which full KV block holds the tokens of which prompt prefix. Freed blocks stay known until they
/// are handed out again.
class PrefixCache {
 public:
  /// Hash of a block: of its tokens' keys and the hash of the block before it (0 for the first).
  static std::uint64_t chain(std::uint64_t before, std::span<const std::uint64_t> token_keys);

  std::optional<std::int64_t> find(std::uint64_t hash) const;
  /// Keeps the older block when one with this hash is known.
  void insert(std::uint64_t hash, std::int64_t block);
  void forget(std::int64_t block);

 private:
  std::unordered_map<std::uint64_t, std::int64_t> block_of_;
  std::unordered_map<std::int64_t, std::uint64_t> hash_of_;
};

}  // namespace nanscope
