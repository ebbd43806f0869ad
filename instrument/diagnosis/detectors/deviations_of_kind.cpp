#include "instrument/diagnosis/detectors/deviations_of_kind.h"

#include <fmt/format.h>

#include "core/counted.h"

namespace nanscope {

Finding finding_at(Survey& survey, const Deviation& deviation, std::size_t index) {
  const Tensor& tensor = *survey.run().tensor(deviation.tensor);
  Finding finding = finding_at(survey, tensor, deviation.rows);
  finding.fault.ops = {deviation.op};
  finding.explains = {{Symptom::Kind::deviation, index}};
  const Recomputed& result = deviation.result;
  finding.fault.evidence = {{"unexplained", result.elements - result.explained},
                            {"elements", result.elements},
                            {"rows", static_cast<std::int64_t>(deviation.rows.size())},
                            {"worst_row", result.worst.row},
                            {"worst_channel", result.worst.channel},
                            {"value", result.worst.actual},
                            {"expected", result.worst.expected},
                            {"bound", result.worst.bound}};
  if (const Recomputed* best = deviation.explanation()) {
    finding.fault.evidence.push_back({"explained_by", best->form.text});
    finding.fault.evidence.push_back({"share_explained", best->share()});
    finding.fault.evidence.push_back({"log10_chance", best->log10_chance});
    double next = 0;
    std::string text;
    for (const Recomputed& other : deviation.alternatives) {
      if (other.form.text == best->form.text) continue;
      next = other.share();
      text = other.form.text;
      break;
    }
    if (!text.empty()) {
      finding.fault.evidence.push_back({"next_best", text});
      finding.fault.evidence.push_back({"share_next_best", next});
    }
  }
  return finding;
}

Finding finding_at(Survey& survey, const Deviation& deviation, std::size_t index, const Region& region) {
  Finding finding = finding_at(survey, deviation, index);
  std::vector<Evidence>& evidence = finding.fault.evidence;
  if (region.channels > 0 && !(region.all_rows && region.all_channels))
    finding.fault.where.channels = Range{region.first_channel, region.first_channel + region.channels - 1};
  evidence.push_back({"region", region.shape});
  if (!region.all_rows) evidence.push_back({"wrong_rows", ranges_text(region.rows)});
  if (!region.heads.empty()) evidence.push_back({"wrong_heads", ranges_text(region.heads)});
  if (!region.content.empty()) evidence.push_back({"holds", region.content});
  return finding;
}

void exclude_deviations(Findings& out, const Survey& survey, std::string capture) {
  if (!survey.recomputing) {
    out.not_looked_at("ops were not recomputed");
  } else if (survey.recomputed == 0) {
    out.not_in_dump(std::move(capture));
  } else {
    out.excluded(fmt::format("{} recomputed from their inputs, {} of them differ", counted(survey.recomputed, "op"),
                             survey.deviations.size()));
  }
}

}  // namespace nanscope
