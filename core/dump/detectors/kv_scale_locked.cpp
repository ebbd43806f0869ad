#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/diagnosis/facts.h"
#include "core/dump/clipping.h"
#include "core/dump/detectors/detector.h"
#include "core/dump/quantized.h"

namespace nanscope::dump_detectors {
namespace {

/// One use of a scale: what it was, what it had to hold.
struct Use {
  TensorIndex codes = 0;
  std::optional<TensorIndex> scale_tensor;
  double scale = 0;
  double absmax = 0;  ///< of the values before the cast
  bool clipped = false;
  std::vector<std::int64_t> rows;

  double headroom(double largest) const { return absmax > 0 ? largest * scale / absmax : INFINITY; }
};

std::optional<Use> use_of(DumpFacts& facts, const Quantized& quantized) {
  const double largest = double{info(*facts.tensor(quantized.codes).format).max_finite};
  Use use{quantized.codes, quantized.scale, 0, 0, false, {}};
  if (quantized.scale) {
    const auto scale = facts.scalar(*quantized.scale);
    if (!scale) return std::nullopt;  // a scale a row or a channel is computed anew
    use.scale = double{*scale};
  } else if (const auto implied = implied_scale(facts, quantized); implied && implied->agreeing > 0.95) {
    use.scale = implied->scale;
  } else {
    return std::nullopt;
  }
  const std::optional<Clipping> clipping = clipping_of(facts, quantized);
  use.clipped = clipping && clipping->clipped;
  if (clipping) use.rows = clipping->rows;
  if (quantized.source) {
    use.absmax = double{facts.tensor(*quantized.source).health.absmax};
    use.clipped = use.headroom(largest) < rounding_headroom(*facts.tensor(quantized.codes).format) &&
                  (!clipping || clipping->saturated > 0 || facts.tensor(quantized.codes).bad());
  } else {
    // Codes tell how large the values were only while none was cut off.
    use.absmax = double{facts.tensor(quantized.codes).health.absmax} * use.scale;
  }
  return use;
}

/// Whether the scale was computed from values such as these: it holds them, with room to spare but not for
/// anything. 16 is beyond every calibration constant in use.
bool calibrated_on(const Use& use, double largest) {
  return use.headroom(largest) >= 0.95 && use.headroom(largest) <= 16;
}

bool same_scale(const Use& a, const Use& b) {
  const double tolerance =
      a.scale_tensor && b.scale_tensor ? 1e-6 : 0.02;  // an implied scale is a median of rounded ratios
  return std::abs(a.scale - b.scale) <= tolerance * std::abs(a.scale);
}

DumpFinding finding_of(DumpFacts& facts, const Use& first, const Use& now) {
  const FormatInfo& format = info(*facts.tensor(now.codes).format);
  const double largest = double{format.max_finite};
  const std::string& clipping = facts.tensor(now.codes).name;
  DumpFinding finding = finding_at(facts, now.scale_tensor.value_or(now.codes), {now.codes}, now.rows);
  finding.fault.evidence = {{"scale", now.scale},
                            {"largest_storable", largest * now.scale},
                            {"calibration_absmax", first.absmax},
                            {"absmax", now.absmax},
                            {"headroom", now.headroom(largest)},
                            {"saturated", static_cast<std::int64_t>(facts.tensor(now.codes).health.saturated)},
                            {"format", std::string(format.name)}};
  finding.fault.summary = fmt::format(
      "{} clips: the scale {:.6g} was set where the largest value was {:.6g} ({}) and is the same here, where it is "
      "{:.6g}: {:g} x {:.6g} = {:.6g} is the largest that fits",
      clipping, now.scale, first.absmax, facts.tensor(first.codes).name, now.absmax, largest, now.scale,
      largest * now.scale);
  finding.fault.fix = "compute the scale per request or per token, or store the KV cache unquantized";
  return finding;
}

}  // namespace

/// A scale that was right for an earlier pass, is the same in a later one, and clips there.
DumpReport detect_kv_scale_locked(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  std::vector<Use> uses;
  double least = INFINITY;
  for (const Quantized& quantized : quantized_tensors(facts)) {
    const std::string& role = facts.tensor(quantized.codes).at.role;
    if (role != "k_cache" && role != "v_cache") continue;
    if (quantized.scale && explained.has(*quantized.scale)) continue;
    std::optional<Use> now = use_of(facts, quantized);
    if (!now) continue;
    const double largest = double{info(*facts.tensor(now->codes).format).max_finite};
    least = std::min(least, now->headroom(largest));
    if (now->clipped) {
      const auto first = std::find_if(uses.begin(), uses.end(), [&](const Use& use) {
        const TensorName& then = facts.tensor(use.codes).at;
        const TensorName& at = facts.tensor(now->codes).at;
        return then.layer == at.layer && then.role == at.role && then.tower == at.tower && then.rank == at.rank &&
               !use.clipped && same_scale(use, *now) && calibrated_on(use, largest) && now->absmax >= use.absmax;
      });
      if (first != uses.end()) report.findings.push_back(finding_of(facts, *first, *now));
    }
    uses.push_back(std::move(*now));
  }
  report.figure = uses.empty()
                      ? std::string("no KV codes with a scale of one number were dumped")
                      : fmt::format("the least headroom of {} stores into the KV cache is {:.3g}", uses.size(), least);
  return report;
}

}  // namespace nanscope::dump_detectors
