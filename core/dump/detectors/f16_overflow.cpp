#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/dump/detectors/detector.h"
#include "core/dump/recompute.h"

namespace nanscope::dump_detectors {
namespace {

/// Nothing but a result beyond the range makes an Inf of finite values in these.
bool adds_and_multiplies(const TensorName& at) {
  const ModuleKind kind = at.kind;
  // What goes into a norm is a sum of residuals; into a linear module, a norm's, an activation's or attention's output.
  if (at.port == Port::input) return kind == ModuleKind::norm || at.role == "act";
  return kind == ModuleKind::linear || kind == ModuleKind::residual || kind == ModuleKind::activation ||
         kind == ModuleKind::block || kind == ModuleKind::embedding;
}

double largest_input(const DumpFacts& facts, const Birth& birth) {
  double largest = 0;
  for (const TensorIndex input : birth.inputs) {
    if (!is_parameter(facts.tensor(input))) largest = std::max(largest, double{facts.tensor(input).health.absmax});
  }
  return largest;
}

}  // namespace

/// A finite computation whose result is beyond 65504, the largest finite f16.
DumpReport detect_f16_overflow(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  constexpr double kLargest = 65504;
  double closest = 0;
  for (TensorIndex i = 0; i < facts.size(); ++i) {
    if (facts.tensor(i).format == Format::f16) closest = std::max(closest, double{facts.tensor(i).health.absmax});
  }
  for (const Birth& birth : facts.births()) {
    const DumpTensor& tensor = facts.tensor(birth.tensor);
    const std::uint64_t infinite = tensor.health.pos_inf + tensor.health.neg_inf;
    if (tensor.format != Format::f16 || infinite == 0 || explained.has(birth.tensor)) continue;
    const std::int64_t first = tensor.health.first_bad;
    const auto exact = linear_element(facts, birth.tensor, first / tensor.channels(), first % tensor.channels());
    if (exact ? !(std::abs(exact->value) > 0.99 * kLargest) : !adds_and_multiplies(tensor.at)) continue;
    DumpFinding finding = finding_at(facts, birth.tensor, {birth.tensor}, birth.rows);
    finding.fault.evidence = {{"infinite", static_cast<std::int64_t>(infinite)},
                              {"nan", static_cast<std::int64_t>(tensor.health.nan)},
                              {"largest_finite", kLargest},
                              {"largest_input", largest_input(facts, birth)}};
    if (exact) finding.fault.evidence.push_back({"recomputed", exact->value});
    const std::string proof =
        exact ? fmt::format("recomputed from its input and weight, element [{},{}] is {:.6g}, beyond 65504",
                            first / tensor.channels(), first % tensor.channels(), exact->value)
              : fmt::format("what goes in is finite, at most {:.6g}, and only a sum beyond 65504 makes Inf of it",
                            largest_input(facts, birth));
    finding.fault.summary = fmt::format("{} f16 elements of {} are infinite: {}", infinite, tensor.name, proof);
    finding.fault.fix = "keep this tensor in bf16 or f32, or scale the branch down";
    finding.fault.breaks = true;
    report.findings.push_back(std::move(finding));
  }
  report.figure = closest > 0 ? fmt::format("the largest finite f16 value dumped is {:.6g}, headroom {:.3g}", closest,
                                            kLargest / closest)
                              : std::string("no f16 tensor was dumped");
  return report;
}

}  // namespace nanscope::dump_detectors
