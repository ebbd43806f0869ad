#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

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

/// The roundoff of the sums that a norm keeps.
double sums_roundoff(const Tensor* x) {
  return std::max(kF32, x != nullptr && x->format == Format::f16 ? roundoff(Format::f16) : kF32);
}

/// The statistics of a row whose variance cancels in sums of a roundoff.
std::optional<RowStatistics> cancelled(Survey& survey, const Op& op, const Tensor& out, std::int64_t row, double u) {
  const RowStatistics found = statistics_of(survey, op, out, row);
  const bool none = !found.known || found.mean == 0 || !subtracts_mean(survey, op);
  return none || !cancels(found, u) ? std::nullopt : std::optional(found);
}

void describe(Survey& survey, Finding& finding, const Op& op, const RowStatistics& row, std::size_t rows,
              std::string_view became) {
  const double u = sums_roundoff(survey.run().input(op, "x"));
  const auto* stated = op.get<NormAttributes>();
  finding.rank = Rank::counted;
  finding.fault.certainty = Certainty::shown;
  finding.fault.evidence = {{"mean", row.mean},
                            {"variance", row.variance},
                            {"lost_by_rounding", u * row.mean * row.mean},
                            {"rows", static_cast<std::int64_t>(rows)}};
  if (stated != nullptr && stated->eps) finding.fault.evidence.push_back({"eps", *stated->eps});
  finding.fault.summary = fmt::format(
      "{} of {} {} {}: the values of its input lie around {:.4g} with a variance of {:.3g}, less than E[x^2] - E[x]^2 "
      "keeps, so that {}",
      counted(rows, "row"), finding.fault.tensor, rows == 1 ? "is" : "are", became, row.mean, row.variance,
      finding.fault.breaks ? "it comes out at zero or below and its root has no value"
                           : "what is left of it is rounding");
  finding.fault.fix = "compute the variance in two passes or with Welford's form, or clamp it at 0 before eps";
}

/// Whether a row is what its norm gives, times a number that a variance off by what a sum of squares loses explains.
bool scaled_by_rounding(Survey& survey, const Op& op, const Tensor& out, std::int64_t row, const RowStatistics& of) {
  const auto expected = survey.recomputer.predict(op, out, survey.recomputer.form_of(op, out), row, 1);
  const auto made = survey.run().row_values(out, row);
  if (!expected || !made || expected->value.size() != made->size()) return false;
  const Tensor* bias = survey.run().input(op, "bias");
  const auto added = bias != nullptr && bias->known ? survey.run().values(*bias) : nullptr;
  double both = 0;
  double square = 0;
  double whole = 0;
  for (std::size_t c = 0; c < made->size(); ++c) {
    const double offset = added && added->size() == made->size() ? double{(*added)[c]} : 0;
    const double own = double{(*made)[c]} - offset;
    const double its = double{expected->value[c]} - offset;
    both += own * its;
    square += its * its;
    whole += own * own;
  }
  const double factor = square > 0 ? both / square : 0;
  // Beside the variance, the mean is off by the rounding of its sum, and each element of the row by its own.
  const double alike = sum_error(std::ssize(*made), kF32) * std::abs(of.mean) / std::sqrt(of.variance) +
                       roundoff(survey.values().precision(out));
  if (!(factor > 0) || !(whole - factor * both <= alike * alike * whole)) return false;
  // Roundings of a sum add up like steps to either side.
  const double lost = 4 * std::sqrt(static_cast<double>(made->size())) * kF32 * of.mean * of.mean;
  return std::abs(of.variance / (factor * factor) - of.variance) <= lost;
}

/// Rows that stayed finite: the difference came out above zero, and by nothing but rounding.
void look_at_deviations(Survey& survey, Findings& out) {
  for (std::size_t i = 0; i < survey.deviations.size(); ++i) {
    const Deviation& deviation = survey.deviations[i];
    const Op& op = *survey.run().op(deviation.op);
    if (op.kind != OpKind::layer_norm) continue;
    const Tensor& tensor = *survey.run().tensor(deviation.tensor);
    std::vector<std::int64_t> rows;
    std::optional<RowStatistics> first;
    for (const std::int64_t row : deviation.rows) {
      const RowStatistics flat = statistics_of(survey, op, tensor, row);
      if (!flat.known || !subtracts_mean(survey, op)) continue;
      if (!cancels(flat, kF32) && !scaled_by_rounding(survey, op, tensor, row, flat)) continue;
      rows.push_back(row);
      if (!first) first = flat;
    }
    if (rows.size() != deviation.rows.size() || !first) continue;
    const Symptom shown{Symptom::Kind::deviation, i};
    const auto born =
        std::find_if(out.found.begin(), out.found.end(), [&](const Finding& one) { return one.tensor == tensor.id; });
    if (born != out.found.end()) {
      born->explains.push_back(shown);
      continue;
    }
    Finding finding = finding_at(survey, tensor, rows);
    finding.explains = {shown};
    describe(survey, finding, op, *first, rows.size(), "far off");
    out.found.push_back(std::move(finding));
  }
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
    const double u = sums_roundoff(survey.run().input(op, "x"));
    const auto row = cancelled(survey, op, survey.tensor(birth), birth.rows.front(), u);
    if (!row) continue;
    Finding finding = finding_at(survey, i);
    describe(survey, finding, op, *row, birth.rows.size(), "born NaN");
    out.found.push_back(std::move(finding));
  }
  look_at_deviations(survey, out);
  merge_alike(out.found);
  if (norms == 0) {
    out.not_in_dump("no norm was dumped with its input");
  } else {
    exclude(out, survey, fmt::format("no row of {} becomes NaN where its variance cancels", counted(norms, "norm")));
  }
  return out;
}

}  // namespace nanscope
