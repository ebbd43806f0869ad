#include <fmt/format.h>

#include <cmath>

#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

/// What another rank put into the same sum.
std::vector<Operand> of_other_ranks(const Subject& subject) {
  std::vector<Operand> found;
  RunView& run = subject.facts.run;
  const Step& own = subject.step;
  for (const Step& step : run.steps()) {
    const bool same = step.run == own.run && step.request() == own.request() && step.index() == own.index();
    const Op* op = same && step.rank != own.rank ? run.find_op(step.id, subject.op.layer, subject.op.name) : nullptr;
    const Tensor* x = op != nullptr && op->kind == OpKind::all_reduce ? run.input(*op, "x") : nullptr;
    if (x != nullptr) found.push_back(operand_of(subject, *x, "x"));
  }
  return found;
}

std::string rank_text(const Subject& subject, const Operand& part) {
  const Step* step = subject.facts.run.step(part.tensor->step);
  return fmt::format("the sum over ranks, of which rank {}", step != nullptr ? step->rank : 0);
}

/// All parts are healthy: whether their sum left the range, or was another.
void explain_sum(const Subject& subject, const std::vector<Operand>& parts, Explanation& found) {
  found.numbers.push_back({"ranks", static_cast<std::int64_t>(parts.size())});
  double sum = 0;
  for (const Operand& part : parts) {
    const std::optional<float> value =
        part.row ? value_at(subject.facts, *part.tensor, *part.row, subject.element.channel) : std::nullopt;
    if (!value) return;
    sum += double{*value};
  }
  const double limit = double{info(subject.tensor.format).max_finite};
  if (!(std::abs(sum) > limit)) {
    found.numbers.push_back({"sum", sum});
    found.text =
        fmt::format("what {} ranks put in adds up to {:.9g}, which is finite: this rank's copy of the sum is another",
                    parts.size(), sum);
    return;
  }
  found.numbers.insert(found.numbers.end(), {{"sum", sum}, {"largest finite", limit}});
  found.text = fmt::format("what {} ranks put in adds up to {:.9g}, beyond the largest finite {} {:.9g}", parts.size(),
                           sum, name(subject.tensor.format), limit);
}

}  // namespace

/// out = the sum of x over all ranks, element by element: the bad part, of whichever rank.
Explanation explain_all_reduce(const Subject& subject) {
  const std::optional<Operand> own = operand(subject, {"x"});
  if (!own) return explain_by_inputs(subject);
  std::vector<Operand> parts{*own};
  for (const Operand& other : of_other_ranks(subject)) parts.push_back(other);
  const std::int64_t channel = subject.element.channel;
  for (const Operand& part : parts) {
    if (part.row && bad_channel(subject.facts, *part.tensor, *part.row, channel, 1))
      return follow_element(subject, part, channel, rank_text(subject, part));
  }
  Explanation found = follow_element(subject, *own, channel, rank_text(subject, *own));
  if (found.origin) explain_sum(subject, parts, found);
  return found;
}

}  // namespace nanscope
