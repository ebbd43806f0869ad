#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "instrument/kv_schemes/kv_scheme.h"

namespace nanscope {

/// Rows of K or V of one layer that a step stores for one sequence.
struct KvRows {
  std::span<const float> values;  ///< (tokens, kv_heads * head_dim), row-major
  std::int64_t request = 0;
  std::int64_t first_position = 0;
};

/// What storing did to the values, counted over what was quantized.
struct KvCounts {
  std::int64_t elements = 0;
  std::int64_t clipped = 0;     ///< beyond the largest code
  std::int64_t flushed = 0;     ///< not zero, but stored as zero
  std::int64_t non_finite = 0;  ///< finite values that read back as NaN or Inf
  double utilization = 0;       ///< mean over scales of largest |code value| / the format's largest
};

/// A cache of one layer's K or V under a scheme, outside an engine: what `nanscope policies` tries on rows of a run.
/// The arithmetic is the engine's (kernels/ops/kv_store.h, kv_read.h) on the CPU device.
class SchemeCache {
 public:
  SchemeCache(const KvScheme& scheme, std::int64_t layer, std::int64_t layers, std::int64_t kv_heads,
              std::int64_t head_dim);

  /// The rows of one step: of one sequence or of several.
  Status store(std::span<const KvRows> step);
  /// All rows of the request's sequence as attention reads them after the last step: (tokens, kv_heads * head_dim) f32,
  /// transforms undone.
  Result<std::vector<float>> read(std::int64_t request) const;
  const KvCounts& counts() const { return counts_; }

 private:
  KvCounts counts_;
};

}  // namespace nanscope
