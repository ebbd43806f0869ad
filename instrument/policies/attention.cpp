#include "instrument/policies/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace nanscope {
namespace {

/// In eight sums, so that compilers may use vectors.
double dot(const double* a, const float* b, std::int64_t n) {
  std::array<double, 8> sums{};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (std::size_t lane = 0; lane < sums.size(); ++lane)
      sums[lane] += a[i + static_cast<std::int64_t>(lane)] * double{b[i + static_cast<std::int64_t>(lane)]};
  }
  double rest = 0;
  for (; i < n; ++i) rest += a[i] * double{b[i]};
  for (const double sum : sums) rest += sum;
  return rest;
}

std::int64_t rows_of(std::size_t elements, std::int64_t channels) {
  return channels > 0 ? static_cast<std::int64_t>(elements) / channels : 0;
}

}  // namespace

void attention_scores(const AttentionGeometry& shape, std::span<const float> query, std::span<const float> keys,
                      std::span<const float> bias, std::vector<double>& scores) {
  const std::int64_t count = rows_of(keys.size(), shape.key_channels());
  const std::int64_t shared = shape.heads / shape.kv_heads;
  scores.resize(static_cast<std::size_t>(shape.heads * count));
  const std::vector<double> q(query.begin(), query.end());
  for (std::int64_t key = 0; key < count; ++key) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const float* row = keys.data() + key * shape.key_channels() + head / shared * shape.key_width;
      double score = shape.factor * dot(q.data() + head * shape.key_width, row, shape.key_width);
      if (shape.softcap > 0) score = shape.softcap * std::tanh(score / shape.softcap);
      if (!bias.empty()) score += double{bias[static_cast<std::size_t>(key)]};
      scores[static_cast<std::size_t>(head * count + key)] = score;
    }
  }
}

void log_softmax(std::int64_t heads, std::vector<double>& scores) {
  const std::size_t count = heads > 0 ? scores.size() / static_cast<std::size_t>(heads) : 0;
  for (std::size_t head = 0; count > 0 && head < static_cast<std::size_t>(heads); ++head) {
    const std::span<double> row(scores.data() + head * count, count);
    double largest = row.front();
    for (const double score : row) largest = std::isnan(score) || score > largest ? score : largest;
    double sum = 0;
    for (const double score : row) sum += std::exp(score - largest);
    const double all = largest + std::log(sum);
    for (double& score : row) score -= all;
  }
}

void mix_values(const AttentionGeometry& shape, std::span<const double> log_probabilities,
                std::span<const float> values, std::vector<double>& out) {
  const std::int64_t count = rows_of(values.size(), shape.value_channels());
  const std::int64_t shared = shape.heads / shape.kv_heads;
  out.assign(static_cast<std::size_t>(shape.output_channels()), 0.0);
  for (std::int64_t head = 0; head < shape.heads; ++head) {
    double* into = out.data() + head * shape.value_width;
    for (std::int64_t key = 0; key < count; ++key) {
      const double p = std::exp(log_probabilities[static_cast<std::size_t>(head * count + key)]);
      const float* row = values.data() + key * shape.value_channels() + head / shared * shape.value_width;
      for (std::int64_t c = 0; c < shape.value_width; ++c) into[c] += p * double{row[c]};
    }
  }
}

}  // namespace nanscope
