#include <fmt/format.h>

#include <cmath>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"
#include "instrument/recompute/bounds.h"

namespace nanscope {
namespace {

/// Mean and variance of a row in two passes, in double.
struct RowStatistics {
  double mean = 0;
  double variance = 0;
  bool known = false;
};

RowStatistics statistics_of(Survey& survey, const Op& op, const Tensor& out, std::int64_t row) {
  RowStatistics made;
  const Tensor* x = survey.run().input(op, "x");
  if (x == nullptr) return made;
  const auto from = survey.run().same_row(out, row, *x);
  const auto block = from ? survey.values().rows(*x, *from, 1) : std::nullopt;
  if (!block || block->columns == 0) return made;
  for (const float one : block->value) made.mean += double{one};
  made.mean /= static_cast<double>(block->columns);
  for (const float one : block->value) made.variance += (double{one} - made.mean) * (double{one} - made.mean);
  made.variance /= static_cast<double>(block->columns);
  made.known = std::isfinite(made.mean) && std::isfinite(made.variance);
  return made;
}

/// Whether E[x^2] - E[x]^2 can come out at zero or below: what is left of it is less than what rounding E[x^2] loses.
bool cancels(const RowStatistics& row, double u) { return row.variance <= 16 * u * row.mean * row.mean; }

bool subtracts_mean(Survey& survey, const Op& op) {
  const auto* stated = op.get<NormAttributes>();
  if (stated != nullptr && stated->norm) return stated->norm->starts_with("layer");
  return survey.run().input(op, "bias") != nullptr || op.name.find("rms") == std::string::npos;
}

}  // namespace

/// E[x^2] - E[x]^2 (+ eps) at or below zero: the square root has no value, the norm's row becomes NaN.
Findings detect_variance_collapse(Survey& survey) {
  Findings out;
  std::int64_t norms = 0;
  for (const Op* op : survey.ops(OpKind::layer_norm)) norms += survey.run().input(*op, "x") != nullptr ? 1 : 0;
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    const Birth& birth = survey.births[i];
    const Op& op = survey.op(birth);
    if (op.kind != OpKind::layer_norm || birth.rows.empty() || !birth.bad_parameters.empty()) continue;
    const Tensor& tensor = survey.tensor(birth);
    const RowStatistics row = statistics_of(survey, op, tensor, birth.rows.front());
    const Tensor* x = survey.run().input(op, "x");
    const double u = std::max(kF32, x != nullptr && x->format == Format::f16 ? roundoff(Format::f16) : kF32);
    if (!row.known || row.mean == 0 || !cancels(row, u) || !subtracts_mean(survey, op)) continue;
    Finding finding = finding_at(survey, i);
    finding.certainty = kShown;
    const auto* stated = op.get<NormAttributes>();
    finding.fault.evidence = {{"mean", row.mean},
                              {"variance", row.variance},
                              {"lost_by_rounding", u * row.mean * row.mean},
                              {"rows", static_cast<std::int64_t>(birth.rows.size())}};
    if (stated != nullptr && stated->eps) finding.fault.evidence.push_back({"eps", *stated->eps});
    finding.fault.summary = fmt::format(
        "{} of {} {} born NaN: the values of its input lie around {:.4g} with a variance of {:.3g}, less than the "
        "difference of E[x^2] and E[x]^2 keeps, so that it comes out at zero or below and its root has no value",
        counted(birth.rows.size(), "row"), finding.fault.tensor, birth.rows.size() == 1 ? "is" : "are", row.mean,
        row.variance);
    finding.fault.fix = "compute the variance in two passes or with Welford's form, or clamp it at 0 before eps";
    out.found.push_back(std::move(finding));
  }
  merge_alike(out.found);
  if (norms == 0) {
    out.not_in_dump("no norm was dumped with its input");
  } else {
    out.excluded(fmt::format("no row of {} becomes NaN where its variance cancels", counted(norms, "norm")));
  }
  return out;
}

}  // namespace nanscope
