#include "instrument/diff/outstanding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "core/counted.h"

namespace nanscope::align {
namespace {

constexpr std::size_t kListed = 1024;   ///< rows
constexpr double kLeastChance = 1e-99;  ///< that is written out
constexpr std::size_t kNamed = 6;       ///< in a sentence

/// ln of the chance, at most, that `outside` of the channels hold no more than the share `held` of differences that are
/// spread evenly: a bound of the beta distribution (Chernoff).
double log_chance(double outside, double channels, double held) {
  const double even = outside / channels;
  if (held >= even) return 0;
  const double less = held > 0 ? even * std::log(even / held) : std::numeric_limits<double>::infinity();
  return -channels / 2 * (less + (1 - even) * std::log((1 - even) / (1 - held)));
}

/// The channels outside of which the rows are as near as `noise`, where chance gives such a range in fewer than kChance
/// cases. `squares` and `noise`: of relative differences, over all rows.
std::optional<Range> few_channels(const std::vector<double>& squares, double noise) {
  const double all = std::accumulate(squares.begin(), squares.end(), 0.0);
  std::size_t first = 0;
  std::size_t end = squares.size();
  double outside = 0;
  while (first < end) {
    const double least = std::min(squares[first], squares[end - 1]);
    if (outside + least > noise) break;
    outside += least;
    squares[first] <= squares[end - 1] ? ++first : --end;
  }
  const auto channels = static_cast<double>(squares.size());
  const auto width = static_cast<double>(end - first);
  if (first == end || width == channels) return std::nullopt;
  const double ranges = channels * (channels + 1) / 2;
  if (log_chance(channels - width, channels, outside / all) + std::log(ranges) > std::log(kChance)) return std::nullopt;
  return Range{static_cast<std::int64_t>(first), static_cast<std::int64_t>(end) - 1};
}

/// The sum of the squares of so many relative differences as the furthest row has that does not stand out.
double noise_of(const Measured& pair, std::size_t rows) {
  double furthest = 0;
  std::size_t next = 0;  // of those that stand out
  for (std::size_t i = 0; i < pair.apart.rows.size(); ++i) {
    const RowApart& row = pair.apart.rows[i];
    const bool out = next < pair.floor.out.size() && pair.floor.out[next] == i;
    if (out) ++next;
    if (!out && (!pair.floor.whole || pair.explains(row)) && !row.not_finite)
      furthest = std::max(furthest, row.relative);
  }
  return static_cast<double>(rows) * furthest * furthest;
}

void find_columns(Outstanding& found, Side& a, Side& b, const Measured& pair, const std::vector<RowApart>& rows) {
  const Group& group = a.group(pair.partner.a);
  if (group.meeting() != Meeting::rows && group.meeting() != Meeting::keys) return;
  found.channels = few_channels(squares_by_column(a, b, pair.partner, rows), noise_of(pair, rows.size()));
  const Tensor& tensor = *group.sheets.front().tensor;
  if (!found.channels || tensor.heads <= 1) return;
  const std::int64_t width = std::max<std::int64_t>(1, tensor.width());
  found.heads = Range{found.channels->first / width, found.channels->last / width};
}

/// The pattern of positions of the sequence that has most of them.
void find_pattern_of(Outstanding& found, const Measured& pair, const std::vector<RowApart>& rows) {
  std::map<std::int64_t, std::set<std::int64_t>> marked;
  for (const RowApart& row : rows) marked[row.place.sequence].insert(row.place.position);
  const auto most = std::max_element(marked.begin(), marked.end(),
                                     [](const auto& x, const auto& y) { return x.second.size() < y.second.size(); });
  std::set<std::int64_t> all;
  for (const RowApart& row : pair.apart.rows) {
    if (row.place.sequence == most->first) all.insert(row.place.position);
  }
  found.pattern = find_pattern({all.begin(), all.end()}, {most->second.begin(), most->second.end()});
  std::set<std::int64_t> sequences;
  for (const RowApart& row : pair.apart.rows) sequences.insert(row.place.sequence);
  if (marked.size() == 1 && sequences.size() > 1) found.sequence = most->first;
}

std::string rows_text(const Outstanding& found) {
  std::vector<std::int64_t> positions;
  for (const RowPlace& place : found.places) positions.push_back(place.position);
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  const bool many = positions.size() > kNamed;
  if (many) positions.resize(kNamed);
  return fmt::format("{}{}", fmt::join(positions, ", "), many ? " ..." : "");
}

std::string range_text(const char* noun, const Range& range) {
  return range.first == range.last ? fmt::format("{} {}", noun, range.first)
                                   : fmt::format("{}s {} to {}", noun, range.first, range.last);
}

}  // namespace

std::optional<Outstanding> outstanding(Side& a, Side& b, const Measured& pair) {
  const Floor& floor = pair.floor;
  if (floor.out.empty() && !floor.whole) return std::nullopt;
  Outstanding found;
  found.of = pair.apart.rows.size();
  found.chance = floor.chance;
  found.floor = std::exp(floor.noise ? floor.noise->median : floor.repeated ? floor.repeated->median : -HUGE_VAL);
  std::vector<RowApart> rows;
  for (const std::size_t at : floor.out) rows.push_back(pair.apart.rows[at]);
  if (rows.empty()) {
    std::copy_if(pair.apart.rows.begin(), pair.apart.rows.end(), std::back_inserter(rows),
                 [&](const RowApart& row) { return !pair.explains(row); });
  }
  found.whole = floor.whole;
  found.rows = rows.size();
  std::set<std::size_t> ranks;
  for (const RowApart& row : rows) {
    if (found.places.size() < kListed) found.places.push_back(row.place);
    found.largest = std::max(found.largest, row.relative);
    ranks.insert(row.rank_b);
  }
  const Join join = pair.partner.part_b.join;
  if (ranks.size() == 1 && (join == Join::each || join == Join::replicated)) {
    found.rank = static_cast<std::int64_t>(*ranks.begin());
  }
  find_pattern_of(found, pair, rows);
  find_columns(found, a, b, pair, rows);
  return found;
}

std::string text(const Outstanding& found, const std::string& at, std::int64_t channel, const std::string& values) {
  std::string sentence =
      fmt::format("{} of {} rows {}", found.rows, found.of, found.rows == 1 ? "stands out" : "stand out");
  if (found.whole) sentence += ", and its inputs do not";
  sentence += fmt::format(": position{} {}", found.places.size() == 1 ? "" : "s", rows_text(found));
  if (found.pattern) sentence += fmt::format(" ({})", text(*found.pattern));
  if (found.sequence) sentence += fmt::format(" of sequence {} alone", *found.sequence);
  if (found.rank) sentence += fmt::format(", on rank {}", *found.rank);
  if (found.heads) {
    sentence += ", in " + range_text("head", *found.heads);
  } else if (found.channels) {
    sentence += ", in " + range_text("channel", *found.channels);
  }
  sentence += fmt::format("; off by up to {:.3g} of the row, where half of all rows are off by at most {:.3g}",
                          found.largest, found.floor);
  const std::string chance = found.chance < kLeastChance ? "below 1e-99" : fmt::format("{:.1g}", found.chance);
  sentence += fmt::format(" (chance {}); channel {} of {} is {}", chance, channel, at, values);
  return sentence;
}

}  // namespace nanscope::align
