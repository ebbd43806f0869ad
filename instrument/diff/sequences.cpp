#include "instrument/diff/sequences.h"

#include <algorithm>
#include <utility>

namespace nanscope::align {
namespace {

/// Equal tokens at common positions, and the first position at which they differ.
SequencePair meet(const Sequence& a, const Sequence& b) {
  SequencePair found;
  for (const auto& [position, token] : b.tokens) {
    const auto other = a.tokens.find(position);
    if (other == a.tokens.end()) continue;
    if (other->second != token) {
      found.first_apart = position;
      break;
    }
    ++found.tokens;
  }
  return found;
}

bool overlap(const Sequence& a, const Sequence& b) { return a.first <= b.last && b.first <= a.last; }

/// A whole sequence of one run may be several of the other, each with positions of its own.
bool is_free(std::int64_t wanted, std::int64_t other, bool of_a, const std::vector<SequencePair>& pairs,
             const std::vector<Sequence>& others) {
  return std::none_of(pairs.begin(), pairs.end(), [&](const SequencePair& pair) {
    if ((of_a ? pair.a : pair.b) != wanted) return false;
    return overlap(others[static_cast<std::size_t>(of_a ? pair.b : pair.a)], others[static_cast<std::size_t>(other)]);
  });
}

struct Candidate {
  SequencePair pair;
  bool asked = true;  ///< both or neither are warm-ups
};

}  // namespace

Sequences::Sequences(RunView& run) : run_(run) {
  for (const Step& step : run.steps()) add(step);
  for (Sequence& sequence : all_) {
    if (!sequence.tokens.empty()) continue;
    const RequestRow* request = run.request(sequence.request);
    if (request == nullptr) continue;
    std::int64_t position = 0;
    for (const auto* tokens : {&request->prompt_tokens, &request->output_tokens}) {
      for (const std::int32_t token : *tokens) sequence.tokens.emplace(position++, token);
    }
  }
}

const Step* Sequences::step(StepId id) const {
  const auto found = steps_.find(id);
  return found == steps_.end() ? nullptr : &found->second.step;
}

Sequences::Values Sequences::column(StepId step, std::string_view op, std::int64_t rows) const {
  for (const Op& one : run_.content(step).ops) {
    if (one.name != op) continue;
    for (const TensorId id : one.outputs) {
      const Tensor* tensor = run_.tensor(id);
      if (tensor == nullptr || !tensor->known || tensor->stated || tensor->count() != rows) continue;
      if (const auto values = run_.values(*tensor)) return *values;
    }
  }
  return std::nullopt;
}

/// A request whose tokens begin anew is another sequence.
bool Sequences::is_other(const Sequence& sequence, const Span& span, const Values& ids, bool computed) const {
  if (!ids) return computed && span.first_token == 0;
  for (std::int64_t row = span.row; row < std::min(span.row + span.rows, std::ssize(*ids)); ++row) {
    const auto at = static_cast<std::size_t>(row);
    const auto known = at < ids->size() ? sequence.tokens.find(span.position(row)) : sequence.tokens.end();
    if (known != sequence.tokens.end() && known->second != static_cast<std::int32_t>((*ids)[at])) return true;
  }
  return false;
}

void Sequences::add_span(Placed& placed, const Span& span, bool anew, const Values& ids) {
  const Step& step = placed.step;
  std::vector<std::int64_t>& all = known_[{step.run, span.request}];
  const auto entry = at_.emplace(std::tuple{step.run, span.request, step.rank}, 0);
  const bool computed = !entry.second;
  std::size_t& at = entry.first->second;
  if (anew) ++at;
  while (at < all.size() && is_other(all_[static_cast<std::size_t>(all[at])], span, ids, computed)) ++at;
  while (at >= all.size()) {
    all.push_back(std::ssize(all_));
    all_.emplace_back();
    all_.back().run = step.run;
    all_.back().request = span.request;
  }
  placed.step.spans.push_back(span);
  placed.sequences.push_back(all[at]);
  if (span.rows == 0) return;
  Sequence& of = all_[static_cast<std::size_t>(all[at])];
  of.cached = of.cached || (of.last < 0 ? span.first_token > 0 : span.first_token > of.last + 1);
  of.first = of.first < 0 ? span.first_token : std::min(of.first, span.first_token);
  of.last = std::max(of.last, span.position(span.row + span.rows - 1));
  for (std::int64_t row = std::max<std::int64_t>(0, span.row);
       ids && row < std::min(span.row + span.rows, std::ssize(*ids)); ++row) {
    of.tokens[span.position(row)] = static_cast<std::int32_t>((*ids)[static_cast<std::size_t>(row)]);
  }
}

void Sequences::add(const Step& step) {
  Placed placed{step, {}};
  placed.step.spans.clear();
  const Values positions = column(step.id, "positions", step.rows);
  const Values ids = column(step.id, "tokens", step.rows);
  for (const Span& span : step.spans) {
    Span part = span;
    for (std::int64_t row = std::max<std::int64_t>(0, span.row) + 1;
         positions && row < std::min(span.row + span.rows, std::ssize(*positions)); ++row) {
      const auto at = static_cast<std::size_t>(row);
      if ((*positions)[at] != 0 || (*positions)[at - 1] <= 0) continue;
      part.rows = row - part.row;
      part.context = part.first_token + part.rows;
      add_span(placed, part, part.row != span.row, ids);
      part.row = row;
      part.first_token = 0;
      part.rows = span.row + span.rows - row;
      part.context = part.rows;
    }
    add_span(placed, part, part.row != span.row, ids);
  }
  steps_.emplace(step.id, std::move(placed));
}

const Span* Sequences::span(StepId step, std::int64_t row) const {
  const auto found = steps_.find(step);
  return found == steps_.end() ? nullptr : found->second.step.span_at(row);
}

RowPlace Sequences::place_in_step(StepId step, std::int64_t row) const {
  const auto found = steps_.find(step);
  if (found == steps_.end()) return {};
  const std::vector<Span>& spans = found->second.step.spans;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].has(row)) return {found->second.sequences[i], spans[i].position(row)};
  }
  return {};
}

RowPlace Sequences::place(const Tensor& tensor, std::int64_t row) const {
  if (tensor.axis == Axis::rows) return place_in_step(tensor.step, row);
  const auto found = steps_.find(tensor.step);
  if (found == steps_.end()) return {};
  const Placed& placed = found->second;
  const auto at = static_cast<std::size_t>(row);
  if (tensor.axis == Axis::ends && at < placed.step.spans.size() &&
      tensor.tokens == static_cast<std::int64_t>(placed.step.spans.size())) {
    return {placed.sequences[at], placed.step.spans[at].context - 1};
  }
  const RowToken token = run_.token_of(tensor, row);
  if (token.span == nullptr) return {};
  for (std::size_t i = 0; i < placed.step.spans.size(); ++i) {
    if (placed.step.spans[i].request == token.span->request) return {placed.sequences[i], token.position};
  }
  return {};
}

std::vector<SequencePair> pair_sequences(const Sequences& a, const Sequences& b) {
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < a.all().size(); ++i) {
    for (std::size_t j = 0; j < b.all().size(); ++j) {
      const Sequence& left = a.all()[i];
      const Sequence& right = b.all()[j];
      Candidate one{meet(left, right), (left.request < 0) == (right.request < 0)};
      one.pair.a = static_cast<std::int64_t>(i);
      one.pair.b = static_cast<std::int64_t>(j);
      if (one.asked && one.pair.tokens > 0) candidates.push_back(one);
    }
  }
  // Most tokens first; of equals, those in the same order in both.
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& x, const Candidate& y) { return x.pair.tokens > y.pair.tokens; });
  std::vector<SequencePair> pairs;
  std::vector<bool> of_a(a.all().size(), false);
  std::vector<bool> of_b(b.all().size(), false);
  const auto take = [&](const SequencePair& pair) {
    pairs.push_back(pair);
    of_a[static_cast<std::size_t>(pair.a)] = of_b[static_cast<std::size_t>(pair.b)] = true;
  };
  for (const Candidate& one : candidates) {
    const bool free =
        is_free(one.pair.a, one.pair.b, true, pairs, b.all()) && is_free(one.pair.b, one.pair.a, false, pairs, a.all());
    if (free) take(one.pair);
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < a.all().size(); ++i) {
    if (of_a[i]) continue;
    while (next < of_b.size() && (of_b[next] || (a.all()[i].request < 0) != (b.all()[next].request < 0))) ++next;
    if (next == of_b.size()) break;
    SequencePair pair = meet(a.all()[i], b.all()[next]);
    pair.a = static_cast<std::int64_t>(i);
    pair.b = static_cast<std::int64_t>(next);
    take(pair);
  }
  std::sort(pairs.begin(), pairs.end(),
            [](const SequencePair& x, const SequencePair& y) { return std::tie(x.a, x.b) < std::tie(y.a, y.b); });
  return pairs;
}

}  // namespace nanscope::align
