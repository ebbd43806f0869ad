#include <fmt/format.h>

#include <algorithm>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"

namespace nanscope {
namespace {

struct Fallen {
  std::vector<std::int64_t> rows;  ///< of the logits
  std::int64_t token = -1;         ///< that was chosen
};

/// Rows of NaN that a token was chosen from.
Fallen fallen_of(Survey& survey, const Op& op, const Tensor& logits) {
  Fallen found;
  const Tensor* chosen = survey.run().result(op);
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

}  // namespace

/// A token chosen from a row of NaN: the index is what the search for the largest started with.
Findings detect_argmax_nan_fallback(Survey& survey) {
  Findings out;
  std::int64_t looked_at = 0;
  for (const Op* op : survey.ops(OpKind::argmax)) {
    const Tensor* logits = survey.run().input(*op, "logits");
    for (const std::string_view role : {"probs", "x"}) {
      if (logits == nullptr) logits = survey.run().input(*op, role);
    }
    if (logits == nullptr || !logits->known) continue;
    ++looked_at;
    if (logits->health.nan == 0) continue;
    const Fallen fallen = fallen_of(survey, *op, *logits);
    if (fallen.rows.empty()) continue;
    Finding finding = finding_at(survey, *logits, fallen.rows);
    finding.fault.ops = {op->id};
    finding.certainty = kUnlikely + 1;
    finding.fault.evidence = {{"rows", static_cast<std::int64_t>(fallen.rows.size())}};
    if (fallen.token >= 0) finding.fault.evidence.push_back({"token", fallen.token});
    for (std::size_t i = 0; i < survey.births.size(); ++i) {
      if (survey.births[i].tensor == logits->id) finding.explains.push_back({Symptom::Kind::birth, i});
    }
    finding.fault.summary = fmt::format(
        "{} of {} {} NaN throughout, and {} chosen all the same: comparing with NaN is never true, so the "
        "index stays what the search started with",
        counted(fallen.rows.size(), "row"), finding.fault.tensor, fallen.rows.size() == 1 ? "is" : "are",
        fallen.token >= 0 ? fmt::format("token {} is", fallen.token) : std::string("a token is"));
    finding.fault.fix = "fail the request when its logits are NaN instead of sampling from them";
    out.found.push_back(std::move(finding));
  }
  merge_alike(out.found);
  if (looked_at == 0) {
    out.not_in_dump("no chosen token was dumped with its logits");
  } else {
    out.excluded(fmt::format("no token of {} is chosen from a row of NaN", counted(looked_at, "choice")));
  }
  return out;
}

}  // namespace nanscope
