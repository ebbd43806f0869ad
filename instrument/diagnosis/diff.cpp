#include "instrument/diagnosis/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "instrument/diagnosis/facts.h"

namespace nanscope {
namespace {

/// A tensor of a step with the name that it is aligned by. `turn` counts equal names.
struct Named {
  std::tuple<std::int64_t, std::string, std::string, int> key;  ///< layer, op, role, turn
  TensorRow tensor;
};

std::vector<Named> tensors_of_step(RunData& run, const StepRow& step) {
  OpFilter op_filter;
  op_filter.step = step.id;
  std::unordered_map<std::int64_t, OpRow> ops;
  for (OpRow& op : run.ops(op_filter)) {
    const std::int64_t id = op.id;
    ops.emplace(id, std::move(op));
  }
  TensorFilter filter;
  filter.step = step.id;
  std::vector<Named> found;
  std::map<std::tuple<std::int64_t, std::string, std::string>, int> turns;
  for (TensorRow& tensor : run.tensors(filter)) {
    const auto op = ops.find(tensor.op);
    if (op == ops.end()) continue;
    const int turn = turns[{op->second.layer, op->second.name, tensor.role}]++;
    found.push_back({{op->second.layer, op->second.name, tensor.role, turn}, std::move(tensor)});
  }
  return found;
}

class Differ {
 public:
  Differ(RunData& a, TensorSource& a_tensors, RunData& b, TensorSource& b_tensors, const DiffOptions& options)
      : a_(a, a_tensors), b_(b, b_tensors), options_(options) {}

  DiffReport run() {
    const std::span<const StepRow> of_b = b_.run.steps();
    std::vector<bool> met(of_b.size(), false);
    for (const StepRow& step : a_.run.steps()) {
      const StepRow* other = nullptr;
      for (std::size_t i = 0; i < of_b.size() && other == nullptr; ++i) {
        if (met[i] || of_b[i].request != step.request || of_b[i].index != step.index) continue;
        other = &of_b[i];
        met[i] = true;
      }
      compare_step(step, other);
    }
    for (std::size_t i = 0; i < of_b.size(); ++i) {
      if (met[i]) continue;
      for (const Named& one : tensors_of_step(b_.run, of_b[i])) only(DifferenceKind::only_in_b, one.tensor);
    }
    return std::move(report_);
  }

 private:
  /// Merges the two sides' tensors: both lists are in logical order.
  void compare_step(const StepRow& step, const StepRow* other) {
    const std::vector<Named> left = tensors_of_step(a_.run, step);
    const std::vector<Named> right = other != nullptr ? tensors_of_step(b_.run, *other) : std::vector<Named>{};
    std::map<decltype(Named::key), std::size_t> places;
    for (std::size_t i = 0; i < right.size(); ++i) places.emplace(right[i].key, i);
    std::vector<bool> met(right.size(), false);
    for (const Named& one : left) {
      if (const auto found = places.find(one.key); found != places.end()) met[found->second] = true;
    }
    std::size_t next = 0;  // of the right side, for what is only there
    const auto pass = [&](std::size_t end) {
      for (; next < end; ++next) {
        if (!met[next]) only(DifferenceKind::only_in_b, right[next].tensor);
      }
    };
    for (const Named& one : left) {
      const auto found = places.find(one.key);
      if (found == places.end()) {
        only(DifferenceKind::only_in_a, one.tensor);
        continue;
      }
      pass(std::max(next, found->second));
      compare_pair(one.tensor, right[found->second].tensor);
    }
    pass(right.size());
  }

  void compare_pair(const TensorRow& a, const TensorRow& b) {
    ++report_.compared;
    const bool same_shape = a.format == b.format && a.tokens == b.tokens && a.channels == b.channels;
    if (same_shape && a.hash == b.hash) return;
    ++report_.differing;
    if (report_.differences.size() >= options_.limit) return;
    Difference difference;
    difference.kind = same_shape ? DifferenceKind::content : DifferenceKind::shape;
    difference.where = a_.where(a);
    difference.a = a;
    difference.b = b;
    if (same_shape) {
      add_elements(difference);
    } else {
      difference.summary = fmt::format("{} is {} x {} {} in A, {} x {} {} in B", place_text(difference.where), a.tokens,
                                       a.channels, name(a.format), b.tokens, b.channels, name(b.format));
    }
    report_.differences.push_back(std::move(difference));
  }

  void add_elements(Difference& difference) {
    const std::shared_ptr<const TensorData> left = a_.elements(*difference.a);
    const std::shared_ptr<const TensorData> right = b_.elements(*difference.b);
    const std::string place = place_text(difference.where);
    if (!left || !right) {
      difference.summary = fmt::format("{} differs: hash {:016x} in A, {:016x} in B; its elements are not available",
                                       place, difference.a->hash, difference.b->hash);
      return;
    }
    TensorComparison compared = compare(*left, *right);
    if (compared.first) {
      const ElementDifference& first = *compared.first;
      const std::int64_t row = first.index / difference.a->channels;
      const std::int64_t channel = first.index % difference.a->channels;
      difference.where = a_.where(*difference.a, Range{row, row}, Range{channel, channel});
      difference.summary = fmt::format(
          "{} is {} ({}) in A, {} ({}) in B{}; {} of {} elements differ", place_text(difference.where), first.value_a,
          code_text(difference.a->format, first.code_a), first.value_b, code_text(difference.a->format, first.code_b),
          first.ulps ? fmt::format(", {} ulp apart", *first.ulps) : std::string(), compared.differing,
          compared.compared);
    } else {
      difference.summary = fmt::format("{} has other hashes but the same elements: a hash is wrong", place);
    }
    difference.elements = compared;
  }

  void only(DifferenceKind kind, const TensorRow& tensor) {
    ++report_.unmatched;
    if (report_.differences.size() >= options_.limit) return;
    const bool in_a = kind == DifferenceKind::only_in_a;
    Difference difference;
    difference.kind = kind;
    difference.where = in_a ? a_.where(tensor) : b_.where(tensor);
    (in_a ? difference.a : difference.b) = tensor;
    difference.summary = fmt::format("{} is only in {}", place_text(difference.where), in_a ? "A" : "B");
    report_.differences.push_back(std::move(difference));
  }

  Facts a_;
  Facts b_;
  DiffOptions options_;
  DiffReport report_;
};

}  // namespace

std::string_view name(DifferenceKind kind) {
  switch (kind) {
    case DifferenceKind::only_in_a:
      return "only-in-a";
    case DifferenceKind::only_in_b:
      return "only-in-b";
    case DifferenceKind::shape:
      return "shape";
    case DifferenceKind::content:
      return "content";
  }
  return {};
}

Result<DiffReport> diff(RunData& a, TensorSource& a_tensors, RunData& b, TensorSource& b_tensors,
                        const DiffOptions& options) {
  DiffReport report = Differ(a, a_tensors, b, b_tensors, options).run();
  if (Status status = a.status(); !status) return tl::unexpected(status.error());
  if (Status status = b.status(); !status) return tl::unexpected(status.error());
  return report;
}

}  // namespace nanscope
