#include <fmt/format.h>

#include <algorithm>

#include "core/dump/detectors/detector.h"
#include "core/dump/quantized.h"
#include "core/dump/underflow.h"

namespace nanscope::dump_detectors {
namespace {

constexpr double kLostShare = 0.25;    ///< of what is not zero; a format with a fitting scale loses next to nothing
constexpr double kCoarseShare = 0.5;   ///< of what is not zero, among the smallest codes, which keep one or two bits
constexpr double kOutlierRatio = 256;  ///< largest over the median of what is not zero

bool underflows(const Underflow& found) {
  return found.share(found.lost) >= kLostShare || found.share(found.lost + found.coarse) >= kCoarseShare;
}

}  // namespace

/// One value that sets the scale of all: the others fall below the smallest code and become zero.
DumpReport detect_outlier_squash(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  double worst = 0;
  std::size_t looked_at = 0;
  for (const Quantized& quantized : quantized_tensors(facts)) {
    if (!quantized.source || explained.has(quantized.codes)) continue;
    const auto codes = facts.values(quantized.codes);
    const auto source = facts.values(*quantized.source);
    if (!codes || !source || codes->size() != source->size()) continue;
    ++looked_at;
    const DumpTensor& tensor = facts.tensor(quantized.codes);
    const Underflow found = underflow_of(*source, *codes, info(*tensor.format).min_normal);
    worst = std::max(worst, found.share(found.lost));
    if (!underflows(found) || found.largest < kOutlierRatio * found.median) continue;
    const std::int64_t channels = std::max<std::int64_t>(1, tensor.channels());
    const auto row = static_cast<std::int64_t>(found.at) / channels;
    const auto channel = static_cast<std::int64_t>(found.at) % channels;
    DumpFinding finding = finding_at(facts, quantized.scale.value_or(quantized.codes), {quantized.codes}, {row});
    finding.fault.where.channels = Range{channel, channel};
    finding.fault.evidence = {{"lost", found.lost},
                              {"nonzero", found.nonzero},
                              {"share_lost", found.share(found.lost)},
                              {"coarse", found.coarse},
                              {"outlier", found.largest},
                              {"median", found.median},
                              {"ratio", found.largest / found.median}};
    if (quantized.scale) {
      if (const auto scale = facts.scalar(*quantized.scale))
        finding.fault.evidence.push_back({"scale", double{*scale}});
    }
    finding.fault.summary = fmt::format(
        "{} of {} values of {} became zero in {}, {} more are left one or two bits: one value, {:.6g} at [{},{}], is "
        "{:.3g} times the median and sets "
        "the scale of all",
        found.lost, found.nonzero, facts.tensor(*quantized.source).name, tensor.name, found.coarse, found.largest, row,
        channel, found.largest / found.median);
    finding.fault.fix = "scale per channel or in blocks, or keep the outlier channel apart";
    report.findings.push_back(std::move(finding));
  }
  report.figure = looked_at == 0
                      ? std::string("no cast was dumped with what it was made of")
                      : fmt::format("the largest share of values that a cast made zero is {:.3g} %, of {} casts",
                                    100 * worst, looked_at);
  return report;
}

}  // namespace nanscope::dump_detectors
