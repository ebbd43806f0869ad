#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/recording/rows.h"
#include "instrument/kv_schemes/kv_scheme.h"

namespace nanscope {

/// Where a scale comes from, for the ledger.
struct KvScaleOrigin {
  ScaleSource source = ScaleSource::none;
  std::int64_t request = -1;
  std::int64_t step = -1;
  std::int64_t tokens = 0;
  double absmax = 0;  ///< of the rows that it was computed from
  bool locked = false;
};

/// Scales of rows that are about to be stored, as kv_store takes them.
struct KvScales {
  std::int64_t rows = 1;       ///< 1, or one each
  std::int64_t groups = 1;     ///< of channels
  std::vector<float> scales;   ///< (rows, groups): what rows are divided by, or multiplied with
  std::vector<float> kept;     ///< (rows, groups): what codes are read with; empty: the same
  std::int64_t zero_rows = 0;  ///< 1, or one each; 0: there are no zero points
  std::int64_t zero_groups = 0;
  std::vector<float> zeros;
  KvScaleOrigin origin;  ///< of the largest scale that is read with

  const std::vector<float>& read_scales() const { return kept.empty() ? scales : kept; }
  /// The largest of their magnitudes (q4_0's have signs); NaN where one is.
  float largest() const;
};

/// What decides the scales of one layer's K or V during a run: statistics of rows, kept for as long as the scheme says.
/// On the host, in f32 where a server computes in f32: absmax / divisor is one division; percentiles in f64 as numpy
/// has them, then f32. A NaN among the values makes the scale NaN, as torch.amax does.
class ScaleChooser {
 public:
  /// `scheme` has passed check().
  ScaleChooser(const KvScheme& scheme, std::int64_t kv_heads, std::int64_t head_dim);

  /// `rows`: (tokens, kv_heads * head_dim) of a step, rotated already where the scheme wants it. Spans say whose they
  /// are; rows of none pad the step, and count where a scale is of the step.
  KvScales choose(std::span<const float> rows, std::span<const Span> spans, std::int64_t step);

  /// How far the rows are from clipping under `scales`: the least over groups of what a scale reaches to over the
  /// largest magnitude in its group; below 1 some clip. 1 of scales with zero points that are minima, which reach by
  /// definition; elements that are kept apart as outliers do not count. +Inf when all are 0.
  double headroom(const KvScales& scales, std::span<const float> rows) const;

  /// Channels that share a scale and a zero point, as kv_store wants them: 0 is all.
  std::int64_t scale_group() const { return scale_group_; }
  std::int64_t zero_group() const { return zero_group_; }

 private:
  /// Least and largest value; of magnitudes `high` alone.
  struct Extent {
    float low = 0;
    float high = 0;
  };
  struct Held {
    std::vector<Extent> extents;  ///< by group of channels
    KvScaleOrigin origin;
  };
  using Rows = std::span<const float>;

  Rows part(Rows rows, std::int64_t first, std::int64_t count) const;
  Extent extent(std::vector<float>& values) const;
  std::vector<Extent> extents(Rows rows, std::int64_t group) const;
  KvScaleOrigin origin(Rows rows, std::span<const Span> spans, std::int64_t step) const;
  Held measured(Rows rows, std::span<const Span> spans, std::int64_t step) const;
  Held held(Rows rows, std::span<const Span> spans, std::int64_t step);
  Held of_history(Rows rows, std::span<const Span> spans, std::int64_t step);
  void put(KvScales& out, std::size_t at, const Extent& extent) const;
  void put_all(KvScales& out, std::int64_t row, const Held& held) const;
  void put_blocks(KvScales& out, std::int64_t row, Rows values, float second) const;
  KvScales grid(std::int64_t rows) const;
  KvScales of_each_token(Rows rows, std::span<const Span> spans, std::int64_t step) const;
  KvScales of_token_groups(Rows rows, std::span<const Span> spans, std::int64_t step) const;
  KvScales of_blocks(Rows rows, std::span<const Span> spans, std::int64_t step);
  KvScales of_lifetime(Rows rows, std::span<const Span> spans, std::int64_t step);
  /// Rows less their means, which become the zero points.
  std::vector<float> less_means(Rows rows, std::span<const Span> spans, KvScales& means);

  KvScheme scheme_;
  std::int64_t channels_;
  std::int64_t scale_group_;
  std::int64_t zero_group_;
  std::int64_t groups_;
  float divisor_;
  std::map<std::int64_t, Held> of_request_;
  std::map<std::int64_t, std::vector<float>> means_;
  std::optional<Held> for_good_;
  std::deque<Held> history_;
};

}  // namespace nanscope
