#include <fmt/format.h>

#include "core/dump/detectors/detector.h"
#include "core/dump/readings.h"

namespace nanscope::dump_detectors {

/// Codes that were written in one flavour of fp8 and read in another: e4m3 and e4m3fnuz are a factor of 2 apart, e5m2
/// has other fields altogether.
DumpReport detect_fp8_format_mismatch(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  std::size_t tried = 0;
  for (const ReadingReport& reading : reading_reports(facts)) {
    if (explained.has(reading.codes)) continue;
    ++tried;
    if (!reading.wrong() || reading.best.format == reading.proper.format || reading.best.power != 1) continue;
    DumpFinding finding = finding_at(facts, reading.codes, {reading.shown});
    finding.fault.evidence = {{"stated_format", std::string(name(reading.proper.format))},
                              {"matching_format", std::string(name(reading.best.format))},
                              {"elements", static_cast<std::int64_t>(reading.elements)},
                              {"reproduced", reading.best_share},
                              {"reproduced_as_stated", reading.proper_share}};
    finding.fault.summary = fmt::format(
        "the codes of {} are {} by their dtype, but {} ({}) comes out of them only as {}: {:.3g} % of {} elements "
        "against {:.3g} %",
        facts.tensor(reading.codes).name, name(reading.proper.format), facts.tensor(reading.shown).name, reading.how,
        name(reading.best.format), 100 * reading.best_share, reading.elements, 100 * reading.proper_share);
    finding.fault.fix = "write and read the codes in the same fp8 flavour, or convert them where the hardware changes";
    finding.fault.breaks = true;
    report.findings.push_back(std::move(finding));
  }
  report.figure =
      fmt::format("{} tensors compared with their codes, none comes out better in another flavour of fp8", tried);
  if (!report.findings.empty())
    report.figure = fmt::format("{} of {} tensors come out of their codes in another flavour of fp8 alone",
                                report.findings.size(), tried);
  return report;
}

}  // namespace nanscope::dump_detectors
