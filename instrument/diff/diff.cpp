#include "instrument/diff/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "core/run/ranks.h"
#include "instrument/diagnosis/facts.h"
#include "instrument/diff/bits.h"
#include "instrument/diff/compare_rows.h"
#include "instrument/diff/numbers.h"

namespace nanscope::align {
namespace {

bool is_hashed(const Group& group) {
  return std::all_of(group.sheets.begin(), group.sheets.end(),
                     [](const Sheet& one) { return one.tensor->hash.has_value(); });
}

void align_sequences(Side& a, Side& b, std::vector<SequencePair>& pairs) {
  pairs = pair_sequences(a.places, b.places);
  a.sequences.resize(a.places.all().size());
  b.sequences.resize(b.places.all().size());
  // Several sequences of one run may be one of the other: all of these have the number of the first in A.
  std::iota(a.sequences.begin(), a.sequences.end(), std::int64_t{0});
  std::iota(b.sequences.begin(), b.sequences.end(), std::ssize(a.sequences));
  for (const SequencePair& pair : pairs) {
    std::int64_t& of_a = a.sequences[static_cast<std::size_t>(pair.a)];
    std::int64_t& of_b = b.sequences[static_cast<std::size_t>(pair.b)];
    if (of_b >= std::ssize(a.sequences)) {
      of_b = of_a;
    } else {
      of_a = of_b;
    }
  }
}

/// Behind the first token that differs, a sequence is another one.
bool behind(const std::vector<SequencePair>& pairs, const RowPlace& place) {
  return std::any_of(pairs.begin(), pairs.end(), [&](const SequencePair& pair) {
    return pair.a == place.sequence && pair.first_apart && place.position >= *pair.first_apart;
  });
}

class Differ {
 public:
  Differ(RunView& a, RunView& b, const DiffOptions& options)
      : a_(a, "A"), b_(b, "B"), options_(options), facts_a_(a), facts_b_(b), ranks_a_(a), ranks_b_(b) {}

  DiffReport run() {
    align_sequences(a_, b_, report_.sequences);
    const PairedGroups pairing = pair_groups(a_, b_, options_.names);
    const auto hashed = [](Side& side) {
      return std::all_of(side.groups.all().begin(), side.groups.all().end(), is_hashed);
    };
    report_.bits = hashed(a_) && hashed(b_);
    note_joins(pairing);
    for (const Lone& one : pairing.alone) list_alone(one);
    if (report_.bits) {
      compare_bits(a_, b_, pairing.partners, report_, found_);
      for (const Partner& partner : pairing.partners) list_sheets_alone(partner, row_meetings(a_, b_, partner));
      take_by_execution();
    } else {
      compare_numbers(pairing.partners);
      found_.resize(std::min(found_.size(), options_.limit));
      for (Moved& one : found_) report_.differences.push_back(std::move(one.difference));
    }
    return std::move(report_);
  }

 private:
  void note_joins(const PairedGroups& pairing) {
    std::map<std::pair<std::string, Join>, std::set<std::string>> kinds;
    for (const Partner& one : pairing.partners) {
      const auto note = [&](const Side& side, std::size_t group, const Part& part) {
        const Group& of = side.group(group);
        if (of.ranks > 1) kinds[{side.name, part.join}].insert(of.op + "." + of.role);
      };
      note(a_, one.a, one.part_a);
      note(b_, one.b, one.part_b);
    }
    for (const auto& [key, ops] : kinds) {
      report_.joined.push_back({key.first, key.second, {ops.begin(), ops.end()}});
    }
  }

  void list_alone(const Lone& one) {
    const std::vector<Sheet>& sheets = (one.of_a ? a_ : b_).group(one.group).sheets;
    if (one.layout) {
      report_.layout += sheets.size();
    } else if (report_.bits) {
      for (const Sheet& sheet : sheets) add_alone(one.of_a, *sheet.tensor, 1, one);
    } else {
      add_alone(one.of_a, *sheets.front().tensor, sheets.size(), one);
    }
  }

  void list_sheets_alone(const Partner& partner, const RowMeetings& meetings) {
    const auto missed = [&](Side& side, std::size_t group, const std::vector<bool>& met, bool of_a) {
      const Lone lone{of_a, group, why_no_row(side), {}, false, false};
      for (std::size_t i = 0; i < met.size(); ++i) {
        if (!met[i]) add_alone(of_a, *side.group(group).sheets[i].tensor, 1, lone);
      }
    };
    missed(a_, partner.a, meetings.met_a, true);
    missed(b_, partner.b, meetings.met_b, false);
  }

  std::string why_no_row(const Side& side) const {
    return fmt::format("no row of it has a row of its sequence and position in {}", side.name == "A" ? "B" : "A");
  }

  /// `tensors`: of its group, in as many steps or ranks.
  void add_alone(bool of_a, const Tensor& tensor, std::size_t tensors, const Lone& lone) {
    report_.unmatched += tensors;
    if (!report_.bits && found_.size() >= options_.limit) return;
    Difference one;
    one.kind = lone.shape ? DifferenceKind::shape : of_a ? DifferenceKind::only_in_a : DifferenceKind::only_in_b;
    one.where = (of_a ? facts_a_ : facts_b_).where(tensor);
    (of_a ? one.a : one.b) = tensor;
    one.count = tensor.count();
    one.reason = lone.reason;
    one.candidate = lone.candidate;
    const std::string text = tensor.name.empty() ? place_text(one.where) : tensor.name;
    const std::string more = tensors > 1 ? fmt::format(" and {} more of its name are", tensors - 1) : " is";
    one.summary = fmt::format("{}{} only in {}: {}", text, more, of_a ? "A" : "B", lone.reason);
    if (!lone.candidate.empty()) one.summary += fmt::format("; the nearest is {}", lone.candidate);
    found_.push_back({{}, std::move(one)});
  }

  void compare_numbers(const std::vector<Partner>& partners) {
    std::vector<Measured> pairs;
    for (const Partner& partner : partners) {
      if (a_.group(partner.a).is_stated()) {
        compare_stated(partner);
        continue;
      }
      RowMeetings meetings = row_meetings(a_, b_, partner);
      list_sheets_alone(partner, meetings);
      std::erase_if(meetings.rows, [&](const RowMeeting& one) { return behind(report_.sequences, one.place); });
      Measured pair{partner, compare_rows(a_, b_, partner, meetings), {}, {}};
      report_.rows += pair.apart.rows.size();
      report_.rows_only_in_a += meetings.only_a;
      report_.rows_only_in_b += meetings.only_b;
      if (pair.apart.unread > 0) ++report_.unknown;
      if (!pair.apart.rows.empty()) pairs.push_back(std::move(pair));
    }
    std::stable_sort(pairs.begin(), pairs.end(), [&](const Measured& x, const Measured& y) {
      const auto op = [&](const Measured& one) { return a_.group(one.partner.a).sheets.front().tensor->op; };
      return op(x) < op(y);
    });
    link_inputs(a_, pairs);
    for (Measured& pair : pairs) {
      const Group& group = a_.group(pair.partner.a);
      pair.chooses = group.is_integer() && group.meeting() == Meeting::rows && group.kind != OpKind::parameter;
    }
    find_floors(a_, b_, pairs, measure_repeat());
    report_numbers(a_, b_, facts_a_, pairs, options_.limit, report_);
  }

  std::vector<Measured> measure_repeat() {
    std::vector<Measured> again;
    if (options_.repeat == nullptr) return again;
    Side first(a_.run, "A");
    Side second(*options_.repeat, "C");
    std::vector<SequencePair> pairs;
    align_sequences(first, second, pairs);
    for (const Partner& partner : pair_groups(first, second, {}).partners) {
      if (first.group(partner.a).is_stated()) continue;
      again.push_back({partner, compare_rows(first, second, partner, row_meetings(first, second, partner)), {}, {}});
    }
    return again;
  }

  void compare_stated(const Partner& partner) {
    ++report_.compared;
    Difference found = stated_difference(a_.group(partner.a), b_.group(partner.b));
    if (found.differing == 0) {
      ++report_.equal;
      return;
    }
    ++report_.differing;
    found.where = facts_a_.where(*found.a);
    if (report_.differences.size() < options_.limit) report_.differences.push_back(std::move(found));
  }

  /// Steps, then ops within a step: what B has more does not move what follows it by more than a few ops.
  static Moment moment(Side& side, const StepsOfRanks& ranks, const Tensor& tensor) {
    if (side.groups.ranks() > 1) return ranks.moment_of(side.run, tensor.op);
    return {tensor.step, tensor.op - side.run.content(tensor.step).ops.front().id, 0};
  }

  /// What is of B alone stands before the next that both have.
  void take_by_execution() {
    for (Moved& one : found_) {
      const Tensor& tensor = one.difference.a ? *one.difference.a : *one.difference.b;
      one.moment = one.difference.a ? moment(a_, ranks_a_, tensor) : moment(b_, ranks_b_, tensor);
    }
    std::stable_sort(found_.begin(), found_.end(), [](const Moved& x, const Moved& y) { return x.moment < y.moment; });
    found_.resize(std::min(found_.size(), options_.limit));
    for (Moved& one : found_) {
      if (one.difference.a && one.difference.b) describe_bits(facts_a_, facts_b_, one.difference);
      report_.differences.push_back(std::move(one.difference));
    }
  }

  Side a_;
  Side b_;
  const DiffOptions& options_;
  Facts facts_a_;
  Facts facts_b_;
  StepsOfRanks ranks_a_;
  StepsOfRanks ranks_b_;
  DiffReport report_;
  std::vector<Moved> found_;
};

}  // namespace
}  // namespace nanscope::align

namespace nanscope {

Result<DiffReport> diff(RunView& a, RunView& b, const DiffOptions& options) {
  DiffReport report = align::Differ(a, b, options).run();
  for (RunView* run : {&a, &b, options.repeat}) {
    if (run == nullptr) continue;
    if (Status status = run->status(); !status) return tl::unexpected(status.error());
  }
  return report;
}

}  // namespace nanscope
