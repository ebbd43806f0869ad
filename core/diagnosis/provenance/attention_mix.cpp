#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

struct Geometry {
  std::int64_t heads = 1;
  std::int64_t keys = 1;
  std::int64_t width = 1;
  std::int64_t head = 0;
  std::int64_t value_channel = 0;
};

Geometry geometry(const Subject& subject, const InputTensor& p) {
  Geometry g;
  g.heads = std::max<std::int64_t>(1, count_attribute(subject.op, "heads", subject.tensor.heads));
  const auto kv_heads = std::max<std::int64_t>(1, count_attribute(subject.op, "kv_heads", g.heads));
  g.keys = std::max<std::int64_t>(p.tensor.channels / g.heads, 1);
  g.width = std::max<std::int64_t>(subject.tensor.channels / g.heads, 1);
  g.head = subject.element.channel / g.width;
  g.value_channel =
      g.head / std::max<std::int64_t>(g.heads / kv_heads, 1) * g.width + subject.element.channel % g.width;
  return g;
}

}  // namespace

/// out[t, h*D + i] = sum over s of p[t, h*S + s] * v[s, g, i]. A probability of 0 does not shield a NaN value.
Explanation explain_attention_mix(const Subject& subject) {
  const std::optional<InputTensor> p = input_tensor(subject, {"probs", "p"}, 0);
  const std::optional<InputTensor> v = input_tensor(subject, {"v"}, 1);
  if (!p || !v) return {};
  const Geometry g = geometry(subject, *p);
  const std::int64_t row = p->row_of(subject);
  Explanation found;
  found.numbers = {{"head", g.head}};
  if (const auto bad = bad_channel(subject.facts, *p, row, g.head * g.keys, g.keys)) {
    found.element = Element{p->tensor.id, row, *bad};
    found.text = fmt::format("head {}: the probability of key {} is {}", g.head, *bad % g.keys,
                             value_text(p->data.get(), row, *bad));
    return found;
  }
  const std::int64_t keys = std::min(g.keys, v->tensor.tokens);
  const bool visible_only = number_attribute(subject.op, "visible_only").value_or(0) != 0;
  const std::int64_t last = visible_only ? subject.tensor.first_token + subject.element.row : keys - 1;
  const auto first = visible_only ? count_attribute(subject.op, "first_key", 0) : std::int64_t{0};
  for (std::int64_t key = first; subject.bad && key <= std::min(last, keys - 1); ++key) {
    if (!bad_channel(subject.facts, *v, key, g.value_channel, 1)) continue;
    const float weight = p->value(row, g.head * g.keys + key);
    found.numbers.push_back({"key", key});
    found.numbers.push_back({"probability", double{weight}});
    found.element = Element{v->tensor.id, key, g.value_channel};
    found.text =
        fmt::format("head {}: probability {:g} times value {} of key {}{}", g.head, weight,
                    value_text(v->data.get(), key, g.value_channel), key, weight == 0 ? ": 0 * NaN is NaN" : "");
    return found;
  }
  found.origin = subject.bad;
  const std::int64_t best = largest_channel(*p, row, g.head * g.keys, g.keys) - g.head * g.keys;
  const std::vector<Health>& rows = subject.facts.rows(subject.tensor);
  const auto at = static_cast<std::size_t>(subject.element.row);
  found.danger = at < rows.size() && rows[at].count > 1 && rows[at].min == rows[at].max;
  found.element =
      Element{v->tensor.id, std::clamp<std::int64_t>(best, 0, std::max<std::int64_t>(v->tensor.tokens - 1, 0)),
              g.value_channel};
  found.numbers.push_back({"key", best});
  found.numbers.push_back({"probability", double{p->value(row, g.head * g.keys + best)}});
  found.text = fmt::format("head {}: a mix of finite values, most of key {}: {}", g.head, best,
                           value_text(v->data.get(), best, g.value_channel));
  if (found.danger) found.text += "; all channels of the mix are the same number";
  return found;
}

}  // namespace nanscope
