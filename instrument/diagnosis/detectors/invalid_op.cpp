#include <fmt/format.h>

#include <algorithm>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"

namespace nanscope {
namespace {

bool of_zero_row(Survey& survey, const Op& op, const Birth& birth) {
  const Tensor* x = survey.run().input(op, "x");
  if (op.kind != OpKind::layer_norm || x == nullptr || !x->known || birth.rows.empty()) return false;
  const auto from = survey.run().same_row(survey.tensor(birth), birth.rows.front(), *x);
  const std::vector<Health>& rows = survey.run().rows(*x);
  return from && *from < static_cast<std::int64_t>(rows.size()) && rows[static_cast<std::size_t>(*from)].absmax == 0;
}

bool of_temperature(const Op& op) { return op.name.find("scaled_logits") != std::string::npos; }

/// Whether all that an op reads was dumped, as far as its kind says what it reads.
bool reads_known(const Op& op, const Birth& birth) {
  return birth.inputs_known && op.by_name && op.kind != OpKind::dumped && op.kind != OpKind::block;
}

std::string what_happened(Survey& survey, const Op& op, const Birth& birth) {
  const Tensor& out = survey.tensor(birth);
  if (of_zero_row(survey, op, birth)) return "a row of zeros is divided by its own length";
  if (of_temperature(op)) return "the logits are divided by a temperature of zero";
  const Step* step = survey.run().step(out.step);
  const bool padding =
      step != nullptr && !step->spans.empty() && !birth.rows.empty() &&
      std::none_of(birth.rows.begin(), birth.rows.end(), [&](std::int64_t row) { return survey.facts.live(out, row); });
  const std::string rows = padding ? "they are padding rows; " : "";
  if (!reads_known(op, birth))
    return rows + (birth.inputs_known ? "its dumped inputs are finite, and what else it reads is not known"
                                      : "no dumped tensor before it holds one in these rows");
  const bool weightless = op.kind == OpKind::gemm && survey.run().input(op, "weight") == nullptr;
  if (weightless) return rows + "its input is finite, and its weight was not dumped";
  if (out.health.nan == 0) return rows + "a finite computation left the range of the format";
  return rows + "its inputs are finite";
}

/// Only where the division is seen is an eps its remedy.
std::string fix_of(Survey& survey, const Op& op, const Birth& birth) {
  if (of_zero_row(survey, op, birth)) return "add eps to the variance, or skip rows of zeros";
  if (of_temperature(op)) return "choose the largest logit where the temperature is 0, and divide by it elsewhere only";
  if (survey.tensor(birth).axis == Axis::slots && !birth.inputs_known)
    return op.kind == OpKind::kv_store
               ? "dump K and V of this step, and diagnose again"
               : "dump slot mappings and block tables, and K and V of each step, and diagnose again";
  if (!reads_known(op, birth)) return "dump the inputs and the weights of this module, and diagnose again";
  if (op.kind == OpKind::gemm && survey.run().input(op, "weight") == nullptr)
    return "look for NaN and Inf in its weight: nanscope verify DUMP --model DIR";
  return "run the op again on the dumped inputs; where they give finite numbers, look for memory that was read and "
         "never written";
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
  // Slots of a cache that is read may be older than the step; what a step stores lies in its own.
  if (survey.tensor(birth).axis == Axis::slots && !birth.inputs_known) {
    const std::string held = fmt::format("{} of {} hold {}", counted(birth.rows.size(), "slot"), tensor,
                                         what_is_held(survey.tensor(birth).health));
    return held + (op.kind == OpKind::kv_store ? "; this step wrote them, and what it wrote was not dumped"
                                               : ", and what was dumped does not say which step wrote them");
  }
  return fmt::format("{} {} born NaN or Inf in {}: {}{}", rows_text(birth, tensor),
                     birth.rows.size() == 1 ? "is" : "are", op.name, what_happened(survey, op, birth),
                     birth.inputs_known ? "" : "; some of its inputs were not dumped");
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
    finding.rank = Rank::unexplained;
    finding.fault.certainty = birth.inputs_known ? Certainty::proved : Certainty::possible;
    finding.fault.evidence = evidence_of(survey.tensor(birth), birth);
    finding.fault.summary = summary_of(survey, op, birth, finding.fault.tensor);
    finding.fault.fix = fix_of(survey, op, birth);
    out.found.push_back(std::move(finding));
  }
  merge_alike(out.found);
  exclude(out, survey, "no NaN or Inf is made of finite values in a row of a request");
  return out;
}

}  // namespace nanscope
