#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "core/dump/detectors/detector.h"
#include "core/dump/variance.h"

namespace nanscope::dump_detectors {
namespace {

struct Collapse {
  std::vector<std::int64_t> rows;
  std::int64_t first = -1;
  double exact = 0;           ///< two-pass variance of the first
  OnePassVariances one_pass;  ///< of the first
  double mean = 0;
  std::int64_t distinct = 0;  ///< values in the first row
};

std::int64_t distinct_values(std::span<const float> row) {
  std::vector<float> sorted(row.begin(), row.end());
  std::sort(sorted.begin(), sorted.end());
  return std::unique(sorted.begin(), sorted.end()) - sorted.begin();
}

/// Rows of a norm that are bad though their input is finite, and whose variance the rounding of one pass can make
/// zero or less.
Collapse collapsed_rows(DumpFacts& facts, const Birth& birth, TensorIndex input) {
  Collapse found;
  const auto values = facts.values(input);
  if (!values) return found;
  const auto channels = static_cast<std::size_t>(facts.tensor(input).channels());
  for (const std::int64_t row : birth.rows) {
    const auto x = std::span(*values).subspan(static_cast<std::size_t>(row) * channels, channels);
    if (!std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); })) continue;
    const double exact = two_pass_variance(x);
    const OnePassVariances forms = one_pass_variances(x);
    if (forms.lowest.value > 0 && exact > one_pass_error(x)) continue;
    found.rows.push_back(row);
    if (found.first >= 0) continue;
    found.first = row;
    found.exact = exact;
    found.one_pass = forms;
    for (const float v : x) found.mean += double{v} / static_cast<double>(channels);
    found.distinct = distinct_values(x);
  }
  return found;
}

}  // namespace

/// E[x^2] - E[x]^2 (+ eps) at or below zero: the square root has no value, and the row becomes NaN. A norm that
/// works in two passes cannot fail so, which is the proof of the form that the server used.
DumpReport detect_variance_collapse(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  std::size_t norms = 0;
  for (const Birth& birth : facts.births()) {
    const DumpTensor& out = facts.tensor(birth.tensor);
    if (out.at.kind != ModuleKind::norm || out.at.port != Port::output || explained.has(birth.tensor)) continue;
    ++norms;
    for (const TensorIndex input : birth.inputs) {
      const DumpTensor& x = facts.tensor(input);
      if (is_parameter(x) || x.rows() != out.rows() || x.channels() != out.channels()) continue;
      const Collapse found = collapsed_rows(facts, birth, input);
      if (found.rows.empty()) continue;
      DumpFinding finding = finding_at(facts, input, {birth.tensor}, found.rows);
      finding.fault.evidence = {{"rows", static_cast<std::int64_t>(found.rows.size())},
                                {"mean", found.mean},
                                {"distinct_values", found.distinct},
                                {"variance_two_pass", found.exact},
                                {"variance_one_pass_lowest", double{found.one_pass.lowest.value}},
                                {"order_of_lowest", std::string(found.one_pass.lowest.name)},
                                {"variance_one_pass_highest", double{found.one_pass.highest.value}}};
      finding.fault.summary = fmt::format(
          "row {} of {} is finite with {} distinct values around {:.6g}: in two passes its variance is {:.3g}, in "
          "one pass it is {:.3g} ({}), and the norm's output is NaN",
          found.first, x.name, found.distinct, found.mean, found.exact, found.one_pass.lowest.value,
          found.one_pass.lowest.name);
      finding.fault.fix = "compute the variance in two passes or with Welford's form, or clamp it at 0 before eps";
      finding.fault.breaks = true;
      report.findings.push_back(std::move(finding));
      break;
    }
  }
  report.figure =
      fmt::format("{} of {} norms that made NaN of finite rows did so from a variance within rounding of zero",
                  report.findings.size(), norms);
  return report;
}

}  // namespace nanscope::dump_detectors
