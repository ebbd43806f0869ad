/// Attention over tiles of keys.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "instrument/diagnosis/provenance/keys.h"

namespace nanscope {
namespace {

/// The keys that a row sees, as far as they are there.
struct Seen {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

template <class Form>
Seen seen_keys(const Subject& subject, const Form& form, std::int64_t keys) {
  const std::int64_t last =
      form.first_position ? count(form.first_position, 0) + subject.element.row : position_of(subject);
  Seen seen;
  seen.last = std::clamp<std::int64_t>(last, 0, std::max<std::int64_t>(keys - 1, 0));
  const std::int64_t behind = form.window ? last - count(form.window, 0) + 1 : 0;
  seen.first = std::clamp<std::int64_t>(std::max(count(form.first_key, 0), behind), 0, seen.last);
  return seen;
}

}  // namespace

/// p = exp(s - running maximum) over tiles: a bad score that the row sees makes its maximum and sum bad from its tile
/// on.
Explanation explain_tile_softmax(const Subject& subject) {
  const std::optional<Operand> scores = operand(subject, {"scores"});
  if (!scores) return explain_by_inputs(subject);
  if (!scores->row || !scores->tensor->known) return follow_unplaced(subject, *scores);
  Facts& facts = subject.facts;
  const auto& form = attributes<SoftmaxAttributes>(subject.op);
  const std::int64_t heads = std::max<std::int64_t>(1, count(form.heads, subject.tensor.heads));
  const std::int64_t keys = std::max<std::int64_t>(scores->tensor->channels / heads, 1);
  const std::int64_t width = std::max<std::int64_t>(subject.tensor.channels / heads, 1);
  const std::int64_t head = std::min(subject.element.channel / width, heads - 1);
  const Seen seen = seen_keys(subject, form, keys);
  const std::int64_t first = head * keys + seen.first;
  const std::int64_t visible = seen.last - seen.first + 1;
  Explanation found;
  found.numbers = {{"head", head}, {"first visible key", seen.first}, {"last visible key", seen.last}};
  if (const auto bad = bad_channel(facts, *scores->tensor, *scores->row, first, visible)) {
    found.element = Element{scores->tensor->id, *scores->row, *bad};
    found.text = fmt::format("head {}: a score that the row sees is bad: {}", head,
                             said_of(facts, *scores->tensor, *scores->row, *bad));
    return found;
  }
  const bool of_key = subject.tensor.role == "probs" && subject.element.channel % width < keys;
  const std::int64_t at = of_key ? head * keys + subject.element.channel % width
                                 : largest_channel(facts, *scores->tensor, *scores->row, first, visible);
  found.element = Element{scores->tensor->id, *scores->row, at};
  found.origin = subject.bad;
  found.text = fmt::format("head {}: of the scores that the row sees none is bad; {}", head,
                           said_of(facts, *scores->tensor, *scores->row, at));
  if (found.origin) blame_bad_weight(subject, "the scores of the row are healthy", found);
  return found;
}

namespace {

/// The key of [first, last] that weighs most, by its probability alone.
std::int64_t heaviest(const Subject& subject, const Operand& p, std::int64_t column, const Seen& among) {
  return largest_channel(subject.facts, *p.tensor, *p.row, column + among.first, among.last - among.first + 1) - column;
}

/// Whether values lie in blocks along the tokens, and a row reads them in the tile of its own.
bool shares_scales(const Subject& subject, const Tensor& v) {
  return shared_scales(subject.facts, v).has_value() &&
         attributes<MixAttributes>(subject.op).diagonal.value_or("quantized") == "quantized";
}

/// The same of the keys that probabilities are made of, quantized themselves or not.
bool of_shared_keys(Facts& facts, const Tensor& p) {
  const Op* maker = facts.run.maker(p);
  for (const std::string_view role : {"codes", "x"}) {
    const Tensor* in =
        maker != nullptr && maker->kind != OpKind::tile_softmax ? facts.run.input(*maker, role) : nullptr;
    if (in != nullptr) maker = facts.run.maker(*in);
  }
  if (maker == nullptr || maker->kind != OpKind::tile_softmax) return false;
  if (facts.run.input(*maker, "exact_scores") != nullptr) return false;
  const Tensor* scores = facts.run.input(*maker, "scores");
  const Op* product = scores != nullptr ? facts.run.maker(*scores) : nullptr;
  const Tensor* k = product != nullptr ? facts.run.input(*product, "k") : nullptr;
  return k != nullptr && shared_scales(facts, *k).has_value();
}

}  // namespace

/// out = sum over the keys that the row sees of p x v, tile by tile, over the last sum.
Explanation explain_tile_mix(const Subject& subject) {
  const std::optional<Operand> p = operand(subject, {"probs"});
  const std::optional<Operand> v = operand(subject, {"v"});
  if (!p || !v) return explain_by_inputs(subject);
  if (!p->row || !p->tensor->known || !v->tensor->known) return follow_unplaced(subject, *p);
  Facts& facts = subject.facts;
  const auto& form = attributes<MixAttributes>(subject.op);
  const std::int64_t heads = std::max<std::int64_t>(1, count(form.heads, subject.tensor.heads));
  const std::int64_t width = std::max<std::int64_t>(subject.tensor.channels / heads, 1);
  const HeadPlace at = head_place(subject, heads, form.kv_heads, *v->tensor, subject.element.channel / width, width);
  const std::int64_t stride = std::max<std::int64_t>(p->tensor->channels / heads, 1);
  const std::int64_t column = at.head * stride;
  const std::int64_t channel = at.kv_head * at.width + at.inside;
  Seen seen = seen_keys(subject, form, std::min(stride, v->tensor->tokens));
  Explanation found;
  found.numbers = {{"head", at.head}, {"first visible key", seen.first}, {"last visible key", seen.last}};
  if (const auto bad = bad_channel(facts, *p->tensor, *p->row, column + seen.first, seen.last - seen.first + 1)) {
    found.element = Element{p->tensor->id, *p->row, *bad};
    found.text = fmt::format("head {}: the probability of key {} is {}", at.head, *bad - column,
                             value_text(facts, *p->tensor, *p->row, *bad));
    return found;
  }
  for (std::int64_t key = seen.first; key <= seen.last; ++key) {
    if (!bad_channel(facts, *v->tensor, key, channel, 1)) continue;
    found.element = Element{v->tensor->id, key, channel};
    found.text =
        fmt::format("head {}: the value of key {} is {}", at.head, key, value_text(facts, *v->tensor, key, channel));
    return found;
  }
  const std::int64_t tile = std::max<std::int64_t>(count(form.tile, 32), 1);
  const bool shared = !subject.bad && shares_scales(subject, *v->tensor);
  const bool keys_share = !subject.bad && !shared && of_shared_keys(facts, *p->tensor);
  if (shared || keys_share) seen.first = std::max(seen.first, position_of(subject) / tile * tile);
  const std::int64_t key = heaviest(subject, *p, column, seen);
  if (keys_share) {
    found.element = Element{p->tensor->id, *p->row, column + key};
    found.text = fmt::format(
        "head {}: a mix of finite values under probabilities of keys that share scales; in the "
        "row's own tile key {} weighs most, {}",
        at.head, key, value_text(facts, *p->tensor, *p->row, column + key));
    return found;
  }
  found.element = Element{v->tensor->id, key, channel};
  found.origin = subject.bad;
  found.text = fmt::format("head {}: a mix of finite values, most {}of key {}: {}", at.head,
                           shared ? "in the row's own tile " : "", key, value_text(facts, *v->tensor, key, channel));
  return found;
}

}  // namespace nanscope
