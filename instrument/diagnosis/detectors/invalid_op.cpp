#include <fmt/format.h>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"

namespace nanscope {
namespace {

std::string what_happened(Survey& survey, const Op& op, const Birth& birth) {
  const Tensor& out = survey.tensor(birth);
  const Tensor* x = survey.run().input(op, op.kind == OpKind::token_softmax ? "logits" : "x");
  const bool zero_row = [&] {
    if (x == nullptr || !x->known || birth.rows.empty()) return false;
    const auto from = survey.run().same_row(out, birth.rows.front(), *x);
    const std::vector<Health>& rows = survey.run().rows(*x);
    return from && *from < static_cast<std::int64_t>(rows.size()) && rows[static_cast<std::size_t>(*from)].absmax == 0;
  }();
  if (op.kind == OpKind::layer_norm && zero_row) return "a row of zeros is divided by its own length";
  if (op.name.find("scaled_logits") != std::string::npos) return "the logits are divided by a temperature of zero";
  if (out.health.nan == 0) return "a finite computation left the range of the format";
  return "what it was made of is finite";
}

}  // namespace

/// NaN or Inf made of finite values, for which no other class has an explanation.
Findings detect_invalid_op(Survey& survey) {
  Findings out;
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    const Birth& birth = survey.births[i];
    const Op& op = survey.op(birth);
    Finding finding = finding_at(survey, i);
    finding.certainty = kFallback;
    finding.fault.evidence = {
        {"rows", static_cast<std::int64_t>(birth.rows.size())},
        {"nan", static_cast<std::int64_t>(survey.tensor(birth).health.nan)},
        {"inf", static_cast<std::int64_t>(survey.tensor(birth).health.pos_inf + survey.tensor(birth).health.neg_inf)},
        {"inputs_known", std::int64_t{birth.inputs_known ? 1 : 0}}};
    finding.fault.summary =
        fmt::format("{} of {} {} born NaN or Inf in {}: {}{}", counted(birth.rows.size(), "row"), finding.fault.tensor,
                    birth.rows.size() == 1 ? "is" : "are", op.name, what_happened(survey, op, birth),
                    birth.inputs_known ? "" : "; some of what it was made of was not dumped");
    finding.fault.fix = "guard the operation: add eps to the divisor, clamp the argument, or skip empty rows";
    out.found.push_back(std::move(finding));
  }
  merge_alike(out.found);
  out.excluded("no NaN or Inf is made of finite values in a row of somebody");
  return out;
}

}  // namespace nanscope
