#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {

/// out[t, h*S + s] = factor * sum over i of q[t, h, i] * k[s, g, i], g = h / (heads / kv_heads).
Explanation explain_attention_scores(const Subject& subject) {
  const std::optional<InputTensor> q = input_tensor(subject, {"q"}, 0);
  const std::optional<InputTensor> k = input_tensor(subject, {"k"}, 1);
  if (!q || !k) return {};
  const std::int64_t heads = std::max<std::int64_t>(1, count_attribute(subject.op, "heads", subject.tensor.heads));
  const std::int64_t kv_heads = std::max<std::int64_t>(1, count_attribute(subject.op, "kv_heads", heads));
  const std::int64_t keys = std::max<std::int64_t>(subject.tensor.channels / heads, 1);
  const std::int64_t width = std::max<std::int64_t>(q->tensor.channels / heads, 1);
  const std::int64_t head = subject.element.channel / keys;
  const std::int64_t key = subject.element.channel % keys;
  const std::int64_t group = head / std::max<std::int64_t>(heads / kv_heads, 1);
  const std::int64_t q_row = q->row_of(subject);
  Explanation found;
  found.numbers = {{"head", head}, {"key", key}};
  const auto bad_k = bad_channel(subject.facts, *k, key, group * width, width);
  const auto bad_q = bad_channel(subject.facts, *q, q_row, head * width, width);
  if (bad_k) {
    found.element = Element{k->tensor.id, key, *bad_k};
    found.text =
        fmt::format("head {}, key {}: the key holds {} at {}{}", head, key, value_text(k->data.get(), key, *bad_k),
                    element_text(subject.facts, k->tensor, key, *bad_k), bad_q ? " (and the query is bad too)" : "");
    return found;
  }
  if (bad_q) {
    found.element = Element{q->tensor.id, q_row, *bad_q};
    found.text =
        fmt::format("head {}, key {}: the query holds {}", head, key, value_text(q->data.get(), q_row, *bad_q));
    return found;
  }
  found.origin = subject.bad;
  std::int64_t best = group * width;
  float largest = -1;
  for (std::int64_t i = 0; q->data && k->data && i < width; ++i) {
    const float term = std::abs(q->value(q_row, head * width + i) * k->value(key, group * width + i));
    if (term > largest) {
      largest = term;
      best = group * width + i;
    }
  }
  found.element = Element{k->tensor.id, key, best};
  found.text = fmt::format("head {}, key {}: query and key are finite", head, key);
  return found;
}

}  // namespace nanscope
