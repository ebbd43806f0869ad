#include <fmt/format.h>

#include "core/recording/weight_version.h"
#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

/// The row of the image's patches that stands at `position`; each image of a step has its own op.
std::optional<Element> patch_element(const Subject& subject, const Span& span, std::int64_t position) {
  RunView& run = subject.facts.run;
  for (const Op& op : run.content(subject.op.step).ops) {
    if (op.kind != OpKind::patch_embedding) continue;
    for (const TensorId id : op.outputs) {
      const Tensor* patches = run.tensor(id);
      const auto row = patches != nullptr ? run.row_at(*patches, span, position) : std::nullopt;
      if (row && subject.element.channel < patches->channels) return Element{id, *row, subject.element.channel};
    }
  }
  return std::nullopt;
}

/// The id of the row's token: of the request's list, else of the ids that the pass was given.
std::optional<std::int64_t> token_id(const Subject& subject) {
  Facts& facts = subject.facts;
  const RowToken at = facts.run.token_of(subject.tensor, subject.element.row);
  if (at.span != nullptr) {
    for (const TokenRow& token : facts.run.tokens(at.span->request)) {
      if (token.position == at.position) return token.token;
    }
  }
  const std::optional<Operand> ids = operand(subject, {"tokens"});
  if (!ids || !ids->row || ids->tensor->channels != 1) return std::nullopt;
  const auto code = code_at(facts, *ids->tensor, *ids->row, 0);
  return code ? std::optional<std::int64_t>(static_cast<std::int32_t>(*code)) : std::nullopt;
}

/// The table's row of the token holds NaN or Inf; of a table whose elements are not there, some row does.
void blame_table(const Subject& subject, const std::optional<std::int64_t>& token, Explanation& found) {
  Facts& facts = subject.facts;
  for (const Input& input : subject.op.inputs) {
    const Health* health = facts.parameter_health(input);
    if (!found.origin || health == nullptr || health->bad() == 0) continue;
    const std::string name = facts.parameter_name(input);
    if (const Tensor* table = facts.run.tensor(input.tensor)) {
      const auto bad = token ? bad_channel(facts, *table, *token, subject.element.channel, 1) : std::nullopt;
      if (!bad) continue;
      found.element = Element{table->id, *token, *bad};
    } else {
      found.weight = name;
    }
    found.danger = true;
    found.text += ", whose row of " + name + " holds NaN or Inf";
    // What training made of a table has an origin of its own.
    if (is_later_version(found.weight)) found.origin = false;
  }
}

}  // namespace

/// Row t is the table's row of the token, or the next patch where the token is an image.
Explanation explain_embedding(const Subject& subject) {
  Explanation found;
  const std::optional<std::int64_t> token = token_id(subject);
  if (token) {
    found.numbers.push_back({"token", *token});
    found.text = *token < 0 ? "the embedding of an image patch" : fmt::format("the embedding of token {}", *token);
  } else {
    found.text = "the embedding of the token";
  }
  const RowToken at = subject.facts.run.token_of(subject.tensor, subject.element.row);
  if (token && *token < 0 && at.span != nullptr) found.element = patch_element(subject, *at.span, at.position);
  found.origin = subject.bad && !found.element;
  blame_table(subject, token, found);
  return found;
}

}  // namespace nanscope
