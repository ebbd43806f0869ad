#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"

namespace nanscope {
namespace {

struct Fallen {
  std::vector<std::int64_t> rows;  ///< of the logits
  std::int64_t token = -1;         ///< that was chosen
};

/// Rows of NaN that a token is chosen from; `chosen` is null where it was not dumped.
Fallen fallen_of(Survey& survey, const Tensor* chosen, const Tensor& logits) {
  Fallen found;
  const std::vector<Health>& rows = survey.run().rows(logits);
  const auto tokens = chosen != nullptr && chosen->known && !chosen->stated ? survey.run().values(*chosen) : nullptr;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    const RowToken token = survey.run().token_of(logits, row);
    // Nobody gets the answer of a warm-up.
    if (rows[i].nan == 0 || rows[i].finite() > 0 || token.span == nullptr || token.span->request < 0) continue;
    const auto at = chosen != nullptr ? survey.run().same_row(logits, row, *chosen) : std::nullopt;
    const bool refused =
        tokens && at && *at < static_cast<std::int64_t>(tokens->size()) && (*tokens)[static_cast<std::size_t>(*at)] < 0;
    if (refused) continue;
    if (found.token < 0 && tokens && at && *at < static_cast<std::int64_t>(tokens->size()))
      found.token = static_cast<std::int64_t>((*tokens)[static_cast<std::size_t>(*at)]);
    if (chosen == nullptr || at) found.rows.push_back(row);
  }
  return found;
}

/// Nothing was dumped that the logits are made of: what made them NaN is not known.
bool nothing_before(Survey& survey, const Tensor& logits) {
  const Op* maker = survey.run().maker(logits);
  return maker == nullptr || std::none_of(maker->inputs.begin(), maker->inputs.end(), [&](const Input& one) {
           const Tensor* in = survey.run().tensor(one.tensor);
           return in != nullptr && in->known && one.role != "weight" && one.role != "bias";
         });
}

/// Logits that are all that was dumped of a pass: that they were made wrongly is shown by nothing, and that a token is
/// chosen from them is what logits are for.
std::vector<const Tensor*> lone_logits(Survey& survey) {
  std::vector<const Tensor*> found;
  for (const Step& step : survey.run().steps()) {
    const Tensor* only = nullptr;
    std::size_t computed = 0;
    for (const Tensor& tensor : survey.run().content(step.id).tensors) {
      const Op* maker = survey.run().maker(tensor);
      if (!tensor.known || maker == nullptr || maker->kind == OpKind::parameter) continue;
      ++computed;
      if (tensor.role == "logits") only = &tensor;
    }
    if (only != nullptr && computed == 1) found.push_back(only);
  }
  return found;
}

std::optional<Finding> finding_of(Survey& survey, const Op& op, const Tensor* chosen, const Tensor& logits) {
  if (logits.health.nan == 0) return std::nullopt;
  const Fallen fallen = fallen_of(survey, chosen, logits);
  if (fallen.rows.empty()) return std::nullopt;
  Finding finding = finding_at(survey, logits, fallen.rows);
  finding.fault.ops = {op.id};
  finding.rank = Rank::answer;
  finding.fault.certainty = Certainty::proved;
  finding.fault.evidence = {{"rows", static_cast<std::int64_t>(fallen.rows.size())}};
  if (fallen.token >= 0) finding.fault.evidence.push_back({"token", fallen.token});
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    if (survey.births[i].tensor == logits.id && nothing_before(survey, logits))
      finding.explains.push_back({Symptom::Kind::birth, i});
  }
  finding.fault.summary = fmt::format(
      "{} of {} {} NaN throughout, and {} chosen all the same: comparing with NaN is never true, so the "
      "index stays what the search started with",
      counted(fallen.rows.size(), "row"), finding.fault.tensor, fallen.rows.size() == 1 ? "is" : "are",
      fallen.token >= 0 ? fmt::format("token {} is", fallen.token) : std::string("a token is"));
  finding.fault.fix = "fail the request when its logits are NaN instead of sampling from them";
  return finding;
}

}  // namespace

/// A token chosen from a row of NaN: the index is what the search for the largest started with.
Findings detect_argmax_nan_fallback(Survey& survey) {
  Findings out;
  std::int64_t looked_at = 0;
  std::vector<const Op*> choices = survey.ops(OpKind::argmax);
  for (const Op* draw : survey.ops(OpKind::sample)) choices.push_back(draw);
  for (const Op* op : choices) {
    const Tensor* logits = survey.run().input(*op, "logits");
    for (const std::string_view role : {"probs", "x"}) {
      if (logits == nullptr) logits = survey.run().input(*op, role);
    }
    if (logits == nullptr || !logits->known) continue;
    ++looked_at;
    if (auto finding = finding_of(survey, *op, survey.run().result(*op), *logits))
      out.found.push_back(std::move(*finding));
  }
  for (const Tensor* logits : lone_logits(survey)) {
    ++looked_at;
    if (auto finding = finding_of(survey, *survey.run().maker(*logits), nullptr, *logits)) {
      finding->fault.breaks = true;
      finding->fault.fix += ", and dump the layers before them";
      out.found.push_back(std::move(*finding));
    }
  }
  merge_alike(out.found);
  if (looked_at == 0) {
    out.not_in_dump("no chosen token was dumped with its logits");
  } else {
    exclude(out, survey, fmt::format("no token of {} is chosen from a row of NaN", counted(looked_at, "choice")));
  }
  return out;
}

}  // namespace nanscope
