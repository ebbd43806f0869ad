#include "instrument/diagnosis/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "core/run/ranks.h"
#include "instrument/diagnosis/facts.h"
#include "instrument/diagnosis/json_parts.h"

namespace nanscope {
namespace {

/// A tensor of a step with the name that it is aligned by. `turn` counts equal names.
struct Named {
  std::tuple<std::int64_t, std::string, std::string, int> key;  ///< layer, op, role, turn
  const Tensor* tensor;
};

constexpr std::int64_t kBlockElements = std::int64_t{1} << 20;

std::vector<Named> tensors_of_step(RunView& run, StepId step) {
  std::vector<Named> found;
  std::map<std::tuple<std::int64_t, std::string, std::string>, int> turns;
  for (const Tensor& tensor : run.content(step).tensors) {
    const Op* op = tensor.known ? run.maker(tensor) : nullptr;
    if (op == nullptr) continue;
    const std::int64_t layer = op->layer.value_or(-1);
    const int turn = turns[{layer, op->name, tensor.role}]++;
    found.push_back({{layer, op->name, tensor.role, turn}, &tensor});
  }
  return found;
}

bool same_step(const Step& a, const Step& b) {
  return a.rank == b.rank && a.request() == b.request() && a.index() == b.index() && a.spans.size() == b.spans.size();
}

class Differ {
 public:
  Differ(RunView& a, RunView& b, const DiffOptions& options) : a_(a), b_(b), options_(options) {}

  DiffReport run() {
    const auto parameters = [](RunView& run) { return !run.content(kBeforeSteps).tensors.empty(); };
    if (parameters(a_.run) && parameters(b_.run)) compare_step(kBeforeSteps, kBeforeSteps);
    const std::span<const Step> of_b = b_.run.steps();
    std::vector<bool> met(of_b.size(), false);
    for (const Step& step : a_.run.steps()) {
      if (step.rank == 0) of_earlier_passes_ = report_.differences.size();
      std::optional<StepId> other;
      for (std::size_t i = 0; i < of_b.size() && !other; ++i) {
        if (met[i] || !same_step(of_b[i], step)) continue;
        other = of_b[i].id;
        met[i] = true;
      }
      compare_step(step.id, other);
    }
    for (std::size_t i = 0; i < of_b.size(); ++i) {
      if (met[i]) continue;
      for (const Named& one : tensors_of_step(b_.run, of_b[i].id)) only(DifferenceKind::only_in_b, *one.tensor);
    }
    sort_by_execution();
    return std::move(report_);
  }

 private:
  /// Whether another difference is described: of each rank of a pass as many as of the first, for ranks run beside each
  /// other.
  bool has_room() const { return of_earlier_passes_ + report_.differences.size() - of_other_ranks_ < options_.limit; }

  /// Ranks run beside each other, though their steps come one after another.
  void sort_by_execution() {
    const StepsOfRanks of_a(a_.run);
    const StepsOfRanks of_b(b_.run);
    const auto moment = [&](const Difference& one) {
      return one.a ? of_a.moment_of(a_.run, one.a->op) : of_b.moment_of(b_.run, one.b->op);
    };
    const auto is_matched = [](const Difference& one) { return one.a.has_value(); };
    const auto end = std::find_if_not(report_.differences.begin(), report_.differences.end(), is_matched);
    std::stable_sort(report_.differences.begin(), end,
                     [&](const Difference& x, const Difference& y) { return moment(x) < moment(y); });
    if (report_.differences.size() > options_.limit) report_.differences.resize(options_.limit);
  }

  /// Merges the two sides' tensors: both lists are in logical order.
  void compare_step(StepId step, std::optional<StepId> other) {
    of_other_ranks_ = report_.differences.size();
    const std::vector<Named> left = tensors_of_step(a_.run, step);
    const std::vector<Named> right = other ? tensors_of_step(b_.run, *other) : std::vector<Named>{};
    std::map<decltype(Named::key), std::size_t> places;
    for (std::size_t i = 0; i < right.size(); ++i) places.emplace(right[i].key, i);
    std::vector<bool> met(right.size(), false);
    for (const Named& one : left) {
      if (const auto found = places.find(one.key); found != places.end()) met[found->second] = true;
    }
    std::size_t next = 0;  // of the right side, for what is only there
    const auto pass = [&](std::size_t end) {
      for (; next < end; ++next) {
        if (!met[next]) only(DifferenceKind::only_in_b, *right[next].tensor);
      }
    };
    for (const Named& one : left) {
      const auto found = places.find(one.key);
      if (found == places.end()) {
        only(DifferenceKind::only_in_a, *one.tensor);
        continue;
      }
      pass(std::max(next, found->second));
      compare_pair(*one.tensor, *right[found->second].tensor);
    }
    pass(right.size());
  }

  void compare_pair(const Tensor& a, const Tensor& b) {
    ++report_.compared;
    const bool same_shape = a.format == b.format && a.tokens == b.tokens && a.channels == b.channels;
    const bool hashes = a.hash && b.hash;
    if (same_shape && hashes && *a.hash == *b.hash) return;
    // Without hashes the elements say whether there is a difference, with them only where it is.
    const bool told = has_room();
    std::optional<TensorComparison> elements;
    if (same_shape && (!hashes || told)) elements = compare_elements(a, b);
    if (same_shape && !hashes) {
      if (!elements) ++report_.unknown;
      if (!elements || elements->differing == 0) return;
    }
    ++report_.differing;
    if (!told) return;
    Difference difference;
    difference.kind = same_shape ? DifferenceKind::content : DifferenceKind::shape;
    difference.where = a_.where(a);
    difference.a = a;
    difference.b = b;
    difference.elements = elements;
    describe(difference);
    report_.differences.push_back(std::move(difference));
  }

  /// Some rows at a time; nothing when they cannot be had.
  std::optional<TensorComparison> compare_elements(const Tensor& a, const Tensor& b) {
    TensorComparison all;
    all.comparable = true;
    const std::int64_t at_once = std::max<std::int64_t>(1, kBlockElements / std::max<std::int64_t>(1, a.channels));
    for (std::int64_t row = 0; row < a.tokens; row += at_once) {
      const std::int64_t rows = std::min(at_once, a.tokens - row);
      const Fact<TensorData> left = a_.run.read(a, row, rows);
      const Fact<TensorData> right = left ? b_.run.read(b, row, rows) : Fact<TensorData>(TensorData{});
      if (!left || !right) return std::nullopt;
      TensorComparison block = compare(*left, *right);
      if (!block.comparable) return std::nullopt;
      all.compared += block.compared;
      all.differing += block.differing;
      all.max_ulps = std::max(all.max_ulps, block.max_ulps);
      if (!all.first && block.first) {
        all.first = block.first;
        all.first->index += row * a.channels;
      }
    }
    return all;
  }

  void describe(Difference& difference) {
    const Tensor& a = *difference.a;
    const Tensor& b = *difference.b;
    const std::string place = place_text(difference.where);
    if (difference.kind == DifferenceKind::shape) {
      difference.summary = fmt::format("{} is {} x {} {} in A, {} x {} {} in B", place, a.tokens, a.channels,
                                       name(a.format), b.tokens, b.channels, name(b.format));
    } else if (!difference.elements) {
      difference.summary = fmt::format("{} differs: hash {:016x} in A, {:016x} in B; its elements are not available",
                                       place, a.hash.value_or(0), b.hash.value_or(0));
    } else if (!difference.elements->first) {
      difference.summary = fmt::format("{} has other hashes but the same elements: a hash is wrong", place);
    } else {
      const ElementDifference& first = *difference.elements->first;
      const std::int64_t row = first.index / a.channels;
      const std::int64_t channel = first.index % a.channels;
      difference.where = a_.where(a, Range{row, row}, Range{channel, channel});
      difference.summary = fmt::format("{} is {} ({}) in A, {} ({}) in B{}; {} of {} elements differ",
                                       place_text(difference.where), first.value_a, code_text(a.format, first.code_a),
                                       first.value_b, code_text(a.format, first.code_b),
                                       first.ulps ? fmt::format(", {} ulp apart", *first.ulps) : std::string(),
                                       difference.elements->differing, difference.elements->compared);
    }
  }

  void only(DifferenceKind kind, const Tensor& tensor) {
    ++report_.unmatched;
    if (!has_room()) return;
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
  std::size_t of_earlier_passes_ = 0;  ///< differences that were described
  std::size_t of_other_ranks_ = 0;     ///< and those before the step that is compared
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

Result<DiffReport> diff(RunView& a, RunView& b, const DiffOptions& options) {
  DiffReport report = Differ(a, b, options).run();
  if (Status status = a.status(); !status) return tl::unexpected(status.error());
  if (Status status = b.status(); !status) return tl::unexpected(status.error());
  return report;
}

nlohmann::ordered_json to_json(const DiffReport& report) {
  using json::Json;
  const auto element_json = [](const ElementDifference& element, Format format) {
    return Json{{"index", element.index},
                {"code_a", code_text(format, element.code_a)},
                {"code_b", code_text(format, element.code_b)},
                {"a", json::of(EvidenceValue{double{element.value_a}})},
                {"b", json::of(EvidenceValue{double{element.value_b}})},
                {"ulps", json::or_null(element.ulps)}};
  };
  Json list = Json::array();
  for (const Difference& difference : report.differences) {
    Json object{{"kind", name(difference.kind)}, {"tensor", json::text_or_null(place_text(difference.where))}};
    json::add_place(object, difference.where);
    object["first"] = nullptr;
    object["differing"] = nullptr;
    if (difference.elements) {
      object["differing"] = difference.elements->differing;
      if (difference.elements->first) object["first"] = element_json(*difference.elements->first, difference.a->format);
    }
    object["summary"] = difference.summary;
    list.push_back(std::move(object));
  }
  return Json{{"schema", "nanscope.diff/1"},   {"same", report.same()},         {"compared", report.compared},
              {"differing", report.differing}, {"unmatched", report.unmatched}, {"unknown", report.unknown},
              {"differences", std::move(list)}};
}

}  // namespace nanscope
