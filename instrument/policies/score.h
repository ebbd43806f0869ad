#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "core/result.h"
#include "instrument/kv_schemes/scheme_cache.h"
#include "instrument/policies/candidate.h"
#include "instrument/policies/layer_tokens.h"

/// One layer under one policy: the same attention in double precision over the keys and values that were stored, and
/// over those that come back out of the cache. Only the cache differs.
namespace nanscope {

/// Errors are relative: root of the sum of squared differences over that of squares.
struct LayerScore {
  std::int64_t layer = 0;
  double error = 0;       ///< of the attention output
  double divergence = 0;  ///< KL of the probabilities from the exact ones, nats, mean over queries and heads
  double worst_divergence = 0;
  double agreement = 1;  ///< queries and heads whose key of the largest probability is the same
  std::int64_t queries = 0;
  std::int64_t not_finite = 0;  ///< queries whose output is NaN or Inf, which it was not
  KvCounts k, v;
  double k_error = 0;  ///< of what is read back after the last step
  double v_error = 0;
  double v_bulk_error = 0;  ///< of values up to the 99.5th percentile of the layer's magnitudes
};

/// What scores of a layer are measured against.
class LayerReference {
 public:
  explicit LayerReference(const LayerTokens& tokens);

  const LayerTokens& tokens() const { return tokens_; }
  std::span<const double> log_probabilities(const PolicyQuery& query) const;  ///< (heads, keys)
  std::span<const double> output(const PolicyQuery& query) const;             ///< (heads * value_width)
  double logit_deviation() const { return deviation_; }  ///< standard deviation of a row's scores, mean over rows
  double spikes() const { return percentile_ > 0 ? largest_ / percentile_ : 0; }  ///< largest |v| / 99.5th percentile
  double percentile() const { return percentile_; }
  /// Relative difference of what the run itself made of these queries; nothing when that was not recorded.
  std::optional<double> recorded_error() const;

 private:
  const LayerTokens& tokens_;
  std::vector<std::vector<double>> log_probabilities_;  ///< by PolicyQuery::offset
  std::vector<std::vector<double>> outputs_;
  double deviation_ = 0;
  double percentile_ = 0;
  double largest_ = 0;
};

/// `layers`: of the model, for schemes of some layers alone. Errors: the scheme cannot store these rows; stopped.
Result<LayerScore> score_layer(const LayerReference& reference, const PolicyCandidate& candidate, std::int64_t layers,
                               const std::stop_token& stop = {});

/// Rows of K (or V) of one sequence by positions [first, last], as they were: of its own and of those that it shares.
std::vector<float> rows_of_keys(const LayerTokens& tokens, std::span<const float> rows, std::int64_t channels,
                                std::size_t sequence, std::int64_t first, std::int64_t last);

}  // namespace nanscope
