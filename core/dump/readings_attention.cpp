#include <algorithm>
#include <cmath>
#include <functional>

#include "core/dump/attention_shape.h"
#include "core/dump/readings.h"
#include "core/numbers/codec.h"

/// Scores and attention outputs made again from the codes in the KV cache.
namespace nanscope {
namespace {

constexpr std::size_t kSamples = 64;
constexpr double kTolerance = 0.03;  ///< of the largest: products of fp8 codes are kept in bf16

std::optional<TensorIndex> last_of(const DumpFacts& facts, TensorIndex beside, std::string_view role) {
  std::optional<TensorIndex> found;
  for (const TensorIndex i : facts.members(facts.pass_of(beside))) {
    const TensorName& at = facts.tensor(i).at;
    if (at.role == role && at.layer == facts.tensor(beside).at.layer && at.tower == facts.tensor(beside).at.tower)
      found = i;
  }
  return found;
}

/// Attention's own output, where what goes into the projection behind it was dumped too.
std::optional<TensorIndex> first_after(const DumpFacts& facts, TensorIndex beside, std::string_view role) {
  for (const TensorIndex i : facts.members(facts.pass_of(beside))) {
    const TensorName& at = facts.tensor(i).at;
    if (i > beside && at.role == role && at.layer == facts.tensor(beside).at.layer &&
        at.tower == facts.tensor(beside).at.tower)
      return i;
  }
  return std::nullopt;
}

struct Sum {
  double actual = 0;
  double codes = 0;  ///< the same of the unscaled codes
};

/// The power of the scale that the sums show: actual = codes x scale^power. Codes of another flavour are a factor off,
/// or none at all; elementwise evidence tells those.
ReadingReport judged(DumpFacts& facts, const Quantized& quantized, TensorIndex shown, std::string how, float scale,
                     const std::vector<Sum>& sums) {
  ReadingReport report;
  report.codes = quantized.codes;
  report.scale = quantized.scale;
  report.shown = shown;
  report.how = std::move(how);
  report.proper = report.best = {*facts.tensor(quantized.codes).format, 1};
  report.scale_value = double{scale};
  report.elements = sums.size();
  double largest = 0;
  for (const Sum& sum : sums) largest = std::max(largest, std::abs(sum.actual));
  for (const int power : {1, 0, 2, -1}) {
    const double factor = std::pow(double{scale}, power);
    const auto hits = std::count_if(sums.begin(), sums.end(), [&](const Sum& sum) {
      return std::abs(sum.codes * factor - sum.actual) <= kTolerance * largest;
    });
    const double share = sums.empty() ? 0 : static_cast<double>(hits) / static_cast<double>(sums.size());
    if (power == 1) report.proper_share = share;
    if (share > report.best_share + 1e-9) {
      report.best_share = share;
      report.best.power = power;
    }
  }
  return report;
}

std::optional<ReadingReport> scores_reading(DumpFacts& facts, const Quantized& quantized, float scale) {
  const auto scores = last_of(facts, quantized.codes, "scores");
  const auto q = last_of(facts, quantized.codes, "q");
  if (!scores || !q) return std::nullopt;
  const auto shape = scores_shape(facts.tensor(*scores));
  if (!shape) return std::nullopt;
  const auto q_layout = heads_layout(facts.tensor(*q), shape->queries, shape->heads, 0);
  if (!q_layout) return std::nullopt;
  const auto k_layout = heads_layout(facts.tensor(quantized.codes), shape->keys, 0, q_layout->width);
  if (!k_layout || shape->heads % k_layout->heads != 0) return std::nullopt;
  const auto scores_values = facts.values(*scores);
  const auto q_values = facts.values(*q);
  const auto k_values = facts.values(quantized.codes);
  if (!scores_values || !q_values || !k_values) return std::nullopt;
  const double by_width = 1 / std::sqrt(static_cast<double>(q_layout->width));
  std::vector<Sum> sums;
  const std::size_t stride = std::max<std::size_t>(1, scores_values->size() / kSamples) | 1U;
  for (std::size_t i = 0; i < scores_values->size(); i += stride) {
    if (!std::isfinite((*scores_values)[i])) continue;  // masked
    const auto index = static_cast<std::int64_t>(i);
    const std::int64_t key = index % shape->keys;
    const std::int64_t query = index / shape->keys % shape->queries;
    const std::int64_t head = index / shape->keys / shape->queries;
    double dot = 0;
    for (std::int64_t c = 0; c < q_layout->width; ++c) {
      dot += double{(*q_values)[q_layout->at(query, head, c)]} *
             double{(*k_values)[k_layout->at(key, head / (shape->heads / k_layout->heads), c)]};
    }
    sums.push_back({double{(*scores_values)[i]}, dot * by_width});
  }
  return judged(facts, quantized, *scores, "q k'", scale, sums);
}

std::optional<ReadingReport> mix_reading(DumpFacts& facts, const Quantized& quantized, float scale) {
  const auto probs = last_of(facts, quantized.codes, "probs");
  const auto out = first_after(facts, quantized.codes, "attn_out");
  if (!probs || !out) return std::nullopt;
  const auto shape = scores_shape(facts.tensor(*probs));
  if (!shape) return std::nullopt;
  const auto out_layout = heads_layout(facts.tensor(*out), shape->queries, shape->heads, 0);
  if (!out_layout) return std::nullopt;
  const auto v_layout = heads_layout(facts.tensor(quantized.codes), shape->keys, 0, out_layout->width);
  if (!v_layout || shape->heads % v_layout->heads != 0) return std::nullopt;
  const auto p_values = facts.values(*probs);
  const auto out_values = facts.values(*out);
  const auto v_values = facts.values(quantized.codes);
  if (!p_values || !out_values || !v_values) return std::nullopt;
  std::vector<Sum> sums;
  const std::int64_t count = shape->queries * shape->heads * out_layout->width;
  const std::int64_t stride = std::max<std::int64_t>(1, count / static_cast<std::int64_t>(kSamples)) | 1;
  for (std::int64_t i = 0; i < count; i += stride) {
    const std::int64_t channel = i % out_layout->width;
    const std::int64_t head = i / out_layout->width % shape->heads;
    const std::int64_t query = i / out_layout->width / shape->heads;
    const float actual = (*out_values)[out_layout->at(query, head, channel)];
    if (!std::isfinite(actual)) continue;
    double sum = 0;
    for (std::int64_t key = 0; key < shape->keys; ++key) {
      const double p =
          double{(*p_values)[static_cast<std::size_t>((head * shape->queries + query) * shape->keys + key)]};
      if (p != 0) sum += p * double{(*v_values)[v_layout->at(key, head / (shape->heads / v_layout->heads), channel)]};
    }
    sums.push_back({double{actual}, sum});
  }
  return judged(facts, quantized, *out, "p v", scale, sums);
}

}  // namespace

std::optional<ReadingReport> attention_reading(DumpFacts& facts, const Quantized& quantized);
std::optional<ReadingReport> attention_reading(DumpFacts& facts, const Quantized& quantized) {
  const auto scale = facts.scalar(*quantized.scale);
  if (!scale || !std::isfinite(*scale) || *scale == 0) return std::nullopt;
  const std::string& role = facts.tensor(quantized.codes).at.role;
  // A dequantized copy in the dump is what attention read; it is compared element by element.
  if (quantized.readback) return std::nullopt;
  if (role == "k_cache") return scores_reading(facts, quantized, *scale);
  if (role == "v_cache") return mix_reading(facts, quantized, *scale);
  return std::nullopt;
}

}  // namespace nanscope
