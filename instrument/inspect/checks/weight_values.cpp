#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "instrument/inspect/check.h"

/// Weights that hold NaN or Inf, in the rows that are looked at.
namespace nanscope {

void check_weight_values(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  InspectFinding bad{.id = "weight-not-finite", .severity = Severity::error, .text = {}, .known_as = {}, .modules = {}};
  std::string first;
  std::vector<float> values;
  for (const Inspected& one : subject.modules) {
    if (!one.matrix) continue;
    values.resize(static_cast<std::size_t>(one.matrix->columns));
    for (const std::int64_t row : subject.rows_of(*one.matrix)) {
      one.matrix->row(row, values);
      const auto wrong = [](float value) { return !std::isfinite(value); };
      const auto at = std::find_if(values.begin(), values.end(), wrong);
      if (at == values.end()) continue;
      if (first.empty()) {
        first = fmt::format("row {} of {} holds {} at column {}", row, one.module->path, *at, at - values.begin());
      }
      bad.modules.push_back(one.module->path);
      break;
    }
  }
  if (bad.modules.empty()) return;
  const std::string looked =
      subject.rows == 0 ? "" : fmt::format(" (of each, {} rows were read; --rows 0 reads all)", subject.rows);
  bad.text = fmt::format("weights of {} ({}) hold NaN or Inf; the first: {}{}", counted(bad.modules.size(), "module"),
                         some_of(bad.modules), first, looked);
  findings.push_back(std::move(bad));
}

}  // namespace nanscope
