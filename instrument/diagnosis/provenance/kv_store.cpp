#include <fmt/format.h>

#include "instrument/diagnosis/provenance/cache.h"
#include "instrument/diagnosis/provenance/scale.h"

namespace nanscope {
namespace {

/// What another pass left in the row, or nobody did.
Explanation explain_kept(const Subject& subject, const Written& written) {
  Explanation found;
  found.danger = true;
  if (written.before) {
    const Tensor* before = subject.facts.run.tensor(written.before->tensor);
    const bool bad = bad_channel(subject.facts, *before, written.before->row, written.before->channel, 1).has_value();
    found.element = written.before;
    found.origin = subject.bad && !bad;
    found.text = fmt::format("kept from {}: {}", request_text(*subject.facts.run.step(before->step)),
                             said_of(subject.facts, *before, written.before->row, written.before->channel));
    if (found.origin) {
      found.text += is_cache(*before) ? "; something wrote it since" : "; storing it made it bad, or something since";
    }
    return found;
  }
  if (written.key) {
    found.key = written.key;
    found.reader = written.reader;
    const KvRow* writer = written.key->writer;
    const bool own = writer != nullptr && writer->step == subject.step.id;
    found.text = own ? "which row of this pass went into the slot is not known" : "this pass did not write the slot";
    return found;
  }
  found.origin = subject.bad;
  found.end = "no pass of the dump wrote it";
  found.text = "no pass of the dump is known to have written this row of the cache";
  return found;
}

}  // namespace

/// code = encode(x / scale): a bad x, a clip, an overflow of a cast that does not saturate, or a bad scale. A cache
/// holds what other passes wrote as well.
Explanation explain_kv_store(const Subject& subject) {
  const std::string target = subject.tensor.role.substr(0, 1);
  const std::optional<Operand> x = operand(subject, {target});
  const std::int64_t channel = subject.element.channel;
  if (!x) return explain_by_inputs(subject);
  if (subject.tensor.role.ends_with("_scales") || subject.tensor.role.ends_with("_zeros")) {
    // One for all rows is made of all of them.
    return x->row && subject.tensor.tokens > 1 ? follow_row(subject, *x, "chosen for the row")
                                               : explain_by_inputs(subject);
  }
  std::optional<std::int64_t> row = x->row;
  if (is_cache(subject.tensor)) {
    const Written written = written_by(subject, *x->tensor);
    if (!written.row) return explain_kept(subject, written);
    row = written.row;
  }
  if (!row) return follow_unplaced(subject, *x);
  // A scale a slot is laid out as the cache is, all others as what is stored.
  const std::string role = target + "_scale";
  const Tensor* scales = subject.facts.run.input(subject.op, role);
  const bool by_slot = scales != nullptr && is_cache(subject.tensor) && scales->tokens == subject.tensor.tokens;
  const auto scale = by_slot ? used_scale(subject, role, target, subject.tensor, subject.element.row, channel)
                             : used_scale(subject, role, target, *x->tensor, *row, channel);
  return explain_stored(subject, *x->tensor, *row, channel, scale);
}

}  // namespace nanscope
