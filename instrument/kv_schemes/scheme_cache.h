#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "instrument/kv_schemes/kv_scheme.h"
#include "instrument/kv_schemes/scale_chooser.h"
#include "kernels/device.h"

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

  /// The rows of one step: of one sequence or of several. Rows from position 0 on begin their sequence anew. Errors:
  /// what check() says of the scheme; values of the wrong number; positions that do not follow on those before.
  Status store(std::span<const KvRows> step);
  /// All rows of the request's sequence as attention reads them after the last step: (tokens, kv_heads * head_dim) f32,
  /// transforms undone; keys before RoPE stay so.
  Result<std::vector<float>> read(std::int64_t request) const;
  const KvCounts& counts() const { return counts_; }

 private:
  struct Sequence {
    std::int64_t tokens = 0;
    std::int64_t coded = 0;            ///< positions [keep_first, coded) are read from codes where rows are kept
    std::vector<std::byte> codes;      ///< a slot a position
    std::vector<float> kept;           ///< rows as they are
    std::vector<float> scales, zeros;  ///< of each slot
  };
  /// Positions of one sequence, as a matrix that lies elsewhere.
  struct Range {
    Sequence* sequence = nullptr;
    std::int64_t first = 0;
    std::int64_t count = 0;
  };

  Status start();
  Result<std::vector<float>> rotated(std::span<const float> rows) const;
  Status append(std::span<const KvRows> step, std::vector<float>& rows, std::vector<Span>& spans);
  Status quantize(std::span<const float> rows, std::span<const Span> spans, std::span<Sequence* const> sequences);
  Status write(const Range& to, std::span<const float> rows, const KvScales& scales, std::int64_t row);
  /// Of the positions [first, first + count): out, count x channels.
  Status read_rows(const Sequence& sequence, std::int64_t first, std::int64_t count, std::span<float> out) const;
  Status count(const Range& range, std::span<const float> rows, const KvScales& scales, std::int64_t row);
  std::size_t size(std::int64_t rows) const { return static_cast<std::size_t>(rows * channels_); }

  KvScheme scheme_;
  std::int64_t heads_;
  std::int64_t head_dim_;
  std::int64_t channels_;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<ScaleChooser> chooser_;
  std::map<std::int64_t, Sequence> sequences_;
  std::int64_t steps_ = 0;
  double used_ = 0;  ///< sum over scales of the largest code's share of the format
  std::int64_t scales_ = 0;
  KvCounts counts_;
};

}  // namespace nanscope
