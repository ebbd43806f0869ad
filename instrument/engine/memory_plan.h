#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/blocks/block_format.h"
#include "core/numbers/format.h"
#include "core/result.h"
#include "instrument/engine/config.h"

/// What a model takes of a server's memory: weights and KV cache, counted from its configuration alone. Activations,
/// workspaces and the server itself are not in it.
namespace nanscope {

/// How numbers are stored: as they are, or in blocks that share a scale.
struct Storage {
  std::string name;  ///< as it was asked for
  Format element = Format::bf16;
  std::optional<BlockFormat> blocks;

  /// Of a matrix, its scales included; the one scale of a whole tensor is left out.
  double bytes(std::int64_t rows, std::int64_t columns) const;
};
/// A number format (bf16, e4m3, int8) or a block format of `nanscope bits --block list`. Errors name both kinds.
Result<Storage> find_storage(std::string_view name);

struct MemoryOptions {
  Storage weights;              ///< of the matrices that products read
  Storage others;               ///< of all other weights: embedding, norms, biases
  Storage cache;                ///< of keys and values
  std::int64_t context = 8192;  ///< tokens of a request
  std::int64_t batch = 1;       ///< requests at once
};

struct MemoryPlan {
  std::int64_t parameters = 0;
  std::int64_t active = 0;    ///< that one token meets: of a mixture, experts_per_token experts
  std::int64_t products = 0;  ///< in matrices that products read
  double weight_bytes = 0;
  double token_bytes = 0;           ///< of the cache for a token that all layers keep
  double request_bytes = 0;         ///< of a request of `context` tokens: layers with a window keep no more than that
  double cache_bytes = 0;           ///< of all requests
  bool latent = false;              ///< the cache keeps latents and the rotated part of keys (MLA)
  double expanded_token_bytes = 0;  ///< where `latent`: of a cache that keeps whole keys and values instead
};

/// `config.model.vocabulary` must be known.
MemoryPlan plan_memory(const EngineConfig& config, const MemoryOptions& options);

}  // namespace nanscope
