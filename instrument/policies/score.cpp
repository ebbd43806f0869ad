#include "instrument/policies/score.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numbers>
#include <optional>

namespace nanscope {
namespace {

constexpr double kBulk = 0.995;

/// splitmix64 (Steele, Lea, Flood 2014).
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// A normal number for each element, the same in every run (Box and Muller 1958).
double normal(std::uint64_t element) {
  constexpr double kUnit = 0x1p-53;
  const double u = (static_cast<double>(mixed(2 * element) >> 11U) + 1) * kUnit;
  const double v = static_cast<double>(mixed(2 * element + 1) >> 11U) * kUnit;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

std::span<const float> row_span(std::span<const float> rows, std::int64_t row, std::int64_t count,
                                std::int64_t channels) {
  return rows.subspan(static_cast<std::size_t>(row * channels), static_cast<std::size_t>(count * channels));
}

/// K or V of a layer as a policy gives them back.
class Store {
 public:
  virtual ~Store() = default;
  virtual Status add(const StoredStep& step) = 0;
  /// The own rows of a sequence so far.
  virtual Result<std::vector<float>> own(std::size_t sequence) = 0;
  virtual KvCounts counts() const { return {}; }
};

/// What was stored, times noise.
class Untouched final : public Store {
 public:
  Untouched(const LayerTokens& tokens, std::span<const float> rows, std::int64_t channels, double noise,
            std::uint64_t seed)
      : tokens_(tokens), rows_(rows.begin(), rows.end()), channels_(channels) {
    for (std::size_t i = 0; noise > 0 && i < rows_.size(); ++i)
      rows_[i] = static_cast<float>(double{rows_[i]} * (1 + noise * normal(seed + i)));
  }
  Status add(const StoredStep&) override { return {}; }
  Result<std::vector<float>> own(std::size_t sequence) override {
    const TokenSequence& one = tokens_.sequences[sequence];
    return rows_of_keys(tokens_, rows_, channels_, sequence, one.first_position, one.end - 1);
  }

 private:
  const LayerTokens& tokens_;
  std::vector<float> rows_;
  std::int64_t channels_;
};

class Scheme final : public Store {
 public:
  Scheme(const LayerTokens& tokens, const KvScheme& scheme, bool keys, std::int64_t layers)
      : tokens_(tokens),
        turned_(keys && scheme.before_rope),
        channels_(keys ? tokens.shape.key_channels() : tokens.shape.value_channels()),
        rows_(turned_ ? tokens.k_before
              : keys  ? tokens.k
                      : tokens.v),
        cache_(scheme, tokens.layer, layers, tokens.shape.kv_heads,
               keys ? tokens.shape.key_width : tokens.shape.value_width) {}

  Status add(const StoredStep& step) override {
    std::vector<KvRows> spans;
    // Behind a shared prefix, which lies in another sequence of the cache, the own rows begin at 0.
    for (const StoredSpan& span : step.spans)
      spans.push_back({row_span(rows_, span.offset, span.rows, channels_), static_cast<std::int64_t>(span.sequence),
                       span.first_position - tokens_.sequences[span.sequence].first_position});
    return cache_.store(spans);
  }

  Result<std::vector<float>> own(std::size_t sequence) override {
    Result<std::vector<float>> rows = cache_.read(static_cast<std::int64_t>(sequence));
    if (rows && turned_) turn(*rows, tokens_.sequences[sequence]);
    return rows;
  }

  KvCounts counts() const override { return cache_.counts(); }

 private:
  /// Rotates what was stored before the rotation, by the angles that the run's own keys show.
  void turn(std::vector<float>& rows, const TokenSequence& sequence) const {
    const std::int64_t width = tokens_.shape.key_width;
    const std::int64_t pairs = tokens_.rotated / 2;
    const std::int64_t count = static_cast<std::int64_t>(rows.size()) / channels_;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = sequence.rows[static_cast<std::size_t>(i)];
      const float* x = tokens_.k_before.data() + row * channels_;
      const float* y = tokens_.k.data() + row * channels_;
      float* read = rows.data() + i * channels_;
      for (std::int64_t head = 0; head < channels_; head += width) {
        for (std::int64_t pair = 0; pair < pairs; ++pair) {
          const std::int64_t a = head + (tokens_.interleaved ? 2 * pair : pair);
          const std::int64_t b = tokens_.interleaved ? a + 1 : a + pairs;
          turn_pair(x[a], x[b], y[a], y[b], read[a], read[b]);
        }
      }
    }
  }

  static void turn_pair(double x, double y, double turned_x, double turned_y, float& a, float& b) {
    const double squared = x * x + y * y;
    if (squared == 0) return;
    const double cosine = (x * turned_x + y * turned_y) / squared;
    const double sine = (x * turned_y - y * turned_x) / squared;
    const double from_a = double{a};
    const double from_b = double{b};
    a = static_cast<float>(cosine * from_a - sine * from_b);
    b = static_cast<float>(sine * from_a + cosine * from_b);
  }

  const LayerTokens& tokens_;
  bool turned_;
  std::int64_t channels_;
  std::span<const float> rows_;
  SchemeCache cache_;
};

/// Rows of positions as a store gives them back, each sequence read once a step.
class ReadBack {
 public:
  ReadBack(const LayerTokens& tokens, Store& store, std::int64_t channels)
      : tokens_(tokens), store_(store), channels_(channels) {}

  void next_step() { read_.clear(); }

  /// Of positions [first, last]; good until the next call.
  Result<std::span<const float>> rows(std::size_t sequence, std::int64_t first, std::int64_t last) {
    const TokenSequence& one = tokens_.sequences[sequence];
    if (first >= one.first_position) return own_rows(sequence, first, last);
    together_.clear();
    for (std::int64_t position = first; position < std::min(one.first_position, last + 1); ++position) {
      const auto& [from, at] = one.shared[static_cast<std::size_t>(position)];
      auto row = own_rows(from, at, at);
      if (!row) return row;
      together_.insert(together_.end(), row->begin(), row->end());
    }
    if (last < one.first_position) return together_;
    auto rest = own_rows(sequence, one.first_position, last);
    if (!rest) return rest;
    together_.insert(together_.end(), rest->begin(), rest->end());
    return together_;
  }

 private:
  Result<std::span<const float>> own_rows(std::size_t sequence, std::int64_t first, std::int64_t last) {
    auto known = read_.find(sequence);
    if (known == read_.end()) {
      auto rows = store_.own(sequence);
      if (!rows) return tl::unexpected(rows.error());
      known = read_.emplace(sequence, std::move(*rows)).first;
    }
    const std::int64_t begin = first - tokens_.sequences[sequence].first_position;
    const std::int64_t count = last - first + 1;
    if (static_cast<std::size_t>((begin + count) * channels_) > known->second.size())
      return fail("a cache gave back fewer rows than were stored");
    return row_span(known->second, begin, count, channels_);
  }

  const LayerTokens& tokens_;
  Store& store_;
  std::int64_t channels_;
  std::map<std::size_t, std::vector<float>> read_;
  std::vector<float> together_;
};

/// Sums of squares.
struct Relative {
  double off = 0;
  double all = 0;
  void add(double made, double exact) {
    off += (made - exact) * (made - exact);
    all += exact * exact;
  }
  double value() const { return all > 0 ? std::sqrt(off / all) : off > 0 ? INFINITY : 0; }
};

std::size_t largest_of(std::span<const double> row) {
  return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

/// Sums over the queries of a layer.
class Sums {
 public:
  Sums(const LayerReference& reference, LayerScore& into) : reference_(reference), into_(into) {}

  void add(const PolicyQuery& query, std::span<const double> made, std::span<const double> output) {
    ++into_.queries;
    const auto finite = [](double value) { return std::isfinite(value); };
    // A probability of 0 has a logarithm of -Inf, which is no fault.
    const bool numbers = std::none_of(made.begin(), made.end(), [](double p) { return std::isnan(p); });
    if (!numbers || !std::all_of(output.begin(), output.end(), finite)) {
      ++into_.not_finite;
      return;
    }
    const std::span<const double> exact_output = reference_.output(query);
    for (std::size_t c = 0; c < output.size(); ++c) error_.add(output[c], exact_output[c]);
    const std::span<const double> exact = reference_.log_probabilities(query);
    const auto heads = static_cast<std::size_t>(reference_.tokens().shape.heads);
    const std::size_t keys = exact.size() / heads;
    for (std::size_t head = 0; head < heads; ++head) {
      const std::span<const double> p = exact.subspan(head * keys, keys);
      const std::span<const double> q = made.subspan(head * keys, keys);
      double divergence = 0;
      for (std::size_t key = 0; key < keys; ++key) {
        if (const double weight = std::exp(p[key]); weight > 0) divergence += weight * (p[key] - q[key]);
      }
      divergence = std::max(0.0, divergence);
      divergence_ += divergence;
      into_.worst_divergence = std::max(into_.worst_divergence, divergence);
      agreed_ += largest_of(p) == largest_of(q) ? 1 : 0;
      ++lines_;
    }
  }

  void finish() {
    const bool none = lines_ == 0;
    into_.error = none ? std::nan("") : error_.value();
    into_.divergence = none ? std::nan("") : divergence_ / static_cast<double>(lines_);
    into_.agreement = none ? 0 : static_cast<double>(agreed_) / static_cast<double>(lines_);
  }

 private:
  const LayerReference& reference_;
  LayerScore& into_;
  Relative error_;
  double divergence_ = 0;
  std::int64_t agreed_ = 0;
  std::int64_t lines_ = 0;
};

/// Standard deviation of the scores of keys that are not hidden.
double deviation_of(std::span<const double> scores) {
  double sum = 0;
  double squares = 0;
  double count = 0;
  for (const double score : scores) {
    if (std::isinf(score)) continue;
    sum += score;
    ++count;
  }
  for (const double score : scores) {
    if (!std::isinf(score)) squares += (score - sum / count) * (score - sum / count);
  }
  return count > 0 ? std::sqrt(squares / count) : 0;
}

std::unique_ptr<Store> store_of(const LayerTokens& tokens, const PolicyCandidate& candidate, bool keys,
                                std::int64_t layers) {
  const double noise = keys ? candidate.k_noise : candidate.v_noise;
  if (noise > 0 || (keys ? candidate.exact_k : candidate.exact_v)) {
    constexpr std::uint64_t kValues = std::uint64_t{1} << 62U;
    return std::make_unique<Untouched>(tokens, keys ? tokens.k : tokens.v,
                                       keys ? tokens.shape.key_channels() : tokens.shape.value_channels(), noise,
                                       keys ? 0 : kValues);
  }
  return std::make_unique<Scheme>(tokens, keys ? candidate.k : candidate.v, keys, layers);
}

/// How far all rows are off after the last step, and those that are not large.
Status rows_error(const LayerTokens& tokens, Store& store, bool keys, double bulk, Relative& all, Relative& of_bulk) {
  const std::int64_t channels = keys ? tokens.shape.key_channels() : tokens.shape.value_channels();
  const std::span<const float> exact = keys ? tokens.k : tokens.v;
  for (std::size_t sequence = 0; sequence < tokens.sequences.size(); ++sequence) {
    const TokenSequence& one = tokens.sequences[sequence];
    if (one.rows.empty()) continue;
    const auto read = store.own(sequence);
    if (!read) return tl::unexpected(read.error());
    for (std::size_t i = 0; i < read->size(); ++i) {
      const auto row = one.rows[i / static_cast<std::size_t>(channels)];
      const float was = exact[static_cast<std::size_t>(row * channels) + i % static_cast<std::size_t>(channels)];
      all.add(double{(*read)[i]}, double{was});
      if (std::abs(double{was}) <= bulk) of_bulk.add(double{(*read)[i]}, double{was});
    }
  }
  return {};
}

}  // namespace

std::vector<float> rows_of_keys(const LayerTokens& tokens, std::span<const float> rows, std::int64_t channels,
                                std::size_t sequence, std::int64_t first, std::int64_t last) {
  std::vector<float> out;
  out.reserve(static_cast<std::size_t>((last - first + 1) * channels));
  const TokenSequence& one = tokens.sequences[sequence];
  for (std::int64_t position = first; position <= last; ++position) {
    const bool shared = position < one.first_position;
    const auto& [from, at] = shared ? one.shared[static_cast<std::size_t>(position)] : std::pair(sequence, position);
    const TokenSequence& owner = tokens.sequences[from];
    const auto row = row_span(rows, owner.rows[static_cast<std::size_t>(at - owner.first_position)], 1, channels);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

LayerReference::LayerReference(const LayerTokens& tokens) : tokens_(tokens) {
  const auto queries = static_cast<std::size_t>(tokens.queries);
  log_probabilities_.resize(queries);
  outputs_.resize(queries);
  const AttentionGeometry& shape = tokens.shape;
  double deviations = 0;
  for (const StoredStep& step : tokens.steps) {
    for (const PolicyQuery& query : step.queries) {
      const auto at = static_cast<std::size_t>(query.offset);
      const auto keys =
          rows_of_keys(tokens, tokens.k, shape.key_channels(), query.sequence, query.first_key, query.last_key);
      std::vector<double>& scores = log_probabilities_[at];
      attention_scores(shape, row_span(tokens.q, query.offset, 1, shape.query_channels()), keys, query.bias, scores);
      const std::size_t count = scores.size() / static_cast<std::size_t>(shape.heads);
      for (std::size_t head = 0; head < static_cast<std::size_t>(shape.heads); ++head) {
        deviations += deviation_of(std::span(scores).subspan(head * count, count));
      }
      log_softmax(shape.heads, scores);
      const auto values =
          rows_of_keys(tokens, tokens.v, shape.value_channels(), query.sequence, query.first_key, query.last_key);
      mix_values(shape, scores, values, outputs_[at]);
    }
  }
  deviation_ = deviations / static_cast<double>(std::max<std::int64_t>(1, tokens.queries * shape.heads));
  std::vector<float> magnitudes(tokens.v.size());
  std::transform(tokens.v.begin(), tokens.v.end(), magnitudes.begin(), [](float value) { return std::abs(value); });
  if (magnitudes.empty()) return;
  const auto rank = static_cast<std::ptrdiff_t>(kBulk * static_cast<double>(magnitudes.size() - 1));
  std::nth_element(magnitudes.begin(), magnitudes.begin() + rank, magnitudes.end());
  percentile_ = double{magnitudes[static_cast<std::size_t>(rank)]};
  largest_ = double{*std::max_element(magnitudes.begin() + rank, magnitudes.end())};
}

std::span<const double> LayerReference::log_probabilities(const PolicyQuery& query) const {
  return log_probabilities_[static_cast<std::size_t>(query.offset)];
}

std::span<const double> LayerReference::output(const PolicyQuery& query) const {
  return outputs_[static_cast<std::size_t>(query.offset)];
}

std::optional<double> LayerReference::recorded_error() const {
  if (tokens_.recorded.empty()) return std::nullopt;
  Relative error;
  for (const StoredStep& step : tokens_.steps) {
    for (const PolicyQuery& query : step.queries) {
      const std::span<const double> exact = output(query);
      const auto made = row_span(tokens_.recorded, query.offset, 1, tokens_.shape.output_channels());
      for (std::size_t c = 0; c < exact.size(); ++c) {
        if (std::isfinite(made[c])) error.add(double{made[c]}, exact[c]);
      }
    }
  }
  return error.value();
}

Result<LayerScore> score_layer(const LayerReference& reference, const PolicyCandidate& candidate, std::int64_t layers,
                               const std::stop_token& stop) {
  const LayerTokens& tokens = reference.tokens();
  const AttentionGeometry& shape = tokens.shape;
  LayerScore score;
  score.layer = tokens.layer;
  const auto k_store = store_of(tokens, candidate, true, layers);
  const auto v_store = store_of(tokens, candidate, false, layers);
  ReadBack keys(tokens, *k_store, shape.key_channels());
  ReadBack values(tokens, *v_store, shape.value_channels());
  Sums sums(reference, score);
  std::vector<double> made;
  std::vector<double> output;
  for (const StoredStep& step : tokens.steps) {
    if (stop.stop_requested()) return fail("stopped");
    for (Store* store : {k_store.get(), v_store.get()}) {
      if (Status stored = store->add(step); !stored) return tl::unexpected(stored.error());
    }
    keys.next_step();
    values.next_step();
    for (const PolicyQuery& query : step.queries) {
      const auto k = keys.rows(query.sequence, query.first_key, query.last_key);
      if (!k) return tl::unexpected(k.error());
      attention_scores(shape, row_span(tokens.q, query.offset, 1, shape.query_channels()), *k, query.bias, made);
      log_softmax(shape.heads, made);
      const auto v = values.rows(query.sequence, query.first_key, query.last_key);
      if (!v) return tl::unexpected(v.error());
      mix_values(shape, made, *v, output);
      sums.add(query, made, output);
    }
  }
  sums.finish();
  score.k = k_store->counts();
  score.v = v_store->counts();
  Relative k_error, k_bulk, v_error, v_bulk;
  if (Status done = rows_error(tokens, *k_store, true, INFINITY, k_error, k_bulk); !done)
    return tl::unexpected(done.error());
  if (Status done = rows_error(tokens, *v_store, false, reference.percentile(), v_error, v_bulk); !done)
    return tl::unexpected(done.error());
  score.k_error = k_error.value();
  score.v_error = v_error.value();
  score.v_bulk_error = v_bulk.value();
  return score;
}

}  // namespace nanscope
