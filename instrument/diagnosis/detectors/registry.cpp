#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"
#include "instrument/diagnosis/detectors/detector.h"

namespace nanscope {

#define NANSCOPE_DETECTOR(function, fault_class, looks_for) Findings detect_##function(Survey& survey);
#include "instrument/diagnosis/detectors/detectors.def"
#undef NANSCOPE_DETECTOR

std::span<const Detector> detectors() {
  static constexpr std::array kDetectors = {
#define NANSCOPE_DETECTOR(function, fault_class, looks_for) Detector{fault_class, looks_for, detect_##function},
#include "instrument/diagnosis/detectors/detectors.def"
#undef NANSCOPE_DETECTOR
  };
  return kDetectors;
}

const Detector* find_detector(std::string_view fault_class) {
  const auto all = detectors();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Detector& one) { return one.fault_class == fault_class; });
  return found == all.end() ? nullptr : &*found;
}

Finding finding_at(Survey& survey, const Tensor& tensor, const std::vector<std::int64_t>& rows) {
  Finding finding;
  finding.tensor = tensor.id;
  finding.rows = rows;
  finding.fault.where = survey.facts.where(tensor, rows);
  finding.fault.tensor = survey.facts.name_of(tensor);
  finding.fault.ops = {tensor.op};
  return finding;
}

Finding finding_at(Survey& survey, std::size_t birth) {
  const Birth& at = survey.births[birth];
  Finding finding = finding_at(survey, survey.tensor(at), at.rows);
  finding.fault.ops = {at.op};
  finding.fault.breaks = true;
  finding.explains = {{Symptom::Kind::birth, birth}};
  return finding;
}

void exclude(Findings& out, const Survey& survey, std::string figure) {
  if (!survey.births_cut) {
    out.excluded(std::move(figure));
    return;
  }
  out.not_looked_at(fmt::format("NaN or Inf is born in many passes, and only {} of those that hold any were looked at",
                                survey.birth_steps.size()));
}

std::string rows_text(const Birth& birth, const std::string& tensor) {
  return birth.rows.empty() ? tensor : fmt::format("{} of {}", counted(birth.rows.size(), "row"), tensor);
}

bool row_finite(Survey& survey, const Tensor& tensor, std::int64_t row) {
  if (tensor.health.bad() == 0) return true;
  const std::vector<Health>& rows = survey.run().rows(tensor);
  return row >= 0 && row < static_cast<std::int64_t>(rows.size()) && rows[static_cast<std::size_t>(row)].bad() == 0;
}

void merge_alike(std::vector<Finding>& found, bool by_role) {
  std::vector<Finding> merged;
  for (Finding& one : found) {
    const auto same = std::find_if(merged.begin(), merged.end(), [&](const Finding& other) {
      return other.fault.where.op == one.fault.where.op && other.fault.where.layer == one.fault.where.layer &&
             other.fault.where.rank == one.fault.where.rank && other.rank == one.rank &&
             (!by_role || other.fault.where.role == one.fault.where.role);
    });
    if (same == merged.end()) {
      merged.push_back(std::move(one));
      continue;
    }
    same->explains.insert(same->explains.end(), one.explains.begin(), one.explains.end());
    same->fault.ops.insert(same->fault.ops.end(), one.fault.ops.begin(), one.fault.ops.end());
  }
  found = std::move(merged);
}

}  // namespace nanscope
