#include "instrument/diff/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "instrument/diff/chances.h"

namespace nanscope::align {
namespace {

constexpr std::size_t kRows = 16;      ///< that are read
constexpr std::int64_t kElements = 1;  ///< read at a time: one row

/// Columns of a group's row on one rank; of scores, heads.
std::int64_t width_of(const Group& group) {
  const bool by_heads = group.meeting() == Meeting::scores;
  return by_heads ? group.sheets.front().tensor->heads : group.meeting() == Meeting::mask ? 1 : group.channels();
}

struct Option {
  Part part;
  std::int64_t width = 0;  ///< of the joined row
};

std::vector<Option> options_of(const Group& group, std::optional<Join> stated) {
  const std::int64_t width = width_of(group);
  if (group.ranks == 1) return {{{Join::alone, 1, 0, 0, 0}, width}};
  std::vector<Option> all;
  const auto add = [&](Join join, std::int64_t every, std::int64_t joined) {
    if (!stated || *stated == join) all.push_back({{join, every, 0, 0, 0}, joined});
  };
  add(Join::replicated, 1, width);
  add(Join::sum, 1, width);
  for (std::int64_t every = 1; every < group.ranks; every *= 2) {
    if (group.ranks % every == 0) add(Join::columns, every, width * group.ranks / every);
  }
  return all;
}

/// The last columns of a vocabulary may be there for the sake of the shards alone.
bool may_be_padded(const Group& group) { return group.role == "logits"; }

/// How far two rows are apart, of the first; nothing where that is all zeros.
std::optional<double> apart(const std::vector<float>& x, const std::vector<float>& y) {
  double squares = 0;
  double size = 0;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) continue;
    squares += (double{x[i]} - double{y[i]}) * (double{x[i]} - double{y[i]});
    size += double{x[i]} * double{x[i]};
  }
  return size > 0 ? std::optional(std::sqrt(squares / size)) : std::nullopt;
}

}  // namespace

double distance(Side& a, std::size_t in_a, const Part& part_a, Side& b, std::size_t in_b, const Part& part_b) {
  const RowIndex& rows = a.index(in_a);
  const RowIndex& others = b.index(in_b);
  JoinedRows left(a.run, a.places, a.group(in_a), part_a, kElements);
  JoinedRows right(b.run, b.places, b.group(in_b), part_b, kElements);
  std::vector<float> x;
  std::vector<float> y;
  std::vector<std::vector<double>> by_rank;
  std::vector<const RowIndex::value_type*> common;
  for (const auto& row : rows) {
    if (others.contains(row.first)) common.push_back(&row);
  }
  const std::size_t step = std::max<std::size_t>(1, common.size() / kRows);
  for (std::size_t turn = 0; turn < common.size(); turn += step) {
    const auto& [place, all] = *common[turn];
    const auto other = others.find(place);
    const Occurrence& of_a = all.back();
    const Occurrence& of_b = other->second.back();
    const bool by_keys = a.group(in_a).meeting() == Meeting::scores || a.group(in_a).meeting() == Meeting::mask;
    const std::int64_t keys = by_keys ? std::max(left.keys(of_a), right.keys(of_b)) : 0;
    // Ranks that are said to hold the same must all do so.
    const std::size_t ranks = std::max(readings(part_a, of_a), readings(part_b, of_b));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (!left.read(of_a, rank, keys, x) || !right.read(of_b, rank, keys, y)) continue;
      by_rank.resize(std::max(by_rank.size(), rank + 1));
      if (const auto one = apart(x, y)) by_rank[rank].push_back(*one);
    }
  }
  double farthest = -1;
  for (const std::vector<double>& one : by_rank) {
    if (one.empty()) continue;
    // Some rows may be those of a fault; numbers of tokens or experts are the same or not.
    const double apart = a.group(in_a).is_integer() ? *std::max_element(one.begin(), one.end()) : robust(one).median;
    farthest = std::max(farthest, apart);
  }
  return farthest < 0 ? std::numeric_limits<double>::infinity() : farthest;
}

std::optional<std::pair<Part, Part>> join_of(Side& a, std::size_t in_a, Side& b, std::size_t in_b,
                                             std::optional<Join> stated) {
  const Group& left = a.group(in_a);
  const Group& right = b.group(in_b);
  if (!stated && left.ranks > 1 && left.ranks == right.ranks && width_of(left) == width_of(right)) {
    const Part part{Join::each, 1, 0, 0, 0};
    // Hashes mean the same program on each side.
    const bool hashed = left.sheets.front().tensor->hash && right.sheets.front().tensor->hash;
    if (hashed || left.is_stated() || distance(a, in_a, part, b, in_b, part) < kSameContent)
      return std::pair{part, part};
  }
  std::vector<std::pair<Part, Part>> possible;
  for (const Option& x : options_of(left, stated)) {
    for (const Option& y : options_of(right, stated)) {
      const bool padded =
          may_be_padded(left) && x.width != y.width && (x.width > y.width ? x : y).part.join == Join::columns;
      if (x.width != y.width && !padded) continue;
      possible.emplace_back(x.part, y.part);
      if (padded) possible.back().first.total = possible.back().second.total = std::min(x.width, y.width);
    }
  }
  if (possible.empty()) return std::nullopt;
  if (possible.size() == 1 || left.meeting() == Meeting::mask) return possible.front();
  std::size_t best = 0;
  double nearest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < possible.size(); ++i) {
    const double apart = distance(a, in_a, possible[i].first, b, in_b, possible[i].second);
    if (apart < nearest) {
      nearest = apart;
      best = i;
    }
  }
  return possible[best];
}

}  // namespace nanscope::align
