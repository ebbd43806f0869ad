#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/run/mask.h"
#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

/// How many of a head's scores are -Inf; nothing when they cannot be read.
std::optional<std::int64_t> count_hidden(Facts& facts, const Tensor& scores, std::int64_t row, std::int64_t first,
                                         std::int64_t keys) {
  if (!has_values(facts, scores, row)) return std::nullopt;
  std::int64_t hidden = 0;
  for (std::int64_t key = 0; key < keys && first + key < scores.channels; ++key) {
    hidden += value_at(facts, scores, row, first + key) == -std::numeric_limits<float>::infinity() ? 1 : 0;
  }
  return hidden;
}

/// Numbers that are added hide by being very negative; of integers, 0 is taken to hide.
bool is_flags(const Tensor& mask) { return mask.format == Format::i32 || mask.format == Format::int8; }

bool mask_hides_all(Facts& facts, const Tensor& mask, std::int64_t row, std::int64_t keys) {
  if (mask.channels != keys || !has_values(facts, mask, row)) return false;
  for (std::int64_t key = 0; key < keys; ++key) {
    const std::optional<float> value = value_at(facts, mask, row, key);
    if (!value || (is_flags(mask) ? *value != 0 : !hidden_by_mask(double{*value}))) return false;
  }
  return true;
}

/// All scores are finite or hide a key: whether any is left.
void explain_healthy(const Subject& subject, const Operand& scores, std::int64_t head, std::int64_t keys,
                     Explanation& found) {
  Facts& facts = subject.facts;
  const std::int64_t first = head * keys;
  found.origin = subject.bad;
  found.element =
      Element{scores.tensor->id, *scores.row,
              subject.bad ? largest_channel(facts, *scores.tensor, *scores.row, first, keys) : subject.element.channel};
  if (!scores.tensor->known) {
    found.text = fmt::format("head {}: {}", head, said_of(facts, *scores.tensor, *scores.row, 0));
    if (subject.bad) found.text += kBornBetween;
  } else if (const auto hidden = count_hidden(facts, *scores.tensor, *scores.row, first, keys); hidden && *hidden > 0) {
    found.numbers.push_back({"hidden keys", *hidden});
    found.text = *hidden == keys ? fmt::format(
                                       "head {}: all {} scores of the row are -Inf, it has no key to attend "
                                       "to: -Inf - -Inf is NaN",
                                       head, keys)
                                 : fmt::format("head {}: of {} scores of the row {} are -Inf and none is NaN or +Inf",
                                               head, keys, *hidden);
  } else {
    found.text = fmt::format("head {}: all {} scores of the row are finite", head, keys);
  }
  const std::optional<Operand> mask = operand(subject, {"mask"});
  if (!subject.bad || !mask || !mask->row || !mask_hides_all(facts, *mask->tensor, *mask->row, keys)) return;
  found.element = Element{mask->tensor->id, *mask->row, 0};
  found.danger = true;
  found.text += fmt::format("; {} {} all {} keys of the row", facts.name_of(*mask->tensor),
                            is_flags(*mask->tensor) ? "is 0 for" : "hides", keys);
}

/// Of a softmax that was given statistics of blocks of keys: on to a bad one of the head, which the whole row has of
/// it.
bool find_bad_statistic(const Subject& subject, std::int64_t head, std::int64_t heads, Explanation& found) {
  for (const std::string_view role : {"sum", "max"}) {
    const std::optional<Operand> of = operand(subject, {role});
    if (!of || !of->row || !of->tensor->known) continue;
    const std::int64_t blocks = std::max<std::int64_t>(of->tensor->channels / heads, 1);
    const auto bad = bad_channel(subject.facts, *of->tensor, *of->row, head * blocks, blocks);
    if (!bad) continue;
    found.numbers.push_back({"block", *bad % blocks});
    found.element = Element{of->tensor->id, *of->row, *bad};
    found.text = fmt::format("head {}: the {} of block {} of {} is {}, and the whole row is made of it", head,
                             role == "sum" ? "sum" : "maximum", *bad % blocks, blocks,
                             value_text(subject.facts, *of->tensor, *of->row, *bad));
    return true;
  }
  return false;
}

}  // namespace

/// p = exp(s - max) / sum over a row of keys: one NaN score makes the row NaN, and so does a row without keys.
Explanation explain_softmax(const Subject& subject) {
  const std::optional<Operand> scores = operand(subject, {"scores", "x"});
  if (!scores) return explain_by_inputs(subject);
  if (!scores->row) return follow_unplaced(subject, *scores);
  Facts& facts = subject.facts;
  const auto& form = attributes<SoftmaxAttributes>(subject.op);
  const std::int64_t heads = std::max<std::int64_t>(1, count(form.heads, subject.tensor.heads));
  const std::int64_t keys = std::max<std::int64_t>(subject.tensor.channels / heads, 1);
  const std::int64_t head = subject.element.channel / keys;
  const std::int64_t row = *scores->row;
  Explanation found;
  found.numbers = {{"head", head}, {"keys", keys}};
  const bool told = form.first_key && form.first_position;
  if (told) {
    const auto first = static_cast<double>(*form.first_key);
    const double last = static_cast<double>(*form.first_position) + static_cast<double>(subject.element.row);
    found.numbers.push_back({"first visible key", first});
    found.numbers.push_back({"last visible key", last});
    const bool sinks = std::any_of(subject.op.inputs.begin(), subject.op.inputs.end(),
                                   [](const Input& input) { return input.role == "sinks"; });
    if (subject.bad && first > last && !sinks) {
      found.origin = true;
      found.text = fmt::format("head {}: the row has no key to attend to (keys {} to {}): -Inf - -Inf, then 0/0", head,
                               first, last);
      return found;
    }
  }
  if (subject.bad && find_bad_statistic(subject, head, heads, found)) return found;
  // A selecting mask replaces the scores of hidden keys: those cannot have decided anything.
  const std::string mask = form.mask.value_or("");
  const bool select = mask == "select" && told;
  const std::int64_t begin = select ? std::min(keys, count(form.first_key, 0)) : 0;
  const std::int64_t end = select ? std::min(keys, count(form.first_position, 0) + subject.element.row + 1) : keys;
  const std::int64_t visible = std::max<std::int64_t>(end - begin, 0);
  const std::int64_t first = scores->tensor->known ? head * keys + begin : 0;
  if (const auto bad = bad_channel(facts, *scores->tensor, row, first, visible)) {
    const auto many = count_bad(facts, *scores->tensor, row, first, visible);
    if (many) found.numbers.push_back({"bad scores", *many});
    found.element = Element{scores->tensor->id, row, *bad};
    const std::string number = many ? fmt::format("{}", *many) : std::string("some");
    found.text = fmt::format("head {}: {} of {} scores of the row are bad, the sum makes the whole row bad{}", head,
                             number, visible, mask == "additive" ? "; an additive mask does not hide a NaN" : "");
    if (of_dump(subject.tensor) && !subject.bad) {
      found.text = fmt::format(
          "head {}: {} of {} scores of the row are bad and what came out is not: they were hidden, "
          "or it was laundered",
          head, number, visible);
    }
    if (!scores->tensor->known) {
      found.text = fmt::format("head {}: {}, and what the scores are made of is bad", head,
                               said_of(facts, *scores->tensor, row, 0));
    }
    return found;
  }
  explain_healthy(subject, *scores, head, keys, found);
  if (found.origin) blame_bad_weight(subject, "the scores of the row are healthy", found);
  return found;
}

}  // namespace nanscope
