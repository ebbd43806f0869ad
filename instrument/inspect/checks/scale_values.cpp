#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/counted.h"
#include "core/text/safe_text.h"
#include "instrument/inspect/check.h"

/// Scales of weights that are no scales: NaN, Inf, below zero, or 0 where there are codes.
namespace nanscope {

void check_scale_values(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  constexpr std::array<const char*, 5> kParts = {"weight_scale", "weight_scale_inv", "scales", "weight_global_scale",
                                                 "weight_scale_2"};
  InspectFinding bad{.id = "scale-invalid", .severity = Severity::error, .text = {}, .known_as = {}, .modules = {}};
  std::string first;
  for (const Inspected& one : subject.modules) {
    for (const char* part : kParts) {
      const CheckpointFiles::Tensor tensor = one.module->find(part);
      if (tensor.entry == nullptr || tensor.entry->count() == 0) continue;
      const auto values = scale_values(tensor);
      if (!values) continue;
      // A block of zeros may have the scale 0.
      const bool zero_is_bad = values->size() == 1;
      const auto wrong = [&](float value) { return !std::isfinite(value) || value < 0 || (zero_is_bad && value == 0); };
      const auto at = std::find_if(values->begin(), values->end(), wrong);
      if (at == values->end()) continue;
      if (first.empty()) {
        first = fmt::format("'{}' has {} at {}, and {} of {} in all", one_line(tensor.entry->name), *at,
                            at - values->begin(), std::count_if(values->begin(), values->end(), wrong), values->size());
      }
      bad.modules.push_back(one.module->path);
      break;
    }
  }
  if (bad.modules.empty()) return;
  bad.text = fmt::format("scales of {} ({}) are not finite or not above zero; the first: {}",
                         counted(bad.modules.size(), "module"), some_of(bad.modules), first);
  findings.push_back(std::move(bad));
}

}  // namespace nanscope
