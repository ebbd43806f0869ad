#include "instrument/diagnosis/causes.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <vector>

namespace nanscope {
namespace {

/// How a class of fault can be the consequence of another.
enum class Follows : std::uint8_t {
  nothing,  ///< done again from its own inputs it is wrong: whatever came before is not why
  nan,      ///< of NaN or Inf that reaches it
  values,   ///< of values that came out too large, alike or zero
};

Follows follows(std::string_view fault_class) {
  constexpr std::string_view kOfNan[] = {"argmax-nan-fallback", "nan-laundered", "prefix-cache-poison",
                                         "masked-tail-poison", "scale-invalid"};
  constexpr std::string_view kOfValues[] = {"variance-collapse",   "f16-overflow", "fp8-nonsaturating-overflow",
                                            "router-cancellation", "invalid-op",   "saturation",
                                            "softmax-fully-masked"};
  const auto listed = [&](const auto& list) {
    return std::find(std::begin(list), std::end(list), fault_class) != std::end(list);
  };
  return listed(kOfNan) ? Follows::nan : listed(kOfValues) ? Follows::values : Follows::nothing;
}

/// Rows of a tensor that something is made of; empty: all of them.
using Rows = std::set<std::int64_t>;

/// Backwards from a finding, nearest first.
class Walk {
 public:
  Walk(Survey& survey, const StepsOfRanks& ranks, bool bad_only)
      : survey_(survey), run_(survey.run()), ranks_(ranks), bad_only_(bad_only) {}

  /// Calls `visit` with each op on the way; stops when it returns true.
  template <class Visit>
  void from(const Op& op, const Rows& rows, const Visit& visit) {
    enter(op, rows);
    while (!queue_.empty()) {
      const auto [next, at] = queue_.front();
      queue_.pop_front();
      if (visit(*next)) return;
      step_back(*next, at);
    }
  }

 private:
  void enter(const Op& op, const Rows& rows) {
    Rows& known = seen_[op.id];
    const bool first = !visited_.contains(op.id);
    const std::size_t before = known.size();
    known.insert(rows.begin(), rows.end());
    if (!first && known.size() == before) return;
    visited_.insert(op.id);
    queue_.emplace_back(&op, rows);
  }

  void step_back(const Op& op, const Rows& rows) {
    const Tensor* out = run_.result(op);
    std::vector<const Tensor*> inputs = ranks_.other_parts(run_, op);
    for (const Input& input : op.inputs) inputs.push_back(run_.tensor(input.tensor));
    for (const Tensor* in : inputs) {
      const Op* maker = in != nullptr ? run_.maker(*in) : nullptr;
      if (maker == nullptr) continue;
      if (bad_only_ && in->known && !RunView::symptomatic(*in)) continue;
      if (in->axis == Axis::slots || in->axis == Axis::keys) over_the_cache(op, *in);
      Rows from;
      if (by_row(op.kind) && out != nullptr) {
        for (const std::int64_t row : rows) {
          if (const auto same = run_.same_row(*out, row, *in)) from.insert(*same);
        }
      }
      enter(*maker, from);
    }
    if (op.kind == OpKind::kv_read && out != nullptr) over_the_cache(op, *out);
  }

  /// To the stores that filled what is read.
  void over_the_cache(const Op& op, const Tensor& read) {
    const Step* step = run_.step(op.step);
    if (step == nullptr) return;
    for (const Span& span : step->spans) {
      // Behind the context lies the tail of a block, which others wrote.
      const std::int64_t keys = span.context + (read.axis == Axis::keys ? read.tokens : 0);
      for (const KeyRow& key : survey_.facts.cache.key_rows(read, *step, span, keys, op.layer)) {
        if (key.writer == nullptr || !key.slot) continue;
        if (bad_only_ && read.known && !survey_.facts.row_bad(read, key.row)) continue;
        const std::string target = read.role.substr(0, 1);
        const auto stored = survey_.facts.cache.stored_row(*key.writer, *key.slot, op.layer, target);
        const Op* store = stored ? run_.maker(*stored->codes) : run_.find_op(key.writer->step, op.layer, "kv_store");
        if (store != nullptr && store->id != op.id) enter(*store, {});
      }
    }
  }

  Survey& survey_;
  RunView& run_;
  const StepsOfRanks& ranks_;
  bool bad_only_;
  std::map<OpId, Rows> seen_;
  std::set<OpId> visited_;
  std::deque<std::pair<const Op*, Rows>> queue_;
};

std::optional<std::size_t> cause_of(Survey& survey, const StepsOfRanks& ranks, const std::vector<Finding>& findings,
                                    std::size_t index) {
  const Finding& finding = findings[index];
  const Follows kind = follows(finding.fault.fault_class);
  const Op* start = survey.run().op(finding.fault.ops.front());
  if (kind == Follows::nothing || start == nullptr) return std::nullopt;
  const Moment now = ranks.moment_of(survey.run(), start->id);
  std::map<OpId, std::size_t> others;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    if (i == index) continue;
    const bool fits = kind == Follows::values || findings[i].fault.breaks;
    for (const OpId op : findings[i].fault.ops) {
      // In order of execution: what comes behind is no cause.
      if (fits && i < index && (op == start->id || ranks.moment_of(survey.run(), op) < now)) others.emplace(op, i);
    }
  }
  if (others.empty()) return std::nullopt;
  std::optional<std::size_t> cause;
  Walk(survey, ranks, kind == Follows::nan).from(*start, {finding.rows.begin(), finding.rows.end()}, [&](const Op& op) {
    const auto found = others.find(op.id);
    if (found == others.end()) return false;
    cause = found->second;
    return true;
  });
  return cause;
}

}  // namespace

std::vector<std::optional<std::size_t>> causes_of(Survey& survey, const StepsOfRanks& ranks,
                                                  const std::vector<Finding>& findings) {
  std::vector<std::optional<std::size_t>> causes;
  for (std::size_t i = 0; i < findings.size(); ++i) causes.push_back(cause_of(survey, ranks, findings, i));
  return causes;
}

}  // namespace nanscope
