#include <fmt/format.h>

#include <algorithm>

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
  const bool padding = !birth.rows.empty() && std::none_of(birth.rows.begin(), birth.rows.end(), [&](std::int64_t row) {
    return survey.facts.live(out, row);
  });
  if (padding) return "they pad the step and are nobody's, and all that they see is finite";
  if (out.health.nan == 0) return "a finite computation left the range of the format";
  return "what it was made of is finite";
}

/// "NaN", "NaN and Inf": what the producer measured, without how many.
std::string_view what_is_held(const Health& health) {
  const bool infinite = health.pos_inf + health.neg_inf > 0;
  if (health.nan > 0) return infinite ? "NaN and Inf" : "NaN";
  return health.neg_inf == 0 ? "+Inf" : health.pos_inf == 0 ? "-Inf" : "Inf of both signs";
}

std::string summary_of(Survey& survey, const Op& op, const Birth& birth, const std::string& tensor) {
  if (birth.rows.empty()) {
    return fmt::format("{} holds {}, and what goes in {}", tensor, what_is_held(survey.tensor(birth).health),
                       birth.inputs_known ? "is finite" : "was not dumped as a whole");
  }
  return fmt::format("{} {} born NaN or Inf in {}: {}{}", rows_text(birth, tensor),
                     birth.rows.size() == 1 ? "is" : "are", op.name, what_happened(survey, op, birth),
                     birth.inputs_known ? "" : "; some of what it was made of was not dumped");
}

/// Counts of what was measured by the producer say that there is one and not how many.
std::vector<Evidence> evidence_of(const Tensor& out, const Birth& birth) {
  const auto nan = static_cast<std::int64_t>(out.health.nan);
  const auto inf = static_cast<std::int64_t>(out.health.pos_inf + out.health.neg_inf);
  std::vector<Evidence> evidence;
  if (!birth.rows.empty()) evidence.push_back({"rows", static_cast<std::int64_t>(birth.rows.size())});
  if (out.stated) {
    evidence.insert(evidence.end(), {{"nan_at_least", nan}, {"inf_at_least", inf}});
  } else {
    evidence.insert(evidence.end(), {{"nan", nan}, {"inf", inf}});
  }
  evidence.push_back({"inputs_known", std::int64_t{birth.inputs_known ? 1 : 0}});
  return evidence;
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
    finding.fault.evidence = evidence_of(survey.tensor(birth), birth);
    finding.fault.summary = summary_of(survey, op, birth, finding.fault.tensor);
    finding.fault.fix = "guard the operation: add eps to the divisor, clamp the argument, or skip empty rows";
    out.found.push_back(std::move(finding));
  }
  merge_alike(out.found);
  exclude(out, survey, "no NaN or Inf is made of finite values in a row of somebody");
  return out;
}

}  // namespace nanscope
