#include <fmt/format.h>

#include <cmath>

#include "core/diagnosis/detectors/births.h"

namespace nanscope {

/// Link 7: 1/sqrt(variance + eps) is NaN while the norm's input, mean and variance are finite.
Link detect_nan_in_root(Facts& facts) {
  Link link;
  const SickOp* birth = first_norm_birth(facts);
  if (birth == nullptr) {
    const NormScan scan = scan_norms(facts);
    if (scan.lowest.empty()) {
      link.state = scan.available ? LinkState::not_reached : LinkState::not_available;
      link.summary = "0 norms made NaN of a finite row";
      return link;
    }
    const NormRow& lowest = scan.lowest.front();
    link.where =
        facts.where(lowest.stats, Range{lowest.row, lowest.row}, Range{3 * lowest.group + 2, 3 * lowest.group + 2});
    link.evidence = {{"variance + eps", double{lowest.radicand()}}, {"1/sqrt(variance + eps)", double{lowest.root}}};
    link.summary =
        fmt::format("0 norms made NaN of a finite row: the smallest root is taken of {:.6g}", lowest.radicand());
    return link;
  }
  const TensorRow* out = birth->output("out");
  const TensorRow& tensor = out != nullptr ? *out : birth->bad_output();
  for (const NormRow& row : norm_rows(facts, birth->op)) {
    if (!std::isfinite(row.mean) || !std::isfinite(row.variance) || !std::isnan(row.root)) continue;
    link.state = LinkState::found;
    link.where = facts.where(row.stats, Range{row.row, row.row}, Range{3 * row.group + 2, 3 * row.group + 2});
    link.evidence = {{"mean", double{row.mean}},
                     {"variance", double{row.variance}},
                     {"eps", row.eps},
                     {"variance + eps", double{row.radicand()}},
                     {"1/sqrt(variance + eps)", double{row.root}},
                     {"rows born NaN", static_cast<std::int64_t>(birth->newborn.size())},
                     {"rows", tensor.tokens}};
    link.summary = fmt::format("{} of {} rows of {} are born NaN: its input is finite, sqrt({:.6g}) has no value",
                               birth->newborn.size(), tensor.tokens, birth->op.name, row.radicand());
    return link;
  }
  link.where = facts.where(tensor, birth->newborn);
  link.state = norm_rows(facts, birth->op).empty() ? LinkState::not_available : LinkState::not_reached;
  link.summary = link.state == LinkState::not_available
                     ? "a norm made NaN of a finite row, its statistics are not available"
                     : "a norm made NaN of a finite row, but not in its root";
  return link;
}

}  // namespace nanscope
