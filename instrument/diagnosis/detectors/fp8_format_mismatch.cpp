#include <fmt/format.h>

#include "instrument/diagnosis/detectors/deviations_of_kind.h"

namespace nanscope {
namespace {

/// The codes that an op writes, or reads in another format.
std::string stated_format(Survey& survey, const Deviation& deviation) {
  const Op& op = *survey.run().op(deviation.op);
  for (const std::string_view role : {"codes", "k_cache", "v_cache", "k", "v", "weight"}) {
    const Tensor* in = survey.run().input(op, role);
    if (in != nullptr && info(in->format).bits == 8) return std::string(name(in->format));
  }
  // A recording's read has no inputs: what it reads is what the layer stores.
  const Tensor& out = *survey.run().tensor(deviation.tensor);
  for (const Op& store : survey.run().content(op.step).ops) {
    if (op.kind != OpKind::kv_read || store.kind != OpKind::kv_store || store.layer != op.layer) continue;
    const Tensor* codes = survey.run().output(store, out.role.substr(0, 1) + "_codes");
    if (codes != nullptr) return std::string(name(codes->format));
  }
  return std::string(name(survey.run().tensor(deviation.tensor)->format));
}

}  // namespace

/// Codes written in one flavour of fp8 and read in another.
Findings detect_fp8_format_mismatch(Survey& survey) {
  Findings out;
  for (std::size_t i = 0; i < survey.deviations.size(); ++i) {
    const Deviation& deviation = survey.deviations[i];
    const Recomputed* best = deviation.explanation();
    if (best == nullptr || best->form.about != About::format || !best->form.as) continue;
    const Recomputed* rival = deviation.rival();
    Finding finding = finding_at(survey, deviation, i);
    finding.rank = rival != nullptr && rival->form.about != About::format ? Rank::counted : Rank::recomputed;
    finding.fault.certainty = rival == nullptr ? Certainty::proved : Certainty::possible;
    for (std::size_t b = 0; b < survey.births.size(); ++b) {
      if (survey.births[b].tensor != deviation.tensor) continue;
      finding.explains.push_back({Symptom::Kind::birth, b});
      finding.fault.breaks = true;
    }
    finding.fault.evidence.push_back({"stated", stated_format(survey, deviation)});
    finding.fault.evidence.push_back({"taken_as", std::string(name(*best->form.as))});
    finding.fault.summary = fmt::format(
        "{} comes out only with {}, where its codes are {}: {:.3g} % of the elements that are off otherwise{}",
        finding.fault.tensor, best->form.text, stated_format(survey, deviation), 100 * best->share(),
        rival != nullptr ? fmt::format("; or with {}", rival->form.text) : "");
    finding.fault.fix = "write and read in the same fp8 flavour, or convert codes where the hardware changes";
    out.found.push_back(std::move(finding));
  }
  exclude_deviations(out, survey, "nothing could be recomputed: dump codes, their scale and what was read from them");
  return out;
}

}  // namespace nanscope
