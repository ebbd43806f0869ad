#include "instrument/policies/layer_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>

#include "instrument/policies/operands.h"
#include "instrument/policies/query_masks.h"

namespace nanscope {
namespace {

constexpr std::size_t kMostPlaces = 4;
/// Logarithms of probabilities that are kept of a layer's queries.
constexpr std::int64_t kMostProbabilities = (std::int64_t{256} << 20) / 8;

/// A row of K or V with a NaN or an Inf.
struct BadRow {
  StepId step = 0;
  std::int64_t request = 0;
  std::int64_t position = 0;
};

/// A row that may be taken as a query.
struct Candidate {
  std::size_t step = 0;  ///< of LayerTokens::steps
  StepId id = 0;
  std::size_t span = 0;
  PolicyQuery query;
};

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

class Collector {
 public:
  Collector(RunView& run, KvCache& cache, std::int64_t layer, const CollectOptions& options)
      : run_(run), cache_(cache), options_(options), masks_(run, options) {
    tokens_.layer = layer;
  }

  Result<LayerTokens> collect() {
    const Step* first = nullptr;
    for (const Step& step : run_.steps()) {
      if (first == nullptr) first = &step;
      if (step.rank != first->rank || step.run != first->run) continue;
      if (Status done = add_step(step); !done) return tl::unexpected(done.error());
    }
    if (candidates_.empty() && tokens_.queries_in_all == 0) {
      return fail(fmt::format("layer {}: {}", tokens_.layer,
                              missing_.empty() ? "no queries with all of their keys were found" : missing_));
    }
    leave_out_rows();
    if (Status done = take_queries(); !done) return tl::unexpected(done.error());
    return std::move(tokens_);
  }

 private:
  Status add_step(const Step& step) {
    const AttentionOps ops = attention_ops(run_, step, tokens_.layer);
    if (ops.scores.empty()) return {};
    StoredStep stored;
    stored.step = step.id;
    for (std::size_t span = 0; span < step.spans.size(); ++span) {
      if (Status done = add_span(step, ops, span, stored); !done) return done;
    }
    if (stored.spans.empty()) return {};
    tokens_.steps.push_back(std::move(stored));
    for (auto one = candidates_.rbegin(); one != candidates_.rend() && one->id == step.id; ++one)
      one->step = tokens_.steps.size() - 1;
    return {};
  }

  Status add_span(const Step& step, const AttentionOps& ops, std::size_t index, StoredStep& stored) {
    const Span& span = step.spans[index];
    const AttentionOperand q = find_operand(run_, ops, step, index, "q", options_.again);
    const AttentionOperand k = find_operand(run_, ops, step, index, "k", options_.again);
    const AttentionOperand v = find_operand(run_, ops, step, index, "v", options_.again);
    for (const auto& [operand, what] : {std::pair(&q, "queries"), std::pair(&k, "keys"), std::pair(&v, "values")}) {
      if (operand == &q ? q.own != nullptr : operand->there()) continue;
      missing_ = fmt::format("its {} were not dumped", what);
      return {};
    }
    if ((q.rotation == Rotation::before) != (k.rotation == Rotation::before)) {
      missing_ = fmt::format("its {} are behind their rotary embedding and its {} before it",
                             q.rotation == Rotation::before ? "keys" : "queries",
                             q.rotation == Rotation::before ? "queries" : "keys");
      return {};
    }
    if (Status known = know_shape(ops, q, k, v); !known) return known;
    OperandRows keys(run_, cache_, step, span, k);
    OperandRows values(run_, cache_, step, span, v);
    const bool fits =
        keys.channels() == tokens_.shape.key_channels() && values.channels() == tokens_.shape.value_channels();
    if (!fits) {
      missing_ = "its keys or values have other channels in some steps";
      return {};
    }
    const bool whole = settle_sequence(span, keys, values, step.id);
    const std::size_t sequence = current_[span.request];
    if (!append(keys, values, span.first_token, span.rows)) {
      missing_ = "its keys or values cannot be read";
      broken_.insert(sequence);
      return {};
    }
    note_before(k, step, span);
    stored.spans.push_back({sequence, span.first_token, span.rows, rows_ - span.rows});
    extend(tokens_.sequences[sequence], span.rows);
    if (whole && span.request != kWarmUpRequest && span.request != kDummyRequest)
      add_candidates(step, ops, index, sequence);
    return {};
  }

  /// Rows of both behind those that are there already.
  bool append(OperandRows& keys, OperandRows& values, std::int64_t first, std::int64_t count) {
    const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    const std::size_t k_before = tokens_.k.size();
    const std::size_t v_before = tokens_.v.size();
    tokens_.k.resize(k_before + size(count * keys.channels()));
    tokens_.v.resize(v_before + size(count * values.channels()));
    const bool read =
        keys.read(first, count, tokens_.k.data() + k_before) && values.read(first, count, tokens_.v.data() + v_before);
    if (!read) {
      tokens_.k.resize(k_before);
      tokens_.v.resize(v_before);
      return false;
    }
    rows_ += count;
    return true;
  }

  /// By the rows that were appended last.
  void extend(TokenSequence& sequence, std::int64_t count) const {
    for (std::int64_t row = rows_ - count; row < rows_; ++row) sequence.rows.push_back(row);
    sequence.end += count;
  }

  /// Of the sequence that a span goes on with, or begins. False: what is before it cannot be had.
  bool settle_sequence(const Span& span, OperandRows& keys, OperandRows& values, StepId step) {
    const auto known = current_.find(span.request);
    if (known != current_.end() && tokens_.sequences[known->second].end == span.first_token)
      return !broken_.contains(known->second);
    TokenSequence next;
    next.request = span.request;
    next.first_position = span.first_token;
    next.end = span.first_token;
    const std::size_t number = tokens_.sequences.size();
    bool whole = true;
    if (span.first_token > 0) {
      if (known != current_.end() && tokens_.sequences[known->second].end > span.first_token) {
        whole = !broken_.contains(known->second);
        for (std::int64_t p = 0; whole && p < span.first_token; ++p) next.shared.push_back(owner(known->second, p));
      } else if (!share(span, step, next)) {
        whole = append(keys, values, 0, span.first_token);
        if (whole) {
          // In the cache before anything of the request was dumped: stored at once, as far as anybody knows.
          next.first_position = 0;
          next.end = 0;
          extend(next, span.first_token);
          StoredStep before;
          before.step = step;
          before.spans.push_back({number, 0, span.first_token, rows_ - span.first_token});
          tokens_.steps.push_back(std::move(before));
          fact("keys before the first step are taken as the cache held them, stored at once");
        }
      }
    }
    if (!whole) {
      broken_.insert(number);
      missing_ = fmt::format("keys before position {} of request {} were not dumped", span.first_token, span.request);
    }
    tokens_.sequences.push_back(std::move(next));
    current_[span.request] = number;
    return whole;
  }

  std::pair<std::size_t, std::int64_t> owner(std::size_t sequence, std::int64_t position) const {
    const TokenSequence& one = tokens_.sequences[sequence];
    if (position >= one.first_position) return {sequence, position};
    return one.shared[static_cast<std::size_t>(position)];
  }

  /// A prefix that other requests stored, by the history of the cache.
  bool share(const Span& span, StepId step, TokenSequence& into) {
    for (std::int64_t position = 0; position < span.first_token; ++position) {
      const auto slot = cache_.slots().locate(span.request, position, step);
      const KvRow* write = slot ? cache_.slots().last_writer(*slot, tokens_.layer, step, false) : nullptr;
      const auto from = write != nullptr ? current_.find(write->request) : current_.end();
      if (from == current_.end() || write->action != KvAction::written) return false;
      const std::int64_t there = write->first_token + slot->slot - write->slot_begin;
      const TokenSequence& other = tokens_.sequences[from->second];
      if (there < 0 || there >= other.end || broken_.contains(from->second)) return false;
      into.shared.push_back(owner(from->second, there));
    }
    return true;
  }

  Status know_shape(const AttentionOps& ops, const AttentionOperand& q, const AttentionOperand& k,
                    const AttentionOperand& v) {
    if (known_) return {};
    known_ = true;
    const Tensor& queries = *q.own;
    const std::int64_t query_channels = q.channels();
    const std::int64_t key_channels = k.channels();
    const std::int64_t value_channels = v.channels();
    const Tensor& keys = k.own != nullptr ? *k.own : *k.cached;
    std::optional<std::int64_t> heads;
    std::optional<std::int64_t> kv_heads;
    std::optional<double> factor;
    std::optional<double> softcap;
    const auto state = [](auto& what, const auto& stated) {
      if (!what && stated) what = *stated;
    };
    for (const Op* op : ops.scores) {
      if (const auto* at = op->get<ScoresAttributes>()) {
        state(heads, at->heads), state(kv_heads, at->kv_heads), state(factor, at->factor), state(softcap, at->softcap);
      }
      if (const auto* at = op->get<MixAttributes>()) state(heads, at->heads), state(kv_heads, at->kv_heads);
    }
    std::string source = heads ? "as the run states" : "by its shapes";
    if (const OpForm* form = masks_.form_of(ops.scores.front())) {
      if (!heads && form->heads > 0) heads = form->heads, source = "as its numbers show";
      if (!factor && form->number > 0) factor = form->number, shown_ = true;
      if (!softcap && form->cap > 0) softcap = form->cap;
    }
    const KnownAttention& known = options_.known;
    if (known.heads > 0) {
      heads = known.heads;
      source = "by " + known.source;
      if (known.kv_heads > 0) kv_heads = known.kv_heads;
    }
    if (!heads && (queries.heads > 1 || query_channels == key_channels / std::max<std::int64_t>(1, keys.heads)))
      heads = queries.heads;
    const std::int64_t key_width = key_channels / std::max<std::int64_t>(1, keys.heads);
    if (!heads && keys.heads > 1 && query_channels % key_width == 0) heads = query_channels / key_width;
    AttentionGeometry& shape = tokens_.shape;
    if (heads && (*heads <= 0 || query_channels % *heads != 0))
      return fail(fmt::format("layer {}: {} channels of queries are not {} heads, {}", tokens_.layer, query_channels,
                              *heads, source));
    if (!heads)
      return fail(fmt::format("layer {}: how many heads its queries have is not known: say it with --heads, or --model",
                              tokens_.layer));
    shape.heads = *heads;
    shape.key_width = query_channels / *heads;
    shape.kv_heads = kv_heads.value_or(key_channels / std::max<std::int64_t>(1, shape.key_width));
    const bool fits = shape.kv_heads > 0 && shape.kv_heads * shape.key_width == key_channels &&
                      shape.heads % shape.kv_heads == 0 && value_channels % shape.kv_heads == 0;
    if (!fits)
      return fail(fmt::format("layer {}: {} channels of keys are no heads of {} channels, as its queries have",
                              tokens_.layer, key_channels, shape.key_width));
    shape.value_width = value_channels / shape.kv_heads;
    shape.factor = 1 / std::sqrt(static_cast<double>(shape.key_width));
    fact(fmt::format("{} heads of queries, {} of keys, {} channels each, {}", shape.heads, shape.kv_heads,
                     shape.key_width, source));
    know_scores(factor, softcap);
    tell_rows(q, k, v);
    return {};
  }

  void know_scores(const std::optional<double>& factor, const std::optional<double>& softcap) {
    AttentionGeometry& shape = tokens_.shape;
    const KnownAttention& known = options_.known;
    if (known.factor || factor) {
      shape.factor = known.factor.value_or(factor.value_or(shape.factor));
      fact(fmt::format("scores times {:.6g}, {}", shape.factor,
                       known.factor ? "by " + known.source
                       : shown_     ? "as its numbers show"
                                    : "as the run states"));
    } else {
      fact(fmt::format("scores times {:.6g}: 1 / sqrt(channels of a head), as nothing states another factor",
                       shape.factor));
    }
    shape.softcap = known.softcap.value_or(softcap.value_or(0));
    if (shape.softcap > 0) fact(fmt::format("scores capped at {:g}", shape.softcap));
  }

  void tell_rows(const AttentionOperand& q, const AttentionOperand& k, const AttentionOperand& v) {
    const AttentionOperand& turned = q.rotation == Rotation::unknown ? k : q;
    if (turned.rotation == Rotation::behind) fact("queries and keys behind their rotary embedding");
    if (turned.rotation == Rotation::before)
      fact("queries and keys before any rotary embedding: what is behind it was not dumped");
    if (turned.rotation == Rotation::unknown) fact("nothing says that queries and keys are rotated: taken as they are");
    if (q.computed != nullptr || k.computed != nullptr || v.computed != nullptr)
      fact("what was not dumped of them computed from what is before it");
    const auto kept = [](const AttentionOperand& one) {
      if (one.own != nullptr && one.own_scale == nullptr) return std::string();
      return std::string(name(one.own != nullptr ? one.own->format : one.cached->format));
    };
    const std::string keys = kept(k);
    const std::string values = kept(v);
    if (!keys.empty() || !values.empty())
      fact(fmt::format("{}{}{} as a cache gave them back ({}): what it had lost is not seen",
                       keys.empty() ? "" : "keys", !keys.empty() && !values.empty() ? " and " : "",
                       values.empty() ? "" : "values", keys.empty() ? values : keys));
  }

  void add_candidates(const Step& step, const AttentionOps& ops, std::size_t index, std::size_t sequence) {
    const Span& span = step.spans[index];
    const SpanMask mask = masks_.of_span(ops, step, index);
    fact(mask.stated          ? "masks as the run states"
         : !mask.form.empty() ? "masks as its numbers show: " + mask.form
                              : std::string("a causal mask, as nothing states another"));
    if (mask.window > 0) fact(fmt::format("a window of {} keys", mask.window));
    const AttentionOperand q = find_operand(run_, ops, step, index, "q", options_.again);
    const std::vector<std::int64_t> bad = run_.bad_rows(*q.own);
    for (std::int64_t i = 0; i < span.rows; ++i) {
      const auto row = run_.row_at(*q.own, span, span.first_token + i);
      if (!row) continue;
      if (std::binary_search(bad.begin(), bad.end(), *row)) {
        ++tokens_.queries_in_all;
        ++tokens_.queries_left_out;
        continue;
      }
      PolicyQuery query{sequence, span.first_token + i, mask.first_key, mask.last_key + i, 0, {}};
      query.last_key = std::min(query.last_key, span.first_token + span.rows - 1);
      if (mask.window > 0) query.first_key = std::max(query.first_key, query.last_key - mask.window + 1);
      if (query.last_key < query.first_key) continue;
      candidates_.push_back({0, step.id, index, query});
    }
  }

  /// Keys before their rotation, where those are there in every step.
  void note_before(const AttentionOperand& k, const Step& step, const Span& span) {
    if (!has_before_) return;
    const Tensor* x = k.own != nullptr && k.rotation == Rotation::behind ? before_rotation(run_, *k.own) : nullptr;
    AttentionOperand before;
    before.own = x;
    const auto channels = static_cast<std::size_t>(tokens_.shape.key_channels());
    const std::size_t wanted = static_cast<std::size_t>(rows_ - span.rows) * channels;
    std::vector<float> rows(static_cast<std::size_t>(span.rows) * channels);
    has_before_ = x != nullptr && x->channels == tokens_.shape.key_channels() && tokens_.k_before.size() == wanted &&
                  OperandRows(run_, cache_, step, span, before).read(span.first_token, span.rows, rows.data());
    if (!has_before_) {
      tokens_.k_before.clear();
      return;
    }
    tokens_.k_before.insert(tokens_.k_before.end(), rows.begin(), rows.end());
    const auto* at = run_.maker(*k.own)->get<RopeAttributes>();
    tokens_.rotated = at != nullptr && at->rotated && *at->rotated > 0 ? *at->rotated : tokens_.shape.key_width;
    tokens_.interleaved = at != nullptr && at->interleaved.value_or(false);
  }

  /// "step 17, request 2, positions 0 to 42", the first of them.
  void tell_left_out() {
    for (std::size_t i = 0; i < bad_rows_.size();) {
      std::size_t end = i + 1;
      const auto follows = [&](const BadRow& a, const BadRow& b) {
        return a.step == b.step && a.request == b.request && a.position + 1 == b.position;
      };
      while (end < bad_rows_.size() && follows(bad_rows_[end - 1], bad_rows_[end])) ++end;
      const BadRow& first = bad_rows_[i];
      const std::int64_t last = bad_rows_[end - 1].position;
      if (tokens_.left_out.size() == kMostPlaces) {
        tokens_.left_out.emplace_back("...");
        return;
      }
      tokens_.left_out.push_back(fmt::format("step {}, request {}, {}", first.step, first.request,
                                             last == first.position
                                                 ? fmt::format("position {}", last)
                                                 : fmt::format("positions {} to {}", first.position, last)));
      i = end;
    }
  }

  /// NaN and Inf that the run itself had: zeros in their place, so that no policy is blamed.
  void leave_out_rows() {
    bad_.resize(tokens_.sequences.size());
    for (const StoredStep& step : tokens_.steps) {
      for (const StoredSpan& span : step.spans) {
        for (std::int64_t i = 0; i < span.rows; ++i) leave_out_row(step.step, span, i);
      }
    }
    tell_left_out();
  }

  void leave_out_row(StepId step, const StoredSpan& span, std::int64_t i) {
    const auto row = [&](std::vector<float>& values, std::int64_t channels) {
      const auto begin = static_cast<std::size_t>((span.offset + i) * channels);
      return begin < values.size() ? std::span(values).subspan(begin, static_cast<std::size_t>(channels))
                                   : std::span<float>();
    };
    const std::span<float> k = row(tokens_.k, tokens_.shape.key_channels());
    const std::span<float> v = row(tokens_.v, tokens_.shape.value_channels());
    const std::span<float> before = row(tokens_.k_before, tokens_.shape.key_channels());
    if (all_finite(k) && all_finite(v) && all_finite(before)) return;
    for (const std::span<float>& each : {k, v, before}) std::fill(each.begin(), each.end(), 0.0F);
    ++tokens_.rows_not_finite;
    bad_[span.sequence].insert(span.first_position + i);
    bad_rows_.push_back({step, tokens_.sequences[span.sequence].request, span.first_position + i});
  }

  bool sees_bad(const PolicyQuery& query) const {
    const TokenSequence& one = tokens_.sequences[query.sequence];
    const std::set<std::int64_t>& own = bad_[query.sequence];
    const auto at = own.lower_bound(query.first_key);
    if (at != own.end() && *at <= query.last_key) return true;
    for (std::int64_t p = query.first_key; p < std::min(one.first_position, query.last_key + 1); ++p) {
      const auto& [sequence, position] = one.shared[static_cast<std::size_t>(p)];
      if (bad_[sequence].contains(position)) return true;
    }
    return false;
  }

  Status take_queries() {
    const auto seen = [&](const Candidate& one) { return sees_bad(one.query); };
    tokens_.queries_in_all += static_cast<std::int64_t>(candidates_.size());
    tokens_.queries_left_out += static_cast<std::int64_t>(std::erase_if(candidates_, seen));
    const std::int64_t fits = std::max<std::int64_t>(
        1, kMostProbabilities / std::max<std::int64_t>(1, tokens_.shape.heads * tokens_.longest()));
    const auto all = static_cast<std::int64_t>(candidates_.size());
    std::int64_t wanted = options_.most_queries > 0 ? std::min(options_.most_queries, all) : all;
    if (wanted > fits) {
      wanted = fits;
      fact(fmt::format("no more than {} queries a layer fit into memory", fits));
    }
    std::map<StepId, AttentionOps> ops;
    bool recorded = true;
    for (std::int64_t i = 0; i < wanted; ++i)
      take_query(candidates_[static_cast<std::size_t>((i + 1) * all / wanted - 1)], ops, recorded);
    if (!recorded) tokens_.recorded.clear();
    if (tokens_.queries == 0) {
      return fail(fmt::format("layer {}: all of its queries hold a NaN or an Inf, or see a key or a value that does",
                              tokens_.layer));
    }
    return {};
  }

  void take_query(const Candidate& from, std::map<StepId, AttentionOps>& all, bool& recorded) {
    const Step& step = *run_.step(from.id);
    const Span& span = step.spans[from.span];
    auto known = all.find(from.id);
    if (known == all.end()) known = all.emplace(from.id, attention_ops(run_, step, tokens_.layer)).first;
    const AttentionOps& ops = known->second;
    const AttentionOperand q = find_operand(run_, ops, step, from.span, "q", options_.again);
    OperandRows rows(run_, cache_, step, span, q);
    std::vector<float> values(static_cast<std::size_t>(tokens_.shape.query_channels()));
    PolicyQuery query = from.query;
    const bool there = rows.channels() == tokens_.shape.query_channels() &&
                       rows.read(from.query.position, 1, values.data()) && all_finite(values) &&
                       masks_.add_bias(ops, step, from.span, query);
    if (!there) {
      ++tokens_.queries_left_out;
      return;
    }
    query.offset = tokens_.queries++;
    tokens_.q.insert(tokens_.q.end(), values.begin(), values.end());
    tokens_.steps[from.step].queries.push_back(std::move(query));
    const Tensor* out = ops.mix != nullptr ? run_.result(*ops.mix) : nullptr;
    const bool has = out != nullptr && out->known && !out->stated && out->channels == tokens_.shape.output_channels();
    const auto row = has ? run_.row_at(*out, span, from.query.position) : std::nullopt;
    const auto made = row && recorded ? run_.row_values(*out, *row) : nullptr;
    recorded = made != nullptr && made->size() == static_cast<std::size_t>(out->channels);
    if (recorded) tokens_.recorded.insert(tokens_.recorded.end(), made->begin(), made->end());
  }

  void fact(std::string text) {
    auto& facts = tokens_.facts;
    if (std::find(facts.begin(), facts.end(), text) == facts.end()) facts.push_back(std::move(text));
  }

  RunView& run_;
  KvCache& cache_;
  const CollectOptions& options_;
  QueryMasks masks_;
  LayerTokens tokens_;
  std::int64_t rows_ = 0;  ///< in k and v
  bool known_ = false;
  bool shown_ = false;  ///< the factor was not stated
  bool has_before_ = true;
  std::string missing_;                          ///< why there are no queries
  std::map<std::int64_t, std::size_t> current_;  ///< of a request, its sequence
  std::set<std::size_t> broken_;                 ///< sequences of which not all rows are there
  std::vector<std::set<std::int64_t>> bad_;      ///< positions of a sequence that hold a NaN or an Inf
  std::vector<Candidate> candidates_;
  std::vector<BadRow> bad_rows_;
};

}  // namespace

std::int64_t LayerTokens::longest() const {
  std::int64_t most = 0;
  for (const TokenSequence& one : sequences) most = std::max(most, one.end);
  return most;
}

std::vector<std::int64_t> attention_layers(RunView& run) {
  std::set<std::int64_t> layers;
  for (const Step& step : run.steps()) {
    for (const Op& op : run.content(step.id).ops) {
      const bool scores = op.kind == OpKind::attention_scores && op.name.starts_with("scores");
      const bool whole = op.kind == OpKind::attention && op.name.starts_with("attention");
      if (op.layer && (scores || whole)) layers.insert(*op.layer);
    }
  }
  return {layers.begin(), layers.end()};
}

Result<LayerTokens> collect_layer(RunView& run, KvCache& cache, std::int64_t layer, const CollectOptions& options) {
  return Collector(run, cache, layer, options).collect();
}

}  // namespace nanscope
