#include <fmt/format.h>

#include <set>

#include "core/diagnosis/detectors/births.h"

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
    std::string codes;
    if (const std::optional<OpRow> store = facts.run.find_op(read->step.id, read->op.layer, "kv_store")) {
      for (const TensorRow& stored : facts.run.tensors_of(store->id)) {
        if (codes.empty()) codes = code_text(stored.format, info(stored.format).canonical_nan_code);
      }
    }
    if (!codes.empty()) found.fault.evidence.push_back({"raw code that reads as NaN", codes});
    const std::string who = writers(facts, *read);
    found.fault.evidence.push_back({"slots", who});
    found.fault.summary =
        fmt::format("layer {} of {} reads NaN from keys {} to {} (context {}): slots {}", read->op.layer,
                    request_text(read->step), first.row, read->bad_keys.back().row, read->step.context, who);
  }
  return report;
}

}  // namespace nanscope
