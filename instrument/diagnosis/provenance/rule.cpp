#include "instrument/diagnosis/provenance/rule.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/recording/weight_version.h"

namespace nanscope {

#define NANSCOPE_PROVENANCE(kind) Explanation explain_##kind(const Subject& subject);
#define NANSCOPE_PROVENANCE_BY_INPUTS(kind)
#include "instrument/diagnosis/provenance/provenance.def"
#undef NANSCOPE_PROVENANCE_BY_INPUTS
#undef NANSCOPE_PROVENANCE

Rule provenance_rule(OpKind kind) {
  switch (kind) {
#define NANSCOPE_PROVENANCE(name) \
  case OpKind::name:              \
    return explain_##name;
#define NANSCOPE_PROVENANCE_BY_INPUTS(name) \
  case OpKind::name:                        \
    return explain_by_inputs;
#include "instrument/diagnosis/provenance/provenance.def"
#undef NANSCOPE_PROVENANCE_BY_INPUTS
#undef NANSCOPE_PROVENANCE
  }
  return explain_by_inputs;
}

std::int64_t count(const std::optional<std::int64_t>& stated, std::int64_t otherwise) {
  constexpr std::int64_t kMost = 2147483648;
  return std::clamp<std::int64_t>(stated.value_or(otherwise), 0, kMost);
}

Operand operand_of(const Subject& subject, const Tensor& tensor, std::string_view role) {
  return {role, &tensor, row_in(subject.facts, subject.tensor, subject.element.row, tensor)};
}

std::optional<Operand> operand(const Subject& subject, std::initializer_list<std::string_view> roles) {
  // Of an op that reads one a sequence, that of the element's own.
  const Span* own = subject.facts.run.token_of(subject.tensor, subject.element.row).span;
  for (const std::string_view role : roles) {
    const Tensor* tensor = own != nullptr ? subject.facts.run.input(subject.op, role, *own) : nullptr;
    if (tensor == nullptr) tensor = subject.facts.run.input(subject.op, role);
    if (tensor != nullptr) return operand_of(subject, *tensor, role);
  }
  return std::nullopt;
}

std::vector<Operand> operands(const Subject& subject) {
  std::vector<Operand> found;
  for (const Input& input : subject.op.inputs) {
    const Tensor* tensor = subject.facts.run.tensor(input.tensor);
    const Op* maker = tensor != nullptr ? subject.facts.run.maker(*tensor) : nullptr;
    if (maker == nullptr || maker->kind == OpKind::parameter) continue;
    found.push_back(operand_of(subject, *tensor, input.role));
  }
  return found;
}

bool is_scale(Facts& facts, const Tensor& parameter) {
  const Op* op = facts.run.maker(parameter);
  return op != nullptr && (op->name.ends_with("_scale") || op->name == "temperature");
}

const Span* reader_of(const Subject& subject) {
  const Span* span = subject.facts.run.token_of(subject.tensor, subject.element.row).span;
  if (span != nullptr) return span;
  return subject.step.spans.size() == 1 ? &subject.step.spans.front() : nullptr;
}

std::int64_t position_of(const Subject& subject) {
  const RowToken token = subject.facts.run.token_of(subject.tensor, subject.element.row);
  return token.span != nullptr ? token.position : subject.element.row;
}

Explanation follow_unplaced(const Subject& subject, const Operand& input) {
  Explanation found;
  Facts& facts = subject.facts;
  const std::string name = facts.name_of(*input.tensor);
  found.text = fmt::format("which row of {} it was made of is not known", name);
  const std::vector<std::int64_t> bad = facts.run.bad_rows(*input.tensor);
  if (bad.empty() || !subject.bad) {
    const bool healthy = input.tensor->known && !RunView::symptomatic(*input.tensor);
    found.origin = subject.bad && healthy;
    if (healthy) found.text += ", and all are healthy";
    found.end = "which row comes before it is not known";
    return found;
  }
  // To go on at a row that may be another one's would be to guess.
  const std::int64_t channel = bad_channel(facts, *input.tensor, bad.front(), 0, kWholeRow).value_or(0);
  found.end = "which row comes before it is not known";
  found.text += fmt::format("; of its bad ones the first: {}", said_of(facts, *input.tensor, bad.front(), channel));
  return found;
}

Explanation follow_row(const Subject& subject, const Operand& input, std::string_view how) {
  if (!input.row) return follow_unplaced(subject, input);
  Explanation found;
  Facts& facts = subject.facts;
  const Tensor& x = *input.tensor;
  const std::int64_t row = *input.row;
  const std::optional<std::int64_t> bad = bad_channel(facts, x, row, 0, kWholeRow);
  const std::int64_t channel = bad ? *bad : largest_channel(facts, x, row, 0, kWholeRow);
  found.element = Element{x.id, row, channel};
  const std::string said = said_of(facts, x, row, channel);
  found.origin = subject.bad && !bad;
  if (!x.known) {
    found.text = fmt::format("{}: {}{}", how, said,
                             bad           ? std::string_view(", and what it is made of is bad")
                             : subject.bad ? kBornBetween
                                           : std::string_view());
  } else if (bad) {
    const std::optional<std::int64_t> many = count_bad(facts, x, row, 0, kWholeRow);
    if (many) found.numbers.push_back({"bad inputs", *many});
    found.numbers.push_back({"inputs", x.channels});
    found.text = fmt::format("{}: {}", how, said);
  } else {
    const std::vector<Health>& rows = facts.run.rows(x);
    const bool hides = !rows.empty() && rows[static_cast<std::size_t>(row)].neg_inf > 0;
    found.text = fmt::format("{}: {}, the largest is {} = {}", how,
                             hides ? fmt::format("none of {} inputs of the row is NaN or +Inf", x.channels)
                                   : fmt::format("all {} inputs of the row are finite", x.channels),
                             element_text(facts, x, row, channel), value_text(facts, x, row, channel));
  }
  return found;
}

Explanation follow_element(const Subject& subject, const Operand& input, std::int64_t channel, std::string_view how) {
  if (!input.row) return follow_unplaced(subject, input);
  Explanation found;
  Facts& facts = subject.facts;
  const Tensor& x = *input.tensor;
  const std::int64_t last = std::max<std::int64_t>(x.channels - 1, 0);
  const std::int64_t at = x.known ? std::clamp<std::int64_t>(channel, 0, last) : std::max<std::int64_t>(channel, 0);
  const bool bad = bad_channel(facts, x, *input.row, at, 1).has_value();
  found.element = Element{x.id, *input.row, at};
  found.origin = subject.bad && !bad;
  found.text = fmt::format("{}: {}", how, said_of(facts, x, *input.row, at));
  if (!x.known && bad) found.text += ", and what it is made of is bad";
  if (!x.known && found.origin) found.text += kBornBetween;
  return found;
}

namespace {

/// The first bad row of an input; of a dump, whose steps hold rows of several sequences, one of the same sequence.
std::optional<std::int64_t> other_bad_row(const Subject& subject, const Tensor& input) {
  RunView& run = subject.facts.run;
  const Span* own = run.token_of(subject.tensor, subject.element.row).span;
  for (const std::int64_t row : run.bad_rows(input)) {
    const Span* span = run.token_of(input, row).span;
    if (!of_dump(subject.tensor) || own == nullptr || (span != nullptr && span->request == own->request)) return row;
  }
  return std::nullopt;
}

}  // namespace

Explanation explain_by_inputs(const Subject& subject) {
  const std::vector<Operand> inputs = operands(subject);
  if (inputs.empty()) return {};
  for (const Operand& input : inputs) {
    if (input.row && bad_channel(subject.facts, *input.tensor, *input.row, 0, kWholeRow))
      return follow_row(subject, input, "what went in is bad");
  }
  for (const Operand& input : inputs) {
    if (!subject.bad || !RunView::symptomatic(*input.tensor)) continue;
    if (of_dump(subject.tensor) && !input.row) return follow_unplaced(subject, input);
    const std::optional<std::int64_t> bad = other_bad_row(subject, *input.tensor);
    if (!bad) continue;
    Explanation found;
    const auto channel = bad_channel(subject.facts, *input.tensor, *bad, 0, kWholeRow);
    found.element = Element{input.tensor->id, *bad, channel.value_or(0)};
    found.text = "another row of what went in is bad";
    return found;
  }
  Explanation found = follow_row(subject, inputs.front(), "what went in is healthy");
  found.origin = subject.bad;
  found.danger = subject.bad;
  return found;
}

namespace {

/// The bad element of a parameter that an element of the output is made of: of a weight of (outputs, inputs) its row,
/// of one of (inputs, outputs) and of a bias its column. Nothing when that is healthy.
std::optional<Element> bad_part(const Subject& subject, const Tensor& weight) {
  Facts& facts = subject.facts;
  const std::int64_t channel = subject.element.channel;
  const std::int64_t outputs = subject.tensor.channels;
  const std::vector<std::int64_t> bad = facts.run.bad_rows(weight);
  if (bad.empty() || (weight.tokens != outputs && weight.channels != outputs)) return first_bad_element(facts, weight);
  if (weight.tokens == outputs) {
    const auto at = bad_channel(facts, weight, channel, 0, kWholeRow);
    if (at) return Element{weight.id, channel, *at};
  }
  if (weight.channels != outputs) return std::nullopt;
  for (const std::int64_t row : bad) {
    if (bad_channel(facts, weight, row, channel, 1)) return Element{weight.id, row, channel};
  }
  return std::nullopt;
}

}  // namespace

std::optional<float> size_at(Facts& facts, const Operand& input, std::int64_t channel) {
  const auto value = input.row ? value_at(facts, *input.tensor, *input.row, channel) : std::nullopt;
  return value ? std::optional(std::abs(*value)) : std::nullopt;
}

void blame_bad_weight(const Subject& subject, std::string_view healthy, Explanation& found) {
  for (const Input& input : subject.op.inputs) {
    const Health* health = subject.facts.parameter_health(input);
    if (health == nullptr || health->bad() == 0) continue;
    const std::string name = subject.facts.parameter_name(input);
    const Tensor* tensor = subject.facts.run.tensor(input.tensor);
    const std::optional<Element> part = tensor != nullptr ? bad_part(subject, *tensor) : std::nullopt;
    if (tensor != nullptr && !part) continue;
    found.element = part;
    found.weight = tensor != nullptr ? std::string() : name;
    found.danger = true;
    // What training made of a weight has an origin of its own.
    if (is_later_version(found.weight)) found.origin = false;
    const bool scale = tensor != nullptr && is_scale(subject.facts, *tensor);
    found.text = fmt::format("{}, the {} {} holds NaN or Inf", healthy, scale ? "scale" : "weight", name);
  }
}

}  // namespace nanscope
