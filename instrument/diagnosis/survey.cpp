#include "instrument/diagnosis/survey.h"

#include <algorithm>

#include "instrument/recompute/formats.h"

namespace nanscope {
namespace {

constexpr int kMostTried = 64;      ///< outputs that alternatives are tried on
constexpr double kComesOut = 0.99;  ///< share of elements that an explanation leaves none but rounding of

}  // namespace

const Recomputed* Deviation::explanation() const {
  return !alternatives.empty() && alternatives.front().share() >= kComesOut ? &alternatives.front() : nullptr;
}

const Recomputed* Deviation::rival() const {
  const Recomputed* best = explanation();
  if (best == nullptr) return nullptr;
  const auto found = std::find_if(alternatives.begin() + 1, alternatives.end(), [&](const Recomputed& other) {
    return other.share() >= best->share() - 0.002 && other.form.text != best->form.text;
  });
  return found == alternatives.end() ? nullptr : &*found;
}

std::vector<const Op*> Survey::ops(OpKind kind) {
  std::vector<const Op*> found;
  for (const Step& step : run().steps()) {
    for (const Op& op : run().content(step.id).ops) {
      if (op.kind == kind) found.push_back(&op);
    }
  }
  return found;
}

Survey survey_of(Facts& facts, Recomputer& recomputer, bool recompute) {
  settle_formats(recomputer);
  Survey survey{facts, recomputer, {}, {}, false, {}, {}, recompute, 0, {}};
  Births births = births_of(facts);
  survey.births = std::move(births.all);
  survey.birth_steps = std::move(births.steps);
  survey.births_cut = births.cut;
  std::erase_if(survey.births, [](const Birth& birth) { return !birth.matters; });
  survey.casts = casts_of(recomputer.values());
  if (!recompute) return survey;
  std::vector<StepId> steps;
  for (const Step& step : facts.run.steps()) steps.push_back(step.id);
  recomputer.run(steps);
  survey.recomputed = recomputer.results().size();
  int tried = 0;
  int tried_in_vain = 0;  // of ops that are not understood, which may be most of a dump
  for (const Recomputed& result : recomputer.results()) {
    if (!deviates(result)) continue;
    const Op& op = *facts.run.op(result.op);
    const Tensor& tensor = *facts.run.tensor(result.tensor);
    Deviation found{op.id, op.step, result.tensor, result, live_rows(facts, tensor, result.bad_rows), {}};
    if (found.rows.empty()) continue;
    const bool understood = recomputer.understood(op);
    int& of_its_kind = understood ? tried : tried_in_vain;
    if (of_its_kind++ < kMostTried) found.alternatives = recomputer.alternatives(op, tensor, found.rows);
    // An op that comes out nowhere is not understood: only what explains it can accuse it.
    const Recomputed* best = found.explanation();
    if (!understood && (best == nullptr || !best->form.fault)) {
      survey.not_understood.push_back(result.tensor);
      continue;
    }
    survey.deviations.push_back(std::move(found));
  }
  return survey;
}

}  // namespace nanscope
