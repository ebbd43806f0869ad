#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"

namespace nanscope {
namespace {

/// What the router had for the row: the weights before they were divided, or what it chose by.
std::optional<double> sum_before(Survey& survey, const Op& op, const Tensor& out, std::int64_t row) {
  for (const std::string_view role : {"raw", "logits", "x"}) {
    const Tensor* in = survey.run().input(op, role);
    if (in == nullptr || !in->known) continue;
    const auto from = survey.run().same_row(out, row, *in);
    const auto values = from ? survey.run().row_values(*in, *from) : nullptr;
    if (!values || std::any_of(values->begin(), values->end(), [](float x) { return !std::isfinite(x); })) continue;
    double sum = 0;
    for (const float one : *values) sum += double{one};
    return sum;
  }
  return std::nullopt;
}

}  // namespace

/// The weights of the chosen experts sum to zero and are divided by it.
Findings detect_router_cancellation(Survey& survey) {
  Findings out;
  const std::size_t routers = survey.ops(OpKind::route).size();
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    const Birth& birth = survey.births[i];
    const Op& op = survey.op(birth);
    if (op.kind != OpKind::route || birth.rows.empty() || !birth.bad_parameters.empty()) continue;
    const auto sum = sum_before(survey, op, survey.tensor(birth), birth.rows.front());
    Finding finding = finding_at(survey, i);
    finding.rank = sum ? Rank::counted : Rank::resemblance;
    finding.fault.certainty = sum ? Certainty::shown : Certainty::possible;
    finding.fault.evidence = {{"rows", static_cast<std::int64_t>(birth.rows.size())}};
    if (sum) finding.fault.evidence.push_back({"sum", *sum});
    finding.fault.summary = fmt::format(
        "{} of {} {} NaN or Inf though what the router chose by is finite: the chosen weights sum to zero and are "
        "divided by it",
        counted(birth.rows.size(), "row"), finding.fault.tensor, birth.rows.size() == 1 ? "is" : "are");
    finding.fault.fix = "add eps to the sum before dividing, or choose by scores that cannot cancel";
    out.found.push_back(std::move(finding));
  }
  merge_alike(out.found);
  if (routers == 0) {
    out.not_in_dump("no router was dumped");
  } else {
    exclude(out, survey, fmt::format("no weight of {} is NaN or Inf", counted(routers, "router op")));
  }
  return out;
}

}  // namespace nanscope
