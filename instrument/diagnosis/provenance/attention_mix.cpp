#include <fmt/format.h>

#include <algorithm>

#include "instrument/diagnosis/provenance/keys.h"
#include "instrument/diagnosis/provenance/scale.h"

namespace nanscope {
namespace {

struct Mix {
  const Operand& p;
  const Operand& v;
  std::int64_t row = 0;  ///< of the probabilities
  std::int64_t head = 0;
  std::int64_t keys = 1;
  std::int64_t channel = 0;  ///< of the value
  std::int64_t begin = 0;    ///< the block of keys
  std::int64_t end = 1;
  double first = 0;  ///< keys of it that are added up
  double last = 0;
};

/// A bad value among those that are added up, whatever its probability.
bool find_bad_value(const Subject& subject, const Mix& mix, Explanation& found) {
  Facts& facts = subject.facts;
  if (mix.v.tensor->known && !RunView::symptomatic(*mix.v.tensor)) return false;
  for (std::int64_t key = 0; key < mix.keys; ++key) {
    if (static_cast<double>(key) < mix.first || static_cast<double>(key) > mix.last) continue;
    const auto v_row = row_of_key(subject, *mix.v.tensor, key, mix.keys);
    if (!v_row || !bad_channel(facts, *mix.v.tensor, *v_row, mix.channel, 1)) continue;
    const std::optional<float> weight = value_at(facts, *mix.p.tensor, mix.row, mix.head * mix.keys + key);
    found.numbers.push_back({"key", key});
    if (weight) found.numbers.push_back({"probability", double{*weight}});
    found.element = Element{mix.v.tensor->id, *v_row, mix.channel};
    const std::string value =
        mix.v.tensor->known ? value_text(facts, *mix.v.tensor, *v_row, mix.channel) : std::string("not dumped");
    found.text = fmt::format("head {}: probability {} times value {} of key {}{}", mix.head,
                             weight ? fmt::format("{:g}", *weight) : std::string("?"), value, key,
                             weight == 0.0F ? ": 0 * NaN is NaN" : "");
    const Span* reader = reader_of(subject);
    if (mix.v.tensor->axis == Axis::slots && reader != nullptr && key >= reader->context) {
      found.text += fmt::format("; the context ends at {}", reader->context);
    }
    return true;
  }
  return false;
}

/// Bad values where this head should not have read.
bool find_beside(const Subject& subject, const Mix& mix, Explanation& found) {
  if (!of_dump(subject.tensor) || !RunView::symptomatic(*mix.v.tensor)) return false;
  for (std::int64_t key = 0; key < mix.keys; ++key) {
    const auto v_row = row_of_key(subject, *mix.v.tensor, key, mix.keys);
    const auto beside = v_row ? bad_beside(subject, *mix.v.tensor, *v_row) : std::nullopt;
    if (!beside) continue;
    found.element = beside;
    found.text = fmt::format("head {}: the values are finite where this head should read them, and {}", mix.head,
                             said_of(subject.facts, *mix.v.tensor, *v_row, beside->channel));
    return true;
  }
  return false;
}

/// All finite: on to the value of the key that weighs most.
void follow_largest(const Subject& subject, const Mix& mix, Explanation& found) {
  Facts& facts = subject.facts;
  const std::int64_t first = mix.head * mix.keys;
  const std::int64_t best =
      largest_channel(facts, *mix.p.tensor, mix.row, first + mix.begin, mix.end - mix.begin) - first;
  found.danger = is_constant(facts, subject.tensor, subject.element.row);
  found.numbers.push_back({"key", best});
  const std::optional<float> weight = value_at(facts, *mix.p.tensor, mix.row, first + best);
  if (weight) found.numbers.push_back({"probability", double{*weight}});
  const auto v_row = row_of_key(subject, *mix.v.tensor, best, mix.keys);
  if (v_row) found.element = Element{mix.v.tensor->id, *v_row, mix.channel};
  found.text = fmt::format("head {}: a mix of finite values, most of key {}", mix.head, best);
  if (v_row) found.text += ": " + value_text(facts, *mix.v.tensor, *v_row, mix.channel);
  if (found.danger) found.text += "; all channels of the mix are the same number";
  if (subject.bad && found.element) blame_scale(subject, {"v_scale"}, *found.element, found);
}

/// Both kinds of mix: `split` keys are a block, and what a block gave stands by itself; 0: all are one.
Explanation explain_mix(const Subject& subject, std::int64_t split) {
  const std::optional<Operand> p = operand(subject, {"probs", "p"});
  const std::optional<Operand> v = operand(subject, {"v"});
  if (!p || !v) return explain_by_inputs(subject);
  if (!p->row) return follow_unplaced(subject, *p);
  Facts& facts = subject.facts;
  const auto& form = attributes<MixAttributes>(subject.op);
  const std::int64_t heads = std::max<std::int64_t>(1, count(form.heads, subject.tensor.heads));
  const bool fits =
      !v->tensor->known || whole_heads(subject.tensor.channels, heads, v->tensor->channels, form.kv_heads);
  if (of_dump(subject.tensor) && !fits) return explain_by_inputs(subject);
  Mix mix{*p, *v};
  mix.row = *p->row;
  // Probabilities that were not dumped go over as many keys as there are.
  mix.keys = std::max<std::int64_t>(p->tensor->known ? p->tensor->channels / heads : v->tensor->tokens, 1);
  const std::int64_t blocks = split > 0 ? (mix.keys + split - 1) / split : 1;
  const std::int64_t width = std::max<std::int64_t>(subject.tensor.channels / heads / blocks, 1);
  const std::int64_t block = subject.element.channel / width % blocks;
  mix.begin = std::min(mix.keys, block * split);
  mix.end = split > 0 ? std::min(mix.keys, mix.begin + split) : mix.keys;
  const HeadPlace at =
      head_place(subject, heads, form.kv_heads, *v->tensor, subject.element.channel / width / blocks, width);
  mix.head = at.head;
  mix.channel = v->tensor->known ? at.kv_head * at.width + at.inside : 0;
  Explanation found;
  found.numbers = {{"head", at.head}};
  if (split > 0) found.numbers.push_back({"block", block});
  const std::int64_t p_first = p->tensor->known ? at.head * mix.keys + mix.begin : 0;
  if (const auto bad = bad_channel(facts, *p->tensor, mix.row, p_first, mix.end - mix.begin)) {
    found.element = Element{p->tensor->id, mix.row, *bad};
    found.text =
        p->tensor->known
            ? fmt::format("head {}: the probability of key {} is {}", at.head, *bad % mix.keys,
                          value_text(facts, *p->tensor, mix.row, *bad))
            : fmt::format("head {}: the probabilities were not dumped, and what they are made of is bad", at.head);
    return found;
  }
  const bool visible_only = form.visible_only.value_or(false);
  mix.first = static_cast<double>(std::max(mix.begin, visible_only ? count(form.first_key, 0) : 0));
  mix.last = static_cast<double>(std::min(mix.end - 1, visible_only ? position_of(subject) : mix.keys - 1));
  if (subject.bad && find_bad_value(subject, mix, found)) return found;
  const bool placed = row_of_key(subject, *v->tensor, 0, mix.keys).has_value();
  if (subject.bad && !placed && RunView::symptomatic(*v->tensor)) return follow_unplaced(subject, {"v", v->tensor, {}});
  if (subject.bad && find_beside(subject, mix, found)) return found;
  found.origin = subject.bad;
  follow_largest(subject, mix, found);
  return found;
}

}  // namespace

/// out[t, h*D + i] = sum over s of p[t, h*S + s] * v[s, g, i]. A probability of 0 does not shield a NaN value.
Explanation explain_attention_mix(const Subject& subject) { return explain_mix(subject, 0); }

/// The same of a block of keys: partials[t, (h*B + b)*D + i].
Explanation explain_mix_partials(const Subject& subject) {
  return explain_mix(subject, std::max<std::int64_t>(0, count(attributes<MixAttributes>(subject.op).split, 0)));
}

}  // namespace nanscope
