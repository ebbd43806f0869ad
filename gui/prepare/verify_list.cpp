#include "gui/prepare/verify_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/counted.h"
#include "scenarios/report/verify_words.h"

namespace nanscope::gui {
namespace {

std::string place_words(const VerifiedOutput& one) {
  std::string words = one.layer ? fmt::format("layer {} ", *one.layer) : std::string();
  words += one.op;
  if (!one.role.empty() && one.role != "out") words += '.' + one.role;
  if (one.kind == "weight") return words + " weight";
  return one.step > 0 ? fmt::format("{}, step {}", words, one.step) : words;
}

VerifyRow row_of(const VerifiedOutput& one, std::size_t index) {
  VerifyRow row;
  row.index = index;
  row.place = place_words(one);
  const double worst = worst_distance(one);
  row.cell = one.not_finite.empty() ? error_cell(worst) : kErrorNotFinite;
  row.furthest = std::isfinite(worst) ? fmt::format("{:.4g}", worst) : std::string("\u221E");
  const std::int64_t beyond = one.elements - one.explained;
  row.beyond = one.elements < 100'000
                   ? fmt::format("{} of {}", beyond, one.elements)
                   : fmt::format("{:.3g} %", 100 * static_cast<double>(beyond) / static_cast<double>(one.elements));
  if (one.off) row.because = report::verified_because(one);
  row.unexplained = is_unexplained(one);
  return row;
}

bool same_tensor(const Place& a, const Place& b) {
  return a.rank == b.rank && a.request == b.request && a.step == b.step && a.layer == b.layer && a.op == b.op &&
         (a.role == b.role || a.role.empty() || b.role.empty());
}

std::vector<std::string> verdict_of(const ErrorMap& errors) {
  const Findings& findings = *errors.findings;
  std::vector<std::string> lines{errors.words()};
  if (const VerifiedOutput* first = findings.first(); first != nullptr) {
    lines.push_back(fmt::format("First: {}: {}", report::verified_place(*first), report::verified_off(*first)));
    lines.push_back("Because: " + report::verified_because(*first));
  }
  for (const std::string& note : findings.notes) lines.push_back("Note: " + note);
  return lines;
}

}  // namespace

VerifyList make_verify_list(std::shared_ptr<const ErrorMap> errors, VerifyOrder order, const Place& place) {
  VerifyList list;
  list.order = order;
  const Findings& findings = *errors->findings;
  list.of_filter = {findings.off(), findings.checked.size(), findings.not_checked.size()};
  list.verdict = verdict_of(*errors);
  for (std::size_t i = 0; i < findings.checked.size(); ++i) {
    const VerifiedOutput& one = *findings.checked[i];
    const bool here = errors->places[i] && same_tensor(errors->places[i]->place, place);
    if (here && (!list.of || one.off)) list.of = findings.checked[i];
    if (order.which == VerifyFilter::all || (order.which == VerifyFilter::off && one.off))
      list.rows.push_back(row_of(one, i));
  }
  for (std::size_t i = 0; order.which == VerifyFilter::not_checked && i < findings.not_checked.size(); ++i) {
    const NotChecked& one = *findings.not_checked[i];
    list.rows.push_back({i, one.name, kErrorNotChecked, "", "", one.reason, false});
  }
  if (order.furthest_first && order.which != VerifyFilter::not_checked) {
    std::stable_sort(list.rows.begin(), list.rows.end(), [&](const VerifyRow& a, const VerifyRow& b) {
      return worst_distance(*findings.checked[a.index]) > worst_distance(*findings.checked[b.index]);
    });
  }
  for (std::size_t i = 0; order.which != VerifyFilter::not_checked && i < list.rows.size(); ++i) {
    if (findings.checked[list.rows[i].index] == list.of) list.chosen = i;
  }
  list.errors = std::move(errors);
  return list;
}

}  // namespace nanscope::gui
