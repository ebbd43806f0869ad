#include "core/dump/diff_dumps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

namespace nanscope {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 20;  ///< elements held at a time

/// Sums over many terms in another order move a result by several roundings of it.
constexpr double kRoundings = 8;

std::string aligned_name(const DumpTensor& tensor) {
  TensorName at = tensor.at;
  at.run.clear();
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", at.pass(), at.tower, at.layer.value_or(-1),
                     at.expert.value_or(-1), at.sequence.value_or(-1), at.module, at.role, static_cast<int>(at.form),
                     static_cast<int>(at.port), at.index);
}

/// Half a unit in the last place, relative, of what a tensor stores.
double rounding(const DumpTensor& tensor) {
  if (!tensor.format) return tensor.dtype->bits == 64 ? 0x1p-53 : 0;
  return std::ldexp(1.0, -info(*tensor.format).mantissa_bits - 1);
}

bool same_number(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// What one piece after another adds to the comparison of two tensors.
class Comparison {
 public:
  /// `scale`: the root mean square of A's elements.
  Comparison(const DumpTensor& a, const DumpTensor& b, double scale) : a_(a), scale_(scale) {
    out_.name = a.name;
    out_.other = b.name;
    out_.elements = a.count();
    out_.expected = kRoundings * std::max(rounding(a), rounding(b));
  }

  /// What was measured of both, where one has no elements: the extremes, and whether there is a NaN or an Inf.
  DumpDifference of_statistics(const Health& a, const Health& b) {
    const auto apart = [&](float x, float y) {
      if (same_number(x, y)) return false;
      if (!std::isfinite(x) || !std::isfinite(y)) return true;
      return std::abs(double{x} - double{y}) > out_.expected * std::max(std::abs(double{x}), std::abs(double{y}));
    };
    const bool bad =
        (a.nan > 0) != (b.nan > 0) || (a.pos_inf > 0) != (b.pos_inf > 0) || (a.neg_inf > 0) != (b.neg_inf > 0);
    const bool differ = bad || apart(a.min, b.min) || apart(a.max, b.max) || apart(a.absmax, b.absmax);
    out_.kind = bad ? DumpDifferenceKind::not_finite : DumpDifferenceKind::content;
    out_.differing = differ ? out_.elements : 0;
    return std::move(out_);
  }

  void add(std::int64_t index, float a, float b) {
    if (same_number(a, b)) return;
    ++out_.differing;
    if (std::isfinite(a) && std::isfinite(b)) {
      const double apart = std::abs(double{a} - double{b});
      // Rounding is relative to the element; what a sum of larger terms leaves, to the tensor.
      const double relative = scale_ > 0 ? apart / std::max(scale_, std::abs(double{a})) : apart;
      out_.relative = std::max(out_.relative, relative);
      if (relative > out_.expected) note(DumpDifferenceKind::content, index, a, b);
    } else {
      note(DumpDifferenceKind::not_finite, index, a, b);
    }
  }

  DumpDifference done() {
    if (out_.first < 0) out_.kind = DumpDifferenceKind::rounding;
    return std::move(out_);
  }

 private:
  void note(DumpDifferenceKind kind, std::int64_t index, float a, float b) {
    if (out_.first >= 0) return;
    out_.kind = kind;
    out_.first = index;
    out_.token = index / std::max<std::int64_t>(1, a_.channels());
    out_.a = double{a};
    out_.b = double{b};
  }

  const DumpTensor& a_;
  double scale_ = 0;
  DumpDifference out_;
};

/// Dumps are opened with their sums or without.
Result<double> root_mean_square(const DumpTensor& tensor, DumpElements& elements) {
  std::uint64_t finite = tensor.health.finite();
  double sum_sq = tensor.health.sum_sq;
  if (std::isnan(sum_sq)) {
    finite = 0;
    sum_sq = 0;
    for (std::int64_t first = 0; first < tensor.count(); first += kPiece) {
      const Result<std::vector<float>> piece = elements.values(tensor, first, std::min(kPiece, tensor.count() - first));
      if (!piece) return tl::unexpected(piece.error());
      for (const float value : *piece) {
        if (!std::isfinite(value)) continue;
        ++finite;
        sum_sq += double{value} * double{value};
      }
    }
  }
  return std::sqrt(sum_sq / static_cast<double>(std::max<std::uint64_t>(1, finite)));
}

std::string summary_of(const DumpDifference& found) {
  const bool by_elements = found.kind == DumpDifferenceKind::content || found.kind == DumpDifferenceKind::not_finite;
  if (by_elements && found.first < 0) return fmt::format("{}: what was measured of it differs", found.name);
  switch (found.kind) {
    case DumpDifferenceKind::only_in_a:
      return fmt::format("{} is only in the first", found.name);
    case DumpDifferenceKind::only_in_b:
      return fmt::format("{} is only in the second", found.name);
    case DumpDifferenceKind::shape:
      return fmt::format("{} has another shape in the second", found.name);
    case DumpDifferenceKind::rounding:
      return fmt::format(
          "{}: {} of {} elements differ, by at most {:.3g} of the root mean square; rounding explains {:.3g}",
          found.name, found.differing, found.elements, found.relative, found.expected);
    case DumpDifferenceKind::content:
      return fmt::format(
          "{}: {} of {} elements differ, by up to {:.3g} of the root mean square where rounding explains {:.3g}; "
          "first element {} (token {}): {:.9g} against {:.9g}",
          found.name, found.differing, found.elements, found.relative, found.expected, found.first, found.token,
          found.a, found.b);
    case DumpDifferenceKind::not_finite:
      break;
  }
  return fmt::format("{}: element {} (token {}) is {:.9g} against {:.9g}; {} of {} elements differ", found.name,
                     found.first, found.token, found.a, found.b, found.differing, found.elements);
}

Result<DumpDifference> compare(const DumpTensor& a, DumpElements& a_elements, const DumpTensor& b,
                               DumpElements& b_elements) {
  if (a.stated || b.stated) return Comparison(a, b, 0).of_statistics(a.health, b.health);
  const Result<double> scale = root_mean_square(a, a_elements);
  if (!scale) return tl::unexpected(scale.error());
  Comparison comparison(a, b, *scale);
  for (std::int64_t first = 0; first < a.count(); first += kPiece) {
    const std::int64_t count = std::min(kPiece, a.count() - first);
    const Result<std::vector<float>> x = a_elements.values(a, first, count);
    if (!x) return tl::unexpected(x.error());
    const Result<std::vector<float>> y = b_elements.values(b, first, count);
    if (!y) return tl::unexpected(y.error());
    for (std::size_t i = 0; i < x->size(); ++i) comparison.add(first + static_cast<std::int64_t>(i), (*x)[i], (*y)[i]);
  }
  return comparison.done();
}

/// Index in B of each tensor of A.
std::vector<std::optional<std::size_t>> align(const Dump& a, const Dump& b) {
  std::unordered_map<std::string, std::size_t> by_name;
  std::unordered_map<std::string, std::size_t> by_parts;
  for (std::size_t i = 0; i < b.tensors.size(); ++i) {
    by_name.emplace(b.tensors[i].name, i);
    by_parts.emplace(aligned_name(b.tensors[i]), i);
  }
  std::vector<std::optional<std::size_t>> found;
  for (const DumpTensor& tensor : a.tensors) {
    const auto same = by_name.find(tensor.name);
    const auto alike = by_parts.find(aligned_name(tensor));
    found.push_back(same != by_name.end()     ? std::optional(same->second)
                    : alike != by_parts.end() ? std::optional(alike->second)
                                              : std::nullopt);
  }
  return found;
}

void keep(DumpDiff& diff, DumpDifference found, std::size_t limit) {
  found.summary = summary_of(found);
  // Tensors without a partner must not push out those that differ.
  const auto lone = [](const DumpDifference& one) { return one.kind < DumpDifferenceKind::rounding; };
  const auto alike = std::count_if(diff.differences.begin(), diff.differences.end(),
                                   [&](const DumpDifference& one) { return lone(one) == lone(found); });
  if (static_cast<std::size_t>(alike) < limit) diff.differences.push_back(std::move(found));
}

void add_unmatched(DumpDiff& diff, DumpDifferenceKind kind, const DumpTensor& tensor, std::size_t limit) {
  ++diff.unmatched;
  DumpDifference found;
  found.kind = kind;
  found.name = tensor.name;
  found.elements = tensor.count();
  keep(diff, std::move(found), limit);
}

}  // namespace

Result<DumpDiff> diff_dumps(const Dump& a, DumpElements& a_elements, const Dump& b, DumpElements& b_elements,
                            const DumpDiffOptions& options) {
  DumpDiff diff;
  const std::vector<std::optional<std::size_t>> partners = align(a, b);
  std::vector<bool> taken(b.tensors.size(), false);
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    if (options.progress) options.progress(i, a.tensors.size());
    const DumpTensor& tensor = a.tensors[i];
    if (!partners[i] || taken[*partners[i]]) {
      add_unmatched(diff, DumpDifferenceKind::only_in_a, tensor, options.limit);
      continue;
    }
    taken[*partners[i]] = true;
    const DumpTensor& other = b.tensors[*partners[i]];
    if (tensor.shape != other.shape) {
      add_unmatched(diff, DumpDifferenceKind::shape, tensor, options.limit);
      continue;
    }
    ++diff.compared;
    Result<DumpDifference> found = compare(tensor, a_elements, other, b_elements);
    if (!found) return tl::unexpected(found.error());
    if (found->differing == 0) {
      ++diff.equal;
    } else if (found->kind == DumpDifferenceKind::rounding) {
      ++diff.rounding;
    } else {
      ++diff.beyond;
      keep(diff, std::move(*found), options.limit);
    }
  }
  for (std::size_t i = 0; i < b.tensors.size(); ++i) {
    if (!taken[i]) add_unmatched(diff, DumpDifferenceKind::only_in_b, b.tensors[i], options.limit);
  }
  return diff;
}

std::string_view name(DumpDifferenceKind kind) {
  switch (kind) {
    case DumpDifferenceKind::only_in_a:
      return "only-in-a";
    case DumpDifferenceKind::only_in_b:
      return "only-in-b";
    case DumpDifferenceKind::shape:
      return "shape";
    case DumpDifferenceKind::rounding:
      return "rounding";
    case DumpDifferenceKind::content:
      return "content";
    case DumpDifferenceKind::not_finite:
      break;
  }
  return "not-finite";
}

nlohmann::ordered_json to_json(const DumpDiff& diff) {
  const auto number = [](double value) {
    return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(fmt::format("{}", value));
  };
  nlohmann::ordered_json json{{"schema", "nanscope.dump-diff/1"}, {"same", diff.same()},
                              {"compared", diff.compared},        {"equal", diff.equal},
                              {"rounding", diff.rounding},        {"beyond", diff.beyond},
                              {"unmatched", diff.unmatched},      {"differences", nlohmann::ordered_json::array()}};
  for (const DumpDifference& found : diff.differences) {
    json["differences"].push_back(
        {{"kind", name(found.kind)},
         {"tensor", found.name},
         {"elements", found.elements},
         {"differing", found.differing},
         {"first", found.first < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(found.first)},
         {"token", found.token < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(found.token)},
         {"a", number(found.a)},
         {"b", number(found.b)},
         {"relative", number(found.relative)},
         {"expected_rounding", number(found.expected)},
         {"summary", found.summary}});
  }
  return json;
}

}  // namespace nanscope
