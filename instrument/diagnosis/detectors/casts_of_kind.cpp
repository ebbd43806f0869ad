#include "instrument/diagnosis/detectors/casts_of_kind.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace nanscope {
namespace {

// Of the largest code that delayed scaling aims at: 0.5 to 1 are in use (Transformer Engine's margin is a power of 2).
// A scale that is rounded up to a power of 2 halves it at most, and the history and the scale may be dumped in bf16.
constexpr double kLeastMargin = 0.25 * (1 - 0x1p-7);
constexpr double kMostMargin = 1 + 0x1p-7;

bool derived(double history, double scale, Format format) {
  const double margin = history / (scale * double{info(format).max_finite});
  return margin >= kLeastMargin && margin <= kMostMargin;
}

/// Those of several sequences' casts have a number behind their name.
std::string_view without_number(std::string_view name) {
  const std::size_t end = name.find_last_not_of("0123456789");
  return end != std::string_view::npos && end + 1 < name.size() && name[end] == '_' ? name.substr(0, end) : name;
}

bool same_place(Survey& survey, const Cast& a, const Cast& b) {
  if (a.layer != b.layer || a.target != b.target) return false;
  if (a.target != "x") return true;
  return without_number(survey.run().op(a.op)->name) == without_number(survey.run().op(b.op)->name);
}

/// Whether the scales of a place are all computed from earlier values, and never from the same for long.
bool always_of_the_past(Survey& survey, const Cast& cast) {
  std::set<StepId> steps;
  bool began_without = false;
  for (const Cast& other : survey.casts) {
    const ScaleRow* row = other.ledger;
    if (row == nullptr || !same_place(survey, other, cast)) continue;
    began_without = began_without || row->source == ScaleSource::fixed;
    if (row->source != ScaleSource::calibrated) continue;
    if (row->locked || row->calibrated_step == row->step) return false;
    steps.insert(row->calibrated_step);
  }
  // The same for long is a scale that is kept; but one that had nothing to follow at first follows what came then.
  return steps.size() > 1 || (began_without && !steps.empty());
}

}  // namespace

bool same_lane(Survey& survey, const Cast& a, const Cast& b) {
  const Step* x = survey.run().step(a.step);
  const Step* y = survey.run().step(b.step);
  return x != nullptr && y != nullptr && x->rank == y->rank;
}

std::string request_name(Survey& survey, StepId step) {
  const Step* found = survey.run().step(step);
  if (found == nullptr) return "an earlier step";
  std::string name = found->pass.empty() ? request_text(*found) : found->pass;
  std::replace(name.begin(), name.end(), '|', ' ');
  name.erase(0, name.find_first_not_of(' '));
  return name.empty() ? request_text(*found) : name;
}

std::optional<History> history_of(Survey& survey, const Cast& cast) {
  RunView& run = survey.run();
  const Op* op = run.op(cast.op);
  if (op == nullptr || !cast.grid || (cast.ledger == nullptr && !cast.grid->single())) return std::nullopt;
  History history;
  if (const Tensor* dumped = run.input(*op, "amax_history")) {
    history.largest = double{dumped->health.absmax};
    history.from = survey.facts.name_of(*dumped);
    history.holds_bad = dumped->health.bad() > 0;
    return history.holds_bad || derived(history.largest, cast.grid->first(), cast.format) ? std::optional(history)
                                                                                          : std::nullopt;
  }
  if (cast.ledger != nullptr) {
    if (!always_of_the_past(survey, cast)) return std::nullopt;
    history.largest = cast.ledger->calibrated_absmax;
    history.from = cast.ledger->calibrated_step < 0 ? "the start of a history that has seen nothing"
                                                    : request_name(survey, cast.ledger->calibrated_step);
    return history;
  }
  // A scale that never moved is a locked one, not one that follows a history.
  bool moved = false;
  for (const Cast& then : survey.casts) {
    if (then.step >= cast.step) break;
    if (then.target != cast.target || then.layer != cast.layer || run.op(then.op)->name != op->name ||
        !same_lane(survey, then, cast))
      continue;
    moved = moved || (then.grid && then.grid->single() && then.grid->first() != cast.grid->first());
    if (then.absmax <= history.largest) continue;
    history.largest = then.absmax;
    history.from = request_name(survey, then.step);
  }
  const bool follows = moved && history.largest > 0 && derived(history.largest, cast.grid->first(), cast.format);
  return follows ? std::optional(history) : std::nullopt;
}

bool is_delayed(Survey& survey, const Cast& cast) { return history_of(survey, cast).has_value(); }

void add_cast_evidence(Finding& finding, const Cast& cast) {
  auto& evidence = finding.fault.evidence;
  if (find(evidence, "scale") == nullptr && cast.grid) evidence.push_back({"scale", cast.telling_scale()});
  if (cast.has_source()) {
    evidence.push_back({"absmax", cast.absmax});
    evidence.push_back({"headroom", cast.headroom()});
    evidence.push_back({"clipped", cast.clipped});
    evidence.push_back({"clip_error", cast.clip_error});
  } else {
    evidence.push_back({"at_top", cast.top});
    evidence.push_back({"share_at_top", cast.share(cast.top)});
  }
  evidence.push_back({"elements", cast.elements});
  evidence.push_back({"largest_finite", double{info(cast.format).max_finite}});
  evidence.push_back({"format", std::string(name(cast.format))});
}

}  // namespace nanscope
