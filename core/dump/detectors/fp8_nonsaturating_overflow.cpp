#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/diagnosis/facts.h"
#include "core/dump/detectors/detector.h"
#include "core/dump/quantized.h"

namespace nanscope::dump_detectors {
namespace {

/// What the NaN and Inf among the codes were made of.
struct Overflowed {
  std::int64_t bad = 0;
  std::int64_t beyond = 0;     ///< of them, from a finite value that the format cannot hold
  double smallest = INFINITY;  ///< |value| / scale of those
  double largest_healthy = 0;  ///< |value| / scale that became a number
  std::vector<std::int64_t> rows;
};

/// With a scale where one was dumped, else in the source's own units: beyond means larger than all that fit.
Overflowed overflowed(DumpFacts& facts, const Quantized& quantized) {
  Overflowed out;
  const auto codes = facts.values(quantized.codes);
  const auto source = facts.values(*quantized.source);
  if (!codes || !source) return out;
  std::optional<ScaleGrid> scale;
  if (quantized.scale) scale = ScaleGrid::of(facts, *quantized.scale, quantized.codes);
  const std::int64_t channels = facts.tensor(quantized.codes).channels();
  const auto scaled = [&](std::size_t i) {
    const auto index = static_cast<std::int64_t>(i);
    const double by = scale ? double{scale->at(index / channels, index % channels)} : 1;
    return std::abs(double{(*source)[i]} / by);
  };
  for (std::size_t i = 0; i < codes->size(); ++i) {
    if (std::isfinite((*codes)[i]) && std::isfinite((*source)[i]))
      out.largest_healthy = std::max(out.largest_healthy, scaled(i));
  }
  const FormatInfo& format = info(*facts.tensor(quantized.codes).format);
  const double limit = scale ? double{format.max_finite} : out.largest_healthy;
  for (std::size_t i = 0; i < codes->size(); ++i) {
    if (std::isfinite((*codes)[i])) continue;
    ++out.bad;
    if (!std::isfinite((*source)[i]) || !(scaled(i) > limit)) continue;
    ++out.beyond;
    out.smallest = std::min(out.smallest, scaled(i));
    const std::int64_t row = static_cast<std::int64_t>(i) / channels;
    if (out.rows.empty() || out.rows.back() != row) out.rows.push_back(row);
  }
  return out;
}

}  // namespace

/// A cast that leaves what is too large to NaN (e4m3) or Inf (e5m2), as torch's does, instead of clamping it.
DumpReport detect_fp8_nonsaturating_overflow(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  std::size_t looked_at = 0;
  for (const Quantized& quantized : quantized_tensors(facts)) {
    const DumpTensor& codes = facts.tensor(quantized.codes);
    if (!quantized.source || explained.has(quantized.codes) || info(*codes.format).specials == Specials::none) continue;
    ++looked_at;
    if (!codes.bad()) continue;
    const Overflowed found = overflowed(facts, quantized);
    if (found.beyond == 0 || found.beyond * 10 < found.bad * 9) continue;
    DumpFinding finding = finding_at(facts, quantized.codes, {quantized.codes}, found.rows);
    finding.fault.evidence = {{"overflowed", found.beyond},
                              {"bad_codes", found.bad},
                              {"largest_finite", double{info(*codes.format).max_finite}},
                              {"smallest_overflowing", found.smallest},
                              {"largest_stored", found.largest_healthy},
                              {"format", std::string(name(*codes.format))}};
    finding.fault.summary = fmt::format(
        "{} codes of {} are {} though {} is finite: the values are {:.6g} and more after scaling, and {} ends at {:g}",
        found.beyond, codes.name, codes.health.nan > 0 ? "NaN" : "Inf", facts.tensor(*quantized.source).name,
        found.smallest, name(*codes.format), info(*codes.format).max_finite);
    finding.fault.fix = "clamp to the largest finite value before the cast, or use a scale that holds these values";
    finding.fault.breaks = true;
    report.findings.push_back(std::move(finding));
  }
  report.figure = fmt::format("{} of {} casts to fp8 whose source was dumped made NaN or Inf of finite values",
                              report.findings.size(), looked_at);
  return report;
}

}  // namespace nanscope::dump_detectors
