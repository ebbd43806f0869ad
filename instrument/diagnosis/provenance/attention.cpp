#include <fmt/format.h>

#include <algorithm>

#include "instrument/diagnosis/provenance/keys.h"
#include "instrument/diagnosis/provenance/scale.h"

namespace nanscope {
namespace {

struct Attended {
  std::string_view what;  ///< key, value
  const Tensor& tensor;
  std::int64_t first = 0;  ///< channel
  std::int64_t count = 1;
};

/// The first key or value that is bad where this head reads it.
bool find_bad(const Subject& subject, std::int64_t head, const Attended& read, Explanation& found) {
  Facts& facts = subject.facts;
  for (const KeyAt& key : bad_keys(subject, read.tensor)) {
    const std::int64_t first = read.tensor.known ? read.first : 0;
    const auto bad = bad_channel(facts, read.tensor, key.row, first, read.tensor.known ? read.count : kWholeRow);
    if (!bad) continue;
    found.element = Element{read.tensor.id, key.row, *bad};
    found.numbers.push_back({"key", key.position});
    const std::string said = said_of(facts, read.tensor, key.row, *bad);
    found.text =
        fmt::format("head {}: the {} at position {}{}: {}{}", head, read.what, key.position, hidden_text(subject, key),
                    said, read.tensor.known ? "" : ", and what it is made of is bad");
    return true;
  }
  return false;
}

/// Bad elements of the row's query, keys and values where this head should not have read.
bool find_beside(const Subject& subject, std::int64_t head, const Operand& q,
                 std::initializer_list<const Tensor*> keys_and_values, Explanation& found) {
  found.element = bad_beside(subject, *q.tensor, *q.row);
  const Tensor* tensor = q.tensor;
  for (const Tensor* one : keys_and_values) {
    const std::vector<KeyAt> bad = found.element ? std::vector<KeyAt>{} : bad_keys(subject, *one);
    if (bad.empty()) continue;
    found.element = bad_beside(subject, *one, bad.front().row);
    tensor = one;
  }
  if (!found.element) return false;
  found.text = fmt::format("head {}: all is finite where this head should read, and {}", head,
                           said_of(subject.facts, *tensor, found.element->row, found.element->channel));
  return true;
}

}  // namespace

/// softmax(q k') v in one: a bad query, key or value.
Explanation explain_attention(const Subject& subject) {
  const std::optional<Operand> q = operand(subject, {"q"});
  const std::optional<Operand> k = operand(subject, {"k"});
  const std::optional<Operand> v = operand(subject, {"v"});
  if (!q || !k || !v) return explain_by_inputs(subject);
  if (!q->row) return follow_unplaced(subject, *q);
  Facts& facts = subject.facts;
  const auto& form = attributes<MixAttributes>(subject.op);
  const std::int64_t heads = std::max<std::int64_t>(1, count(form.heads, subject.tensor.heads));
  const bool known = q->tensor->known && k->tensor->known && v->tensor->known;
  const bool fits = !known || (whole_heads(q->tensor->channels, heads, k->tensor->channels, form.kv_heads) &&
                               whole_heads(subject.tensor.channels, heads, v->tensor->channels, form.kv_heads));
  if (!fits) return explain_by_inputs(subject);
  const std::int64_t width = std::max<std::int64_t>(subject.tensor.channels / heads, 1);
  const std::int64_t head = subject.element.channel / width;
  const HeadPlace at_k = head_place(subject, heads, form.kv_heads, *k->tensor, head, q->tensor->channels / heads);
  const HeadPlace at_v = head_place(subject, heads, form.kv_heads, *v->tensor, head, width);
  Explanation found;
  found.numbers = {{"head", head}};
  const std::int64_t q_first = q->tensor->known ? head * at_k.width : 0;
  if (const auto bad = bad_channel(facts, *q->tensor, *q->row, q_first, q->tensor->known ? at_k.width : kWholeRow)) {
    found.element = Element{q->tensor->id, *q->row, *bad};
    found.text = fmt::format("head {}: the query: {}{}", head, said_of(facts, *q->tensor, *q->row, *bad),
                             q->tensor->known ? "" : ", and what it is made of is bad");
    return found;
  }
  const Attended keys{"key", *k->tensor, at_k.kv_head * at_k.width, at_k.width};
  const Attended values{"value", *v->tensor, at_v.kv_head * at_v.width + at_v.inside, 1};
  if (subject.bad && (find_bad(subject, head, keys, found) || find_bad(subject, head, values, found))) return found;
  if (subject.bad && find_beside(subject, head, *q, {k->tensor, v->tensor}, found)) return found;
  found.origin = subject.bad;
  found.element = Element{q->tensor->id, *q->row, largest_channel(facts, *q->tensor, *q->row, q_first, at_k.width)};
  const bool whole = q->tensor->known && k->tensor->known && v->tensor->known;
  found.text = fmt::format(
      "head {}: query, keys and values are healthy{}; what the attention made of them inside was "
      "not dumped",
      head, whole ? "" : " as far as they were dumped");
  if (!subject.bad) return found;
  for (const auto& [role, tensor] : {std::pair("k_scale", k->tensor), std::pair("v_scale", v->tensor)}) {
    if (!found.danger) blame_scale(subject, {role}, {tensor->id, 0, 0}, found);
  }
  return found;
}

}  // namespace nanscope
