#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/counted.h"
#include "core/run/ranks.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"

namespace nanscope {
namespace {

std::string name_of(std::int64_t request) {
  if (request == kWarmUpRequest) return "the warm-up";
  if (request == kDummyRequest) return "the dummy batch";
  return fmt::format("request {}", request);
}

/// Who left what, and as what: "keys and values of request 0 are", "nothing that was recorded".
std::string left_text(const KvRow* left) {
  if (left == nullptr) return "nothing that was recorded is";
  const bool state = left->writer == kRecurrentState;
  return fmt::format("{} of {} {}", state ? "a recurrent state" : "keys and values", name_of(left->request),
                     state ? "is" : "are");
}

/// The history of each block, by step.
class Blocks {
 public:
  explicit Blocks(RunView& run) {
    for (const KvRow& row : run.kv_history()) by_block_[{rank_of(run, row.step), row.block}].push_back(&row);
  }

  /// The last entry of a block of a rank's pool before a step that `wanted` takes; null when there is none.
  template <class Wanted>
  const KvRow* last(std::int64_t rank, std::int64_t block, StepId before, const Wanted& wanted) const {
    const auto known = by_block_.find({rank, block});
    if (known == by_block_.end()) return nullptr;
    const KvRow* found = nullptr;
    for (const KvRow* row : known->second) {
      if (row->step < before && wanted(*row)) found = row;
    }
    return found;
  }

 private:
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<const KvRow*>> by_block_;  ///< of a rank
};

class Reads {
 public:
  explicit Reads(Survey& survey) : survey_(survey), run_(survey.run()), blocks_(run_) {
    for (const KvRow& row : run_.kv_history()) {
      if (row.action == KvAction::allocated) given_[{row.step, row.request}].push_back(&row);
    }
  }

  /// Blocks that a sequence was given in this very step hold none of its tokens before the step's. What a sequence
  /// wrote before its first step in the run is not known.
  void keys(const Step& step, const Span& span) {
    const bool ran_before = !ran_.emplace(step.rank, span.request).second;
    const auto given = given_.find({step.id, span.request});
    if (span.first_token == 0 || given == given_.end() || !ran_before) return;
    for (const Op& op : run_.content(step.id).ops) {
      const Tensor* read = op.kind == OpKind::kv_read ? run_.result(op) : nullptr;
      if (read == nullptr || run_.token_of(*read, 0).span != &span) continue;
      ++looked_at_;
      add_keys(step, span, *read, given->second);
    }
  }

  /// A sequence goes on from the state that it left itself, in the block that it was given for it.
  void state(const Step& step, const Op& op) {
    const auto* form = op.get<RecurrentAttributes>();
    const Tensor* out = run_.result(op);
    const Span* span = out != nullptr ? run_.token_of(*out, 0).span : nullptr;
    if (form == nullptr || span == nullptr || !form->block || !form->resume.value_or(false)) return;
    ++looked_at_;
    const std::int64_t layer = op.layer.value_or(-1);
    const KvRow* given = blocks_.last(step.rank, *form->block, step.id + 1,
                                      [](const KvRow& row) { return row.action == KvAction::allocated; });
    const KvRow* left = blocks_.last(step.rank, *form->block, step.id, [&](const KvRow& row) {
      return row.action == KvAction::written && (row.writer != kRecurrentState || row.layer == layer);
    });
    const bool own_block = given != nullptr && given->request == span->request && given->writer == kRecurrentState;
    const bool own_state = left != nullptr && left->request == span->request && left->writer == kRecurrentState;
    if (own_block && own_state) return;
    std::string where = fmt::format("block {}", *form->block);
    if (given != nullptr && !own_block) {
      where +=
          fmt::format(", which {} was given for {}", given->request == span->request ? "it" : name_of(given->request),
                      given->writer == kRecurrentState ? "its state" : "keys and values");
    }
    Finding finding = finding_at(survey_, *out);
    finding.fault.evidence = {{"block", *form->block}};
    finding.fault.summary = fmt::format("the recurrent state that {} goes on from in {} lies in {}: {} there",
                                        name_of(span->request), finding.fault.tensor, where, left_text(left));
    finding.fault.fix =
        "start a request from zeros, and take the block of its state from its own row of the table, at the table's "
        "stride";
    add(std::move(finding));
  }

  Findings findings() {
    Findings out;
    out.found = std::move(found_);
    if (given_.empty()) {
      out.not_in_dump("which blocks a sequence was given was not dumped");
    } else {
      out.excluded(
          fmt::format("{} of keys and states begin with what their sequence left itself", counted(looked_at_, "read")));
    }
    return out;
  }

 private:
  void add_keys(const Step& step, const Span& span, const Tensor& read, const std::vector<const KvRow*>& given) {
    std::vector<std::int64_t> rows;
    const KvRow* left = nullptr;
    for (const KvRow* block : given) {
      const std::int64_t end = std::min(span.first_token, block->first_token + block->slot_end - block->slot_begin);
      for (std::int64_t position = block->first_token; position < end; ++position) {
        const auto row = run_.row_at(read, span, position);
        if (row) rows.push_back(*row);
      }
      if (left != nullptr || block->first_token >= end) continue;
      left = blocks_.last(step.rank, block->block, step.id,
                          [](const KvRow& row) { return row.action == KvAction::written; });
    }
    if (rows.empty()) return;
    Finding finding = finding_at(survey_, read, rows);
    finding.fault.evidence = {{"keys", std::ssize(rows)}, {"key", rows.front()}};
    finding.fault.summary =
        fmt::format("{} reads {} of {} from blocks that it was given in this step and has not written: {} there",
                    name_of(span.request), counted(std::ssize(rows), "key"), finding.fault.tensor, left_text(left));
    finding.fault.fix =
        "compute a request's tokens again after it lost its blocks, or bring back what they held before it runs";
    add(std::move(finding));
  }

  /// Once a request: what it reads later follows.
  void add(Finding finding) {
    finding.rank = Rank::counted;
    finding.fault.certainty = Certainty::shown;
    const std::int64_t request = finding.fault.where.request.value_or(0);
    if (!told_.insert(request).second) {
      for (Finding& known : found_) {
        if (known.fault.where.request == finding.fault.where.request) {
          known.fault.ops.insert(known.fault.ops.end(), finding.fault.ops.begin(), finding.fault.ops.end());
        }
      }
      return;
    }
    found_.push_back(std::move(finding));
  }

  Survey& survey_;
  RunView& run_;
  Blocks blocks_;
  std::set<std::pair<std::int64_t, std::int64_t>> ran_;  ///< ranks and requests of the steps so far
  std::map<std::pair<StepId, std::int64_t>, std::vector<const KvRow*>> given_;
  std::set<std::int64_t> told_;
  std::vector<Finding> found_;
  std::size_t looked_at_ = 0;
};

}  // namespace

/// A sequence that reads keys, values or a state which it did not leave there: finite numbers of somebody else.
Findings detect_foreign_cache_read(Survey& survey) {
  Reads reads(survey);
  for (const Step& step : survey.run().steps()) {
    for (const Span& span : step.spans) reads.keys(step, span);
    for (const Op& op : survey.run().content(step.id).ops) {
      if (op.kind == OpKind::recurrent_scan) reads.state(step, op);
    }
  }
  return reads.findings();
}

}  // namespace nanscope
