#pragma once
#include <cstdint>
#include <span>
#include <vector>

/// Attention of single query rows in double precision, straightforward and slow: what caches are measured with.
namespace nanscope {

struct AttentionGeometry {
  std::int64_t heads = 1;        ///< of queries
  std::int64_t kv_heads = 1;     ///< each serves heads / kv_heads query heads, in order
  std::int64_t key_width = 1;    ///< channels of a head of queries and keys
  std::int64_t value_width = 1;  ///< of values
  double factor = 1;             ///< on the scores
  double softcap = 0;            ///< scores are cap * tanh(score / cap); 0: none

  std::int64_t key_channels() const { return kv_heads * key_width; }
  std::int64_t value_channels() const { return kv_heads * value_width; }
  std::int64_t query_channels() const { return heads * key_width; }
  std::int64_t output_channels() const { return heads * value_width; }
};

/// Scores of one query row (heads * key_width) with `keys` rows of (kv_heads * key_width): (heads, keys). `bias`, where
/// it is not empty, is added to those of each key; -Inf hides it.
void attention_scores(const AttentionGeometry& shape, std::span<const float> query, std::span<const float> keys,
                      std::span<const float> bias, std::vector<double>& scores);

/// Each head's scores less the logarithm of the sum of their exponentials: the logarithms of its probabilities. NaN
/// where a head has a score that is NaN.
void log_softmax(std::int64_t heads, std::vector<double>& scores);

/// Sum of `values` rows (kv_heads * value_width) by probabilities given as logarithms (heads, keys):
/// (heads * value_width).
void mix_values(const AttentionGeometry& shape, std::span<const double> log_probabilities,
                std::span<const float> values, std::vector<double>& out);

}  // namespace nanscope
