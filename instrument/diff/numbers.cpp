#include "instrument/diff/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "core/counted.h"
#include "instrument/diff/outstanding.h"
#include "instrument/recompute/bounds.h"

namespace nanscope::align {
namespace {

constexpr std::size_t kMostSteps = 64;  ///< back through what was not compared

class Reporter {
 public:
  Reporter(Side& a, Side& b, Facts& facts, std::size_t limit, DiffReport& report)
      : a_(a), b_(b), facts_(facts), limit_(limit), report_(report) {}

  void run(const std::vector<Measured>& pairs) {
    std::vector<const Measured*> out;
    std::vector<const Measured*> beyond;
    for (const Measured& pair : pairs) {
      note_floor(pair);
      const bool differs = count(pair);
      const bool stands_out = !pair.floor.out.empty() || pair.floor.whole;
      report_.outstanding += stands_out ? 1 : 0;
      // Parameters have no noise: another one is there before all that reads it.
      if (stands_out || (differs && !pair.floor.noise && a_.group(pair.partner.a).kind == OpKind::parameter)) {
        out.push_back(&pair);
      } else if (differs) {
        beyond.push_back(&pair);
      }
    }
    const std::size_t before = report_.differences.size();
    for (const auto* all : {&out, &beyond}) {
      for (const Measured* pair : *all) {
        if (report_.differences.size() - before < limit_) report_.differences.push_back(described(*pair));
      }
    }
  }

 private:
  void note_floor(const Measured& pair) {
    if (!pair.floor.noise) return;
    const Group& group = a_.group(pair.partner.a);
    report_.floor.push_back({group.text(), group.layer, group.op, pair.apart.rows.size(),
                             std::exp(pair.floor.noise->median), pair.floor.noise->deviation, pair.floor.bound});
  }

  /// Each tensor of A by itself. Whether one differs by more than rounding or noise.
  bool count(const Measured& pair) {
    enum class Found : std::uint8_t { equal, rounding, noise, beyond };
    std::map<std::size_t, Found> sheets;
    for (const RowApart& row : pair.apart.rows) {
      Found& sheet = sheets.try_emplace(row.a.sheet, Found::equal).first->second;
      const Found one = row.differing == 0      ? Found::equal
                        : pair.explains(row)    ? Found::rounding
                        : pair.is_repeated(row) ? Found::noise
                                                : Found::beyond;
      sheet = std::max(sheet, one);
    }
    bool differs = false;
    for (const auto& [sheet, found] : sheets) {
      ++report_.compared;
      report_.equal += found == Found::equal ? 1 : 0;
      report_.rounding += found == Found::rounding ? 1 : 0;
      report_.noise += found == Found::noise ? 1 : 0;
      report_.differing += found == Found::beyond ? 1 : 0;
      differs = differs || found == Found::beyond;
    }
    return differs;
  }

  Difference described(const Measured& pair) {
    Difference found;
    const double size = std::sqrt(pair.apart.square);
    const RowApart* worst = nullptr;
    for (const RowApart& row : pair.apart.rows) {
      found.count += row.columns;
      found.differing += row.differing;
      found.relative = std::max(found.relative, size > 0 ? row.largest / size : row.largest);
      if (pair.explains(row)) continue;
      if (worst == nullptr || (row.not_finite && !worst->not_finite)) worst = &row;
    }
    if (!pair.floor.out.empty()) worst = &pair.apart.rows[pair.floor.out.front()];
    if (worst == nullptr) worst = &pair.apart.rows.front();
    const Group& group = a_.group(pair.partner.a);
    const Tensor& tensor = *group.sheets[worst->a.sheet].tensor;
    found.kind = worst->not_finite ? DifferenceKind::not_finite : DifferenceKind::content;
    found.a = tensor;
    found.b = *b_.group(pair.partner.b).sheets[worst->b.sheet].tensor;
    found.token = worst->a.row;
    found.first = worst->a.row * tensor.channels + worst->channel;
    found.value_a = double{worst->value_a};
    found.value_b = double{worst->value_b};
    found.expected = size > 0 ? pair.floor.bound * worst->size / size : 0;
    const Range channel{worst->channel, worst->channel};
    found.where = facts_.where(tensor, Range{found.token, found.token},
                               group.meeting() == Meeting::scores ? std::nullopt : std::optional(channel));
    found.outstanding = outstanding(a_, b_, pair);
    found.is_noise = pair.floor.noise && !found.outstanding && !worst->not_finite;
    found.summary = summary(found, *worst);
    return found;
  }

  std::string summary(const Difference& found, const RowApart& row) const {
    const std::string name = found.a->name.empty() ? place_text(found.where) : found.a->name;
    const std::string values = fmt::format("{:.9g} in A, {:.9g} in B", found.value_a, found.value_b);
    const std::string at =
        row.place.sequence < 0 ? fmt::format("row {}", row.a.row) : fmt::format("token {}", row.place.position);
    if (found.outstanding) return fmt::format("{}: {}", name, text(*found.outstanding, at, row.channel, values));
    if (found.kind == DifferenceKind::not_finite) {
      return fmt::format("{}: channel {} of {} is {}; {} of {} elements differ", name, row.channel, at, values,
                         found.differing, found.count);
    }
    const char* noise = found.is_noise ? "; no row stands out of the noise" : "";
    return fmt::format(
        "{}: {} of {} elements differ, by up to {:.3g} of the root mean square where rounding explains {:.3g}{}; "
        "channel {} of {} is {}",
        name, found.differing, found.count, found.relative, found.expected, noise, row.channel, at, values);
  }

  Side& a_;
  Side& b_;
  Facts& facts_;
  std::size_t limit_;
  DiffReport& report_;
};

}  // namespace

void link_inputs(Side& a, std::vector<Measured>& pairs) {
  std::map<std::size_t, std::vector<std::size_t>> by_group;
  for (std::size_t i = 0; i < pairs.size(); ++i) by_group[pairs[i].partner.a].push_back(i);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Group& group = a.group(pairs[i].partner.a);
    std::set<std::size_t> found;
    std::vector<const Op*> queue{a.run.op(group.sheets.front().tensor->op)};
    std::set<OpId> seen;
    for (std::size_t at = 0; at < queue.size() && seen.size() < kMostSteps; ++at) {
      if (queue[at] == nullptr || !seen.insert(queue[at]->id).second) continue;
      for (const Input& input : queue[at]->inputs) {
        const Tensor* tensor = a.run.tensor(input.tensor);
        if (tensor == nullptr) continue;
        const auto of = a.groups.of(tensor->id);
        const auto pair = of ? by_group.find(*of) : by_group.end();
        if (pair == by_group.end()) {
          queue.push_back(a.run.maker(*tensor));
        } else if (!by_group[pairs[i].partner.a].empty() && *of != pairs[i].partner.a) {
          found.insert(pair->second.begin(), pair->second.end());
        }
      }
    }
    pairs[i].inputs.assign(found.begin(), found.end());
  }
}

void report_numbers(Side& a, Side& b, Facts& facts, const std::vector<Measured>& pairs, std::size_t limit,
                    DiffReport& report) {
  Reporter(a, b, facts, limit, report).run(pairs);
}

Difference stated_difference(const Group& left, const Group& right) {
  Health a = empty_health();
  Health b = empty_health();
  Difference found;
  for (const Sheet& sheet : left.sheets) merge(a, sheet.tensor->health);
  for (const Sheet& sheet : right.sheets) merge(b, sheet.tensor->health);
  found.a = *left.sheets.front().tensor;
  found.b = *right.sheets.front().tensor;
  found.expected =
      rounding_between_runs(std::max(roundoff(found.a->format), roundoff(found.b->format)),
                            std::max(left.depth, right.depth), std::max(left.channels(), right.channels()));
  const auto apart = [&](float x, float y) {
    if (x == y || (std::isnan(x) && std::isnan(y))) return false;
    if (!std::isfinite(x) || !std::isfinite(y)) return true;
    return std::abs(double{x} - double{y}) > found.expected * std::max(std::abs(double{x}), std::abs(double{y}));
  };
  const bool bad =
      (a.nan > 0) != (b.nan > 0) || (a.pos_inf > 0) != (b.pos_inf > 0) || (a.neg_inf > 0) != (b.neg_inf > 0);
  found.kind = bad ? DifferenceKind::not_finite : DifferenceKind::content;
  for (const Sheet& sheet : left.sheets) found.count += sheet.tensor->count();
  if (bad || apart(a.min, b.min) || apart(a.max, b.max) || apart(a.absmax, b.absmax)) found.differing = found.count;
  found.value_a = double{a.absmax};
  found.value_b = double{b.absmax};
  found.summary = fmt::format("{}: what was measured of it differs: up to {:.9g} in A, {:.9g} in B", found.a->name,
                              found.value_a, found.value_b);
  return found;
}

}  // namespace nanscope::align
