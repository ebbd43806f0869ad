#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "instrument/diagnosis/provenance/keys.h"
#include "instrument/diagnosis/provenance/scale.h"

namespace nanscope {
namespace {

/// The channel of the key whose product with the query is largest.
std::int64_t largest_term(Facts& facts, const Tensor& q, std::int64_t q_row, std::int64_t q_first, const Tensor& k,
                          std::int64_t k_row, std::int64_t k_first, std::int64_t width) {
  std::int64_t best = k_first;
  float largest = -1;
  for (std::int64_t i = 0; i < width; ++i) {
    const std::optional<float> a = value_at(facts, q, q_row, q_first + i);
    const std::optional<float> b = value_at(facts, k, k_row, k_first + i);
    if (!a || !b) return best;
    if (std::abs(*a * *b) > largest) {
      largest = std::abs(*a * *b);
      best = k_first + i;
    }
  }
  return best;
}

/// Whether keys have whole heads as wide as those of queries; a dump's shapes may have been taken for others.
bool fits(const Subject& subject, const Tensor& q, const Tensor& k) {
  const auto& form = attributes<ScoresAttributes>(subject.op);
  const std::int64_t heads = std::max<std::int64_t>(1, count(form.heads, subject.tensor.heads));
  return !of_dump(subject.tensor) || !q.known || !k.known || whole_heads(q.channels, heads, k.channels, form.kv_heads);
}

/// Where the query and the key of a score lie.
struct Pair {
  const Tensor& q;
  const Tensor& k;
  std::int64_t q_row = 0;
  std::optional<std::int64_t> k_row = {};
  std::int64_t q_first = 0;  ///< channel of the head
  std::int64_t k_first = 0;
  std::int64_t width = 1;
  std::string text = {};  ///< "head 0, key 3"
};

Explanation explain_bad_key(const Subject& subject, const Pair& pair, std::int64_t channel, bool bad_query) {
  Facts& facts = subject.facts;
  Explanation found;
  found.element = Element{pair.k.id, *pair.k_row, channel};
  const std::string where = element_text(facts, pair.k, *pair.k_row, channel);
  const std::string holds = pair.k.known
                                ? fmt::format("holds {} at {}", value_text(facts, pair.k, *pair.k_row, channel), where)
                                : fmt::format("{} was not dumped, and what it is made of is bad", where);
  found.text = fmt::format("{}: the key {}{}", pair.text, holds, bad_query ? " (and the query is bad too)" : "");
  return found;
}

Explanation explain_bad_query(const Subject& subject, const Pair& pair, std::int64_t channel) {
  Explanation found;
  found.element = Element{pair.q.id, pair.q_row, channel};
  found.text = fmt::format("{}: the query {}", pair.text,
                           pair.q.known ? "holds " + value_text(subject.facts, pair.q, pair.q_row, channel)
                                        : "was not dumped, and what it is made of is bad");
  return found;
}

struct LeakingTerm {
  std::int64_t channel = 0;
  std::int64_t owner = 0;  ///< the later token
};

/// Of the channels whose scale a token behind the query decides on, that with the largest product.
std::optional<LeakingTerm> leaking_term(const Subject& subject, const Pair& pair) {
  const std::optional<SharedScales> shared = shared_scales(subject.facts, pair.k);
  if (!shared) return std::nullopt;
  std::optional<LeakingTerm> best;
  float largest = -1;
  for (std::int64_t i = 0; i < pair.width; ++i) {
    const std::int64_t owner = shared->owner(subject.facts, *pair.k_row, pair.k_first + i);
    const std::optional<float> a = value_at(subject.facts, pair.q, pair.q_row, pair.q_first + i);
    const std::optional<float> b = value_at(subject.facts, pair.k, *pair.k_row, pair.k_first + i);
    if (owner <= position_of(subject) || !a || !b || !(std::abs(*a * *b) > largest)) continue;
    largest = std::abs(*a * *b);
    best = LeakingTerm{pair.k_first + i, owner};
  }
  return best;
}

/// Neither is bad where this head reads it.
Explanation explain_healthy(const Subject& subject, const Pair& pair) {
  Facts& facts = subject.facts;
  Explanation found;
  if (!pair.k_row) {
    found.end = "what attention read as this key was not dumped";
    found.text = fmt::format("{}: the query is healthy; which row of {} the key is is not known", pair.text,
                             facts.name_of(pair.k));
    return found;
  }
  for (const auto& [tensor, row] : {std::pair(&pair.k, *pair.k_row), std::pair(&pair.q, pair.q_row)}) {
    found.element = bad_beside(subject, *tensor, row);
    if (!found.element) continue;
    found.text = fmt::format("{}: query and key are finite where this head should read them, and {}", pair.text,
                             said_of(facts, *tensor, row, found.element->channel));
    return found;
  }
  if (const auto leak = subject.bad ? std::nullopt : leaking_term(subject, pair)) {
    found.element = Element{pair.k.id, *pair.k_row, leak->channel};
    found.text = fmt::format(
        "{}: query and key are finite; the key's channel {} is under a scale that row {} decides "
        "on, a later one than the query",
        pair.text, leak->channel, leak->owner);
    return found;
  }
  found.origin = subject.bad;
  found.element =
      Element{pair.k.id, *pair.k_row,
              largest_term(facts, pair.q, pair.q_row, pair.q_first, pair.k, *pair.k_row, pair.k_first, pair.width)};
  found.text = pair.text + ": query and key are finite";
  if (!pair.q.known || !pair.k.known) found.text += " as far as they were dumped";
  if (subject.bad) blame_scale(subject, {"k_scale"}, *found.element, found);
  return found;
}

}  // namespace

/// out[t, h*S + s] = factor * sum over i of q[t, h, i] * k[s, g, i], g = h / (heads / kv_heads).
Explanation explain_attention_scores(const Subject& subject) {
  const std::optional<Operand> q = operand(subject, {"q"});
  const std::optional<Operand> k = operand(subject, {"k"});
  if (!q || !k) return explain_by_inputs(subject);
  if (!q->row) return follow_unplaced(subject, *q);
  if (!fits(subject, *q->tensor, *k->tensor)) return explain_by_inputs(subject);
  const auto& form = attributes<ScoresAttributes>(subject.op);
  const std::int64_t heads = std::max<std::int64_t>(1, count(form.heads, subject.tensor.heads));
  const std::int64_t keys = std::max<std::int64_t>(subject.tensor.channels / heads, 1);
  const std::int64_t head = subject.element.channel / keys;
  const std::int64_t key = subject.element.channel % keys;
  const HeadPlace at = head_place(subject, heads, form.kv_heads, *k->tensor, head, q->tensor->channels / heads);
  Pair pair{.q = *q->tensor, .k = *k->tensor, .q_row = *q->row};
  pair.k_row = row_of_key(subject, pair.k, key, keys);
  pair.q_first = pair.q.known ? head * at.width : 0;
  pair.k_first = pair.k.known ? at.kv_head * at.width : 0;
  pair.width = at.width;
  pair.text = fmt::format("head {}, key {}", head, key);
  const auto bad_q = bad_channel(subject.facts, pair.q, pair.q_row, pair.q_first, pair.width);
  std::optional<std::int64_t> bad_k;
  if (pair.k_row) bad_k = bad_channel(subject.facts, pair.k, *pair.k_row, pair.k_first, pair.width);
  Explanation found = bad_k   ? explain_bad_key(subject, pair, *bad_k, bad_q.has_value())
                      : bad_q ? explain_bad_query(subject, pair, *bad_q)
                              : explain_healthy(subject, pair);
  found.numbers.insert(found.numbers.begin(), {{"head", head}, {"key", key}});
  return found;
}

}  // namespace nanscope
