#include <fmt/format.h>

#include "core/dump/detectors/detector.h"
#include "core/dump/readings.h"

namespace nanscope::dump_detectors {

/// A scale that was left out, inverted or applied twice: with it once the dumped numbers do not come out, with the
/// other they do.
DumpReport detect_scale_misapplied(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  std::size_t tried = 0;
  double best = 1;
  for (const ReadingReport& reading : reading_reports(facts)) {
    if (!reading.scale || explained.has(reading.codes)) continue;
    ++tried;
    best = std::min(best, reading.proper_share);
    if (!reading.wrong() || reading.best.format != reading.proper.format) continue;
    DumpFinding finding = finding_at(facts, *reading.scale, {reading.shown});
    finding.fault.evidence = {{"scale", reading.scale_value},
                              {"applied", std::string(power_text(reading.best.power))},
                              {"power", static_cast<std::int64_t>(reading.best.power)},
                              {"elements", static_cast<std::int64_t>(reading.elements)},
                              {"reproduced", reading.best_share},
                              {"reproduced_with_scale_once", reading.proper_share}};
    finding.fault.summary = fmt::format(
        "{} was made with the scale {} {}: that reproduces {:.3g} % of {} elements ({}), the scale once {:.3g} %",
        facts.tensor(reading.shown).name, facts.tensor(*reading.scale).name, power_text(reading.best.power),
        100 * reading.best_share, reading.elements, reading.how, 100 * reading.proper_share);
    finding.fault.fix =
        "apply the scale exactly once between the code and its use: look for a kernel that folds it in, or drops it";
    finding.fault.breaks = true;
    report.findings.push_back(std::move(finding));
  }
  report.figure =
      tried == 0
          ? std::string("no codes were dumped together with their scale and what was made of them")
          : fmt::format("with the scale applied once, at least {:.3g} % of the elements of each of {} tensors come out",
                        100 * best, tried);
  return report;
}

}  // namespace nanscope::dump_detectors
