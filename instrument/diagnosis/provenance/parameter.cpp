#include <fmt/format.h>

#include "core/run/scales.h"
#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

Explanation explain_scale(const Subject& subject, const std::string& name) {
  Explanation found;
  found.end = "a scale that the pass was given: the setting shows here";
  found.text = name;
  if (!subject.value) return found;
  const double scale = double{*subject.value};
  const std::string_view complaint = scale_complaint(scale);
  found.numbers = {{"scale", scale}};
  found.text = fmt::format("{} is {}", name, to_string(EvidenceValue{scale}));
  if (!complaint.empty()) found.text += fmt::format(": a scale that is {}", complaint);
  return found;
}

}  // namespace

/// A weight, a scale, a mask or an id, which a pass reads and does not compute: the walk ends.
Explanation explain_parameter(const Subject& subject) {
  const std::string name = subject.facts.name_of(subject.tensor);
  Explanation found;
  if (is_scale(subject.facts, subject.tensor)) {
    found = explain_scale(subject, name);
  } else {
    const Health& health = subject.tensor.health;
    found.end = subject.bad ? "a weight is bad" : "no op of the run made it";
    found.text = name + (health.bad() > 0 ? " holds NaN or Inf" : ", which the pass is given");
    found.numbers = {{"NaN", static_cast<std::int64_t>(health.nan)},
                     {"Inf", static_cast<std::int64_t>(health.pos_inf + health.neg_inf)},
                     {"elements", static_cast<std::int64_t>(health.count)}};
  }
  found.origin = subject.bad;
  return found;
}

}  // namespace nanscope
