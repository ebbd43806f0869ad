#include <fmt/format.h>

#include "core/dump/clipping.h"
#include "core/dump/detectors/detector.h"
#include "core/dump/quantized.h"

namespace nanscope::dump_detectors {

/// Codes that were cut off at the largest finite value, when no dumped scale says why.
DumpReport detect_saturation(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  double largest_share = 0;
  std::size_t looked_at = 0;
  for (const Quantized& quantized : quantized_tensors(facts)) {
    const TensorIndex i = quantized.codes;
    const DumpTensor& tensor = facts.tensor(i);
    if (!holds_codes(tensor) || explained.has(i)) continue;
    ++looked_at;
    const std::optional<Clipping> clipping = clipping_of(facts, quantized);
    if (!clipping) continue;
    largest_share = std::max(largest_share, clipping->share());
    if (!clipping->clipped) continue;
    DumpFinding finding = finding_at(facts, quantized.scale.value_or(i), {i}, clipping->rows);
    finding.fault.evidence = {{"saturated", clipping->saturated},
                              {"elements", clipping->count},
                              {"share", clipping->share()},
                              {"rows", static_cast<std::int64_t>(clipping->rows.size())},
                              {"largest_finite", double{info(*tensor.format).max_finite}}};
    finding.fault.summary = fmt::format(
        "{} of {} codes of {} ({:.3g} %) are at {:g}, the largest finite {}: more than scaling by the largest value "
        "puts there",
        clipping->saturated, clipping->count, tensor.name, 100 * clipping->share(), info(*tensor.format).max_finite,
        name(*tensor.format));
    finding.fault.fix =
        "dump the scale and the values before the cast too; recompute the scale from this request's values";
    report.findings.push_back(std::move(finding));
  }
  report.figure = looked_at == 0
                      ? std::string("no tensor of 8-bit codes was dumped")
                      : fmt::format("the largest share of codes at the largest finite value is {:.3g} %, of {} tensors",
                                    100 * largest_share, looked_at);
  return report;
}

}  // namespace nanscope::dump_detectors
