#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "instrument/diagnosis/warnings/warning.h"

namespace nanscope {

namespace early {
#define NANSCOPE_WARNING(function, kind, looks_for) \
  std::vector<Watched> find_##function(Survey& survey, const IsWatched& watched);
#include "instrument/diagnosis/warnings/warnings.def"
#undef NANSCOPE_WARNING
}  // namespace early

std::span<const WarningKind> all_warning_kinds() {
  static constexpr std::array kKinds = {
#define NANSCOPE_WARNING(function, kind, looks_for) WarningKind{kind, looks_for, early::find_##function},
#include "instrument/diagnosis/warnings/warnings.def"
#undef NANSCOPE_WARNING
  };
  return kKinds;
}

std::vector<Warning> warnings_of(Survey& survey, const std::vector<Fault>& faults) {
  const OpId first = faults.empty() || faults.front().ops.empty() ? INT64_MAX : faults.front().ops.front();
  const IsWatched watched = [first](const Tensor& tensor) { return tensor.op < first; };
  std::vector<Warning> warnings;
  for (const WarningKind& kind : all_warning_kinds()) {
    std::vector<Watched> found = kind.find(survey, watched);
    if (found.empty()) continue;
    const auto worst = std::max_element(found.begin(), found.end(),
                                        [](const Watched& a, const Watched& b) { return a.severity < b.severity; });
    const Tensor& tensor = *survey.run().tensor(worst->tensor);
    warnings.push_back({std::string(kind.kind), survey.facts.where(tensor), survey.facts.name_of(tensor),
                        std::move(worst->evidence), std::move(worst->summary), std::move(worst->advice),
                        static_cast<std::int64_t>(found.size()) - 1});
  }
  return warnings;
}

}  // namespace nanscope
