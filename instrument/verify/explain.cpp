#include "instrument/verify/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "instrument/verify/linear_change.h"

namespace nanscope {
namespace {

constexpr std::size_t kBadRows = 48;     ///< that alternatives are tried on
constexpr std::int64_t kOtherRows = 16;  ///< and of the others

/// An op and the output that is of interest.
struct Place {
  const Op* op = nullptr;
  const Tensor* out = nullptr;
};

/// Ops before one whose outputs were not dumped, the nearest first.
void gather_behind(RunView& run, const Op& op, std::vector<Place>& places, std::set<OpId>& seen, int depth) {
  constexpr int kDeepest = 6;
  if (depth > kDeepest) return;
  for (const Input& input : op.inputs) {
    const Tensor* in = run.tensor(input.tensor);
    const Op* maker = in != nullptr && !in->known ? run.maker(*in) : nullptr;
    if (maker == nullptr || recipe_of(maker->kind) == nullptr || !seen.insert(maker->id).second) continue;
    places.push_back({maker, in});
    gather_behind(run, *maker, places, seen, depth + 1);
  }
}

std::vector<std::int64_t> rows_to_try(const Recomputed& result, std::int64_t tokens) {
  std::set<std::int64_t> rows;
  const std::size_t bad = result.bad_rows.size();
  const std::size_t wanted = std::min(bad, kBadRows);
  for (std::size_t i = 0; i < wanted; ++i) rows.insert(result.bad_rows[i * bad / wanted]);
  for (std::int64_t i = 0; i < std::min(kOtherRows, tokens); ++i)
    rows.insert(i * tokens / std::min(kOtherRows, tokens));
  return {rows.begin(), rows.end()};
}

class Trials {
 public:
  Trials(Recomputer& recomputer, const ModelForms& model, const Recomputed& result)
      : recomputer_(recomputer),
        model_(model),
        run_(recomputer.facts().run),
        own_{run_.op(result.op), run_.tensor(result.tensor)},
        form_(result.form),
        rows_(rows_to_try(result, own_.out->tokens)) {
    std::set<OpId> seen{result.op};
    gather_behind(run_, *own_.op, behind_, seen, 0);
  }

  std::vector<ExplainedBy> all() {
    own_result_ = judge(form_);
    if (!own_result_) return {};
    for (const Alternative& one : alternatives()) {
      try_own(one);
      try_behind(one);
    }
    std::erase_if(found_, [](const ExplainedBy& one) { return one.log10_chance > kShownByChance; });
    // Of the same distance, the first in the list is the usual one.
    std::stable_sort(found_.begin(), found_.end(), [](const ExplainedBy& a, const ExplainedBy& b) {
      return std::tuple(std::floor(-a.share * 500), std::floor(a.distance * 4)) <
             std::tuple(std::floor(-b.share * 500), std::floor(b.distance * 4));
    });
    return std::move(found_);
  }

 private:
  void keep(const Alternative& one, const OpForm& form, const Op& whose, std::optional<Recomputed> judged) {
    ++tried_in_all_;
    if (!judged || judged->elements == 0 || judged->share() < kComesOut) return;
    // What leaves most of it open explains nothing, nor what would come out so by chance.
    if (2 * judged->elements < own_result_->elements) return;
    measure_chances(*own_result_, {&*judged, 1}, tried_in_all_);
    const double distance = std::sqrt(judged->squares / static_cast<double>(judged->elements));
    found_.push_back({std::string(one.name), form.text, whose.name, judged->share(), distance, judged->log10_chance});
  }

  void try_own(const Alternative& one) {
    const TriedOp subject{model_, recomputer_.values(), *own_.op, *own_.out, form_};
    for (const OpForm& form : one.propose(subject)) {
      if (is_new(*own_.op, form)) keep(one, form, *own_.op, judge(form));
    }
  }

  /// Alternatives may propose the same under two names: the first counts.
  bool is_new(const Op& op, const OpForm& form) {
    std::vector<OpForm>& known = tried_[op.id];
    if (std::find(known.begin(), known.end(), form) != known.end()) return false;
    known.push_back(form);
    return true;
  }

  std::optional<Recomputed> judge(const OpForm& form) { return recomputer_.judge(*own_.op, *own_.out, form, rows_); }

  /// The same change of all ops of a kind (queries and keys are rotated alike), then of each alone.
  void try_behind(const Alternative& one) {
    std::vector<std::pair<std::string, std::vector<std::pair<Place, OpForm>>>> changes;
    for (const Place& place : behind_) {
      const TriedOp subject{model_, recomputer_.values(), *place.op, *place.out,
                            recomputer_.form_of(*place.op, *place.out)};
      for (OpForm& form : one.propose(subject)) {
        if (!is_new(*place.op, form)) continue;
        auto at =
            std::find_if(changes.begin(), changes.end(), [&](const auto& change) { return change.first == form.text; });
        if (at == changes.end()) at = changes.insert(changes.end(), {form.text, {}});
        at->second.emplace_back(place, std::move(form));
      }
    }
    for (const auto& [text, parts] : changes) {
      try_together(one, parts);
      for (std::size_t i = 0; parts.size() > 1 && i < parts.size(); ++i) {
        auto alone = parts[i];
        alone.second.text += fmt::format(" in {} alone", alone.first.op->name);
        try_together(one, {alone});
      }
    }
  }

  void try_together(const Alternative& one, const std::vector<std::pair<Place, OpForm>>& parts) {
    for (const auto& [place, form] : parts) recomputer_.assume(*place.op, *place.out, form);
    keep(one, parts.front().second, *parts.front().first.op, judge(form_));
    for (const auto& [place, form] : parts) recomputer_.release(*place.op, *place.out);
  }

  Recomputer& recomputer_;
  const ModelForms& model_;
  RunView& run_;
  Place own_;
  OpForm form_;
  std::vector<std::int64_t> rows_;
  std::vector<Place> behind_;
  std::optional<Recomputed> own_result_;  ///< under the model's form
  std::size_t tried_in_all_ = 0;
  std::map<OpId, std::vector<OpForm>> tried_;
  std::vector<ExplainedBy> found_;
};

}  // namespace

std::vector<ExplainedBy> explain(Recomputer& recomputer, const ModelForms& model, const Recomputed& result) {
  std::vector<ExplainedBy> found = Trials(recomputer, model, result).all();
  if (!found.empty()) return found;
  if (auto change = linear_change(recomputer, result)) found.push_back(std::move(*change));
  return found;
}

}  // namespace nanscope
