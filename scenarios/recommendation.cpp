#include "scenarios/recommendation.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace nanscope::scenarios {

namespace {

/// Scales from other tokens round other values up and down: the error of the same format differs by so much.
constexpr double kSameError = 1.1;

/// A cache of so much less memory holds a narrower format.
constexpr double kNarrower = 0.75;

/// Whether a change stores less of each number than was recorded: nothing then says what that costs.
bool is_narrower(const Outcome& changed, const Outcome& baseline) {
  return changed.kv_bytes_per_token < kNarrower * baseline.kv_bytes_per_token ||
         changed.activation_bits < baseline.activation_bits;
}

std::vector<const Outcome*> with_effect(const Counterfactuals& counterfactuals, Effect effect) {
  std::vector<const Outcome*> found;
  for (const std::vector<Outcome>* outcomes : {&counterfactuals.singles, &counterfactuals.pairs}) {
    for (const Outcome& outcome : *outcomes) {
      if (outcome.error.empty() && outcome.effect == effect) found.push_back(&outcome);
    }
  }
  return found;
}

const Outcome* cheapest(const std::vector<const Outcome*>& outcomes) {
  return *std::min_element(outcomes.begin(), outcomes.end(),
                           [](const Outcome* a, const Outcome* b) { return cheaper(*a, *b); });
}

const Outcome* most_accurate(const std::vector<const Outcome*>& outcomes) {
  return *std::min_element(outcomes.begin(), outcomes.end(), [](const Outcome* a, const Outcome* b) {
    return a->recorded_accuracy->rms_error < b->recorded_accuracy->rms_error;
  });
}

}  // namespace

std::optional<bool> as_accurate(const Outcome& changed, const Outcome& baseline) {
  if (!changed.recorded_accuracy || !baseline.recorded_accuracy) return std::nullopt;
  const Accuracy& now = *changed.recorded_accuracy;
  const Accuracy& before = *baseline.recorded_accuracy;
  return now.rms_error <= kSameError * before.rms_error && now.top1_agreement >= before.top1_agreement;
}

std::optional<Recommendation> recommend(const Counterfactuals& counterfactuals) {
  Recommendation best;
  const std::vector<const Outcome*> removing = with_effect(counterfactuals, Effect::removes_cause);
  best.removing = removing.size();
  if (removing.empty()) {
    const std::vector<const Outcome*> relieving = with_effect(counterfactuals, Effect::removes_nan);
    if (relieving.empty()) return std::nullopt;
    best.outcome = cheapest(relieving);
    best.basis = Basis::symptom_alone;
    return best;
  }
  std::vector<const Outcome*> accurate;
  std::vector<const Outcome*> measured;
  for (const Outcome* outcome : removing) {
    const std::optional<bool> same = as_accurate(*outcome, counterfactuals.baseline);
    if (same) measured.push_back(outcome);
    if (same.value_or(false)) accurate.push_back(outcome);
  }
  best.accurate = accurate.size();
  if (!accurate.empty()) {
    best.outcome = cheapest(accurate);
  } else if (!measured.empty()) {
    best.basis = Basis::less_accurate;
    best.outcome = most_accurate(measured);
  } else {
    best.basis = Basis::unmeasured;
    std::vector<const Outcome*> as_wide;
    std::copy_if(removing.begin(), removing.end(), std::back_inserter(as_wide),
                 [&](const Outcome* outcome) { return !is_narrower(*outcome, counterfactuals.baseline); });
    best.outcome = cheapest(as_wide.empty() ? removing : as_wide);
  }
  return best;
}

}  // namespace nanscope::scenarios
