#include "core/run/ranks.h"

#include <algorithm>
#include <iterator>
#include <span>

namespace nanscope {
namespace {

std::string without_rank(const std::string& pass) { return pass.substr(0, pass.find("|rank")); }

}  // namespace

std::int64_t rank_of(RunView& run, StepId step) {
  const Step* found = run.step(step);
  return found != nullptr ? found->rank : 0;
}

StepsOfRanks::StepsOfRanks(RunView& run) {
  const std::span<const Step> all = run.steps();
  several_ = std::any_of(all.begin(), all.end(), [&](const Step& step) { return step.rank != all.front().rank; });
  if (!several_) return;
  for (const Step& step : all) steps_[key_of(step)].push_back(&step);
}

StepsOfRanks::Key StepsOfRanks::key_of(const Step& step) {
  return {step.run, step.request(), step.index(), step.rows, without_rank(step.pass)};
}

std::vector<const Step*> StepsOfRanks::others(const Step& step) const {
  std::vector<const Step*> found;
  const auto same = several_ ? steps_.find(key_of(step)) : steps_.end();
  if (same == steps_.end()) return found;
  std::copy_if(same->second.begin(), same->second.end(), std::back_inserter(found),
               [&](const Step* other) { return other->rank != step.rank; });
  return found;
}

Moment StepsOfRanks::moment_of(RunView& run, OpId id) const {
  if (!several_) return {kBeforeSteps, id, 0};
  const Op* op = run.op(id);
  const Step* step = op != nullptr ? run.step(op->step) : nullptr;
  if (step == nullptr) return {kBeforeSteps, id, 0};
  StepId pass = step->id;
  for (const Step* other : others(*step)) pass = std::min(pass, other->id);
  return {pass, id - run.content(step->id).ops.front().id, step->rank};
}

std::vector<const Tensor*> StepsOfRanks::other_parts(RunView& run, const Op& op) const {
  std::vector<const Tensor*> parts;
  const Step* step = op.kind == OpKind::all_reduce ? run.step(op.step) : nullptr;
  if (step == nullptr) return parts;
  for (const Step* other : others(*step)) {
    const Op* same = run.find_op(other->id, op.layer, op.name);
    const Tensor* x = same != nullptr && same->kind == op.kind ? run.input(*same, "x") : nullptr;
    if (x != nullptr) parts.push_back(x);
  }
  return parts;
}

}  // namespace nanscope
