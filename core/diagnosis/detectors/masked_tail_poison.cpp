#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/diagnosis/detectors/births.h"
#include "core/diagnosis/stale_bits.h"

namespace nanscope {
namespace {

std::string writers(Facts& facts, const SickOp& read) {
  std::set<std::string> who;
  for (const KeyRow& key : read.bad_keys) {
    if (key.own) continue;
    if (key.writer == nullptr) {
      who.insert("never written");
      continue;
    }
    const StepRow* step = facts.run.step(key.writer->step);
    who.insert(fmt::format("last written as {} by {} of {}", name(key.writer->format), key.writer->writer,
                           step != nullptr ? request_text(*step) : fmt::format("request {}", key.writer->request)));
  }
  std::string text;
  for (const std::string& one : who) text += (text.empty() ? "" : "; ") + one;
  return text;
}

bool left_by_dummy(const SickOp& read) {
  return std::any_of(read.bad_keys.begin(), read.bad_keys.end(), [](const KeyRow& key) {
    return !key.own && key.writer != nullptr && key.writer->request == kDummyRequest;
  });
}

/// The code of the cache's format that is NaN; "unknown" when the step stored nothing in this layer.
std::string nan_code(Facts& facts, const SickOp& read) {
  const std::optional<OpRow> store = facts.run.find_op(read.step.id, read.op.layer, "kv_store");
  const std::vector<TensorRow> stored = store ? facts.run.tensors_of(store->id) : std::vector<TensorRow>{};
  if (stored.empty()) return "unknown";
  return code_text(stored.front().format, info(stored.front().format).canonical_nan_code);
}

/// The stale number behind the fault's bad element.
std::optional<StaleBits> bits_of(Facts& facts, const SickOp& read, const Element& element) {
  const std::optional<TensorRow> tensor = facts.run.tensor(element.tensor);
  if (!tensor) return std::nullopt;
  const KeyRow key = facts.key_row(read.step, read.op.layer, element.row);
  return stale_bits(facts, read.step, read.op.layer, tensor->role.substr(0, 1), key, element.channel);
}

}  // namespace

/// NaN in a KV slot that the request never wrote: the tail of a block that is read whole, or a recycled
/// block. A mask that adds or multiplies does not shield it: NaN + -Inf and 0 * NaN are NaN.
FaultReport detect_masked_tail_poison(Facts& facts) {
  FaultReport report = report_births(
      facts, BirthClass::masked_tail_poison, "NaN read from KV slots that the request never wrote",
      "select visible keys instead of adding or multiplying a mask, or scrub blocks when they are handed out",
      "0 NaN read from KV slots of another owner reached an output");
  for (FoundFault& found : report.faults) {
    const SickOp* read = facts.sick(found.ops.front());
    if (read == nullptr || read->bad_keys.empty()) continue;
    const KeyRow& first = read->bad_keys.front();
    found.fault.evidence.push_back({"context", read->step.context});
    found.fault.evidence.push_back({"first bad key", first.row});
    found.fault.evidence.push_back({"last bad key", read->bad_keys.back().row});
    found.fault.evidence.push_back({"raw code that reads as NaN", nan_code(facts, *read)});
    std::string bits;
    if (const std::optional<StaleBits> stale = bits_of(facts, *read, *found.element)) {
      found.fault.evidence.push_back({"raw code", code_text(stale->format, stale->code)});
      found.fault.evidence.push_back({"stale f32", double{stale->value}});
      found.fault.evidence.push_back({"stale f32 bits", code_text(Format::f32, stale->bits)});
      bits = "; " + text_of(*stale);
    }
    if (left_by_dummy(*read)) {
      found.fault.fix =
          "give dummy batches and padding rows the slot -1, and select visible keys instead of adding or "
          "multiplying a mask";
    }
    const std::string who = writers(facts, *read);
    found.fault.evidence.push_back({"slots", who});
    found.fault.summary =
        fmt::format("layer {} of {} reads NaN from keys {} to {} (context {}): slots {}{}", read->op.layer,
                    request_text(read->step), first.row, read->bad_keys.back().row, read->step.context, who, bits);
  }
  return report;
}

}  // namespace nanscope
