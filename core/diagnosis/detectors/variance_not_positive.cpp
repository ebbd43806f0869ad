#include <fmt/format.h>

#include "core/diagnosis/detectors/births.h"

namespace nanscope {

/// Link 6: a norm computed a variance at or below zero.
Link detect_variance_not_positive(Facts& facts) {
  Link link;
  const NormScan scan = scan_norms(facts);
  if (scan.lowest.empty()) {
    link.state = scan.available ? LinkState::not_reached : LinkState::not_available;
    link.summary = scan.available ? "0 norms were recorded" : "the norms' statistics are not available";
    return link;
  }
  const NormRow& lowest = scan.lowest.front();
  link.where =
      facts.where(lowest.stats, Range{lowest.row, lowest.row}, Range{3 * lowest.group + 1, 3 * lowest.group + 1});
  link.evidence = {{"variance", double{lowest.variance}},
                   {"mean", double{lowest.mean}},
                   {"eps", lowest.eps},
                   {"variance + eps", double{lowest.radicand()}},
                   {"rows at or below zero", scan.not_positive},
                   {"rows looked at", scan.rows}};
  if (scan.not_positive > 0) {
    link.state = LinkState::found;
    link.summary =
        fmt::format("variance {:.6g} at mean {:.6g} ({} of {} rows at or below zero), plus eps {:g} is {:.6g}",
                    lowest.variance, lowest.mean, scan.not_positive, scan.rows, lowest.eps, lowest.radicand());
  } else {
    link.summary = fmt::format("the smallest of {} variances looked at is {:.6g}", scan.rows, lowest.variance);
  }
  return link;
}

}  // namespace nanscope
