#include "scenarios/report/dump_diff_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/counted.h"

namespace nanscope::report {

std::string dump_diff_text(const DumpDiff& diff, const std::string& a, const std::string& b, const Terminal& terminal) {
  std::string text =
      heading(fmt::format("nanscope diff {} {}", printable(a, terminal), printable(b, terminal)), terminal);
  text +=
      paragraph("",
                fmt::format("{} compared: {} equal, {} within rounding, {} beyond it; {} without a partner",
                            counted(diff.compared, "tensor"), diff.equal, diff.rounding, diff.beyond, diff.unmatched),
                terminal) +
      '\n';
  if (diff.same()) return text + paint(terminal, Ink::green, "Nothing but rounding lies between the two.") + '\n';
  const auto first = std::find_if(diff.differences.begin(), diff.differences.end(), [](const DumpDifference& one) {
    return one.kind == DumpDifferenceKind::content || one.kind == DumpDifferenceKind::not_finite;
  });
  if (first != diff.differences.end()) text += paragraph("Diverges  ", printable(first->summary, terminal), terminal);
  bool led = false;
  for (auto it = diff.differences.begin(); it != diff.differences.end(); ++it) {
    if (it == first) continue;
    text += paragraph(led ? "          " : "Also      ", printable(it->summary, terminal), terminal);
    led = true;
  }
  return text;
}

}  // namespace nanscope::report
