#include "instrument/diff/floor.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/numbers/format.h"
#include "instrument/recompute/bounds.h"

namespace nanscope::align {
namespace {

constexpr std::size_t kFewestRows = 8;    ///< of which a spread is measured
constexpr std::size_t kFewestLayers = 8;  ///< in which an op is compared with itself alone
constexpr int kBitsOfActivations = 16;    ///< formats of fewer hold codes

bool is_activation(const Group& group) { return group.meeting() != Meeting::whole && group.kind != OpKind::parameter; }

double roundoff_of(const Group& group) { return roundoff(group.sheets.front().tensor->format); }

/// Logarithms of how far rows are off; what is less than one rounding counts as one. Of rows that are partly the same,
/// bit for bit, as those of an engine that cut its work at the same places, those that differ, if these are most.
std::vector<double> logs_of(const Measured& pair) {
  const std::vector<RowApart>& rows = pair.apart.rows;
  const auto differing = std::count_if(rows.begin(), rows.end(), [](const RowApart& row) { return row.differing > 0; });
  const bool all = 2 * differing <= std::ssize(rows);
  std::vector<double> logs;
  for (const RowApart& row : rows) {
    if (all || row.differing > 0) logs.push_back(std::log(std::max(row.relative, pair.floor.rounding)));
  }
  return logs;
}

/// The deviation of a logarithm of a root mean square of so many errors.
double least_spread(const RowApart& row) {
  return 1 / std::sqrt(2 * static_cast<double>(std::max<std::int64_t>(1, row.columns)));
}

class Floors {
 public:
  Floors(Side& a, Side& b, std::vector<Measured>& pairs, const std::vector<Measured>& repeated)
      : a_(a), b_(b), pairs_(pairs) {
    for (const Measured& one : repeated) repeated_.emplace(one.partner.a, &one);
  }

  void run() {
    double coarsest = 0;
    for (Measured& pair : pairs_) {
      bound(pair, coarsest);
      if (!is_activation(a_.group(pair.partner.a)) || pair.apart.rows.empty() || pair.floor.rounding == 0) continue;
      if (pair.apart.rows.size() >= kFewestRows) pair.floor.noise = robust(logs_of(pair));
      const auto again = repeated_.find(pair.partner.a);
      if (again == repeated_.end() || again->second->apart.rows.empty()) continue;
      Measured other{again->second->partner, again->second->apart, pair.floor, {}};
      pair.floor.repeated = robust(logs_of(other));
    }
    // What stands out spoils the noise of all that follows it.
    std::vector<double> healthy;
    bool spoiled = false;
    for (Measured& pair : pairs_) {
      if (pair.chooses) find_choices(pair);
      find_rows(pair, robust(healthy).median);
      spoiled = spoiled || !pair.floor.out.empty();
      if (pair.floor.noise && !spoiled) healthy.push_back(pair.floor.noise->deviation);
    }
    find_wholes();
  }

 private:
  void bound(Measured& pair, double& coarsest) {
    const Group& left = a_.group(pair.partner.a);
    const Group& right = b_.group(pair.partner.b);
    double own = std::max(roundoff_of(left), roundoff_of(right));
    // What is looked up has the format of the weights, whatever the run computes in.
    const bool computed = left.kind != OpKind::embedding && left.kind != OpKind::copy;
    if (pair.apart.narrow && computed && is_activation(left) && !left.is_integer())
      own = std::max(own, roundoff(Format::bf16));
    Floor& floor = pair.floor;
    floor.rounding = own;
    if (left.is_integer() || right.is_integer() || left.meeting() == Meeting::mask) floor.rounding = 0;
    floor.bound = 2 * floor.rounding;
    if (!is_activation(left) || floor.rounding == 0) return;
    const auto bits = [](const Group& group) {
      return 8 * static_cast<int>(info(group.sheets.front().tensor->format).storage_bytes());
    };
    if (std::min(bits(left), bits(right)) >= kBitsOfActivations) coarsest = std::max(coarsest, own);
    floor.rounding = std::max(own, coarsest);
    const std::int64_t depth = std::max(left.depth, right.depth);
    floor.bound = rounding_between_runs(floor.rounding, depth, std::max(left.channels(), right.channels()));
  }

  /// Near a tie, noise decides what is chosen; where the inputs are equal, it cannot.
  void find_choices(Measured& pair) {
    std::set<RowPlace> moved;
    for (const std::size_t input : pair.inputs) {
      for (const RowApart& row : pairs_[input].apart.rows) {
        if (row.differing > 0) moved.insert(row.place);
      }
    }
    for (std::size_t i = 0; i < pair.apart.rows.size(); ++i) {
      const RowApart& row = pair.apart.rows[i];
      if (row.differing == 0) continue;
      if (moved.contains(row.place)) {
        chosen_.insert(row.place);
        pair.floor.chosen.push_back(i);
      } else if (!pair.inputs.empty() && !chosen_.contains(row.place)) {
        pair.floor.out.push_back(i);
      }
    }
    if (!pair.floor.out.empty()) pair.floor.chance = 0;
  }

  /// How much more than its inputs each row of a pair is off, as a logarithm, and over how many columns the difference
  /// of its inputs is spread.
  struct Jumps {
    std::vector<double> logs;
    std::vector<double> spreads;
  };
  Jumps jumps_of(const Measured& pair) const {
    struct Before {
      double relative = 0;
      double spread = 0;
    };
    // Where rows are made of other rows, any of these may have the noise.
    const Op* op = a_.run.op(a_.group(pair.partner.a).sheets.front().tensor->op);
    const bool own_rows = op != nullptr && !pair.inputs.empty() && nanscope::by_row(op->kind);
    std::map<RowPlace, Before> before;
    Before worst;
    const auto take = [&](const Measured& input) {
      for (const RowApart& row : input.apart.rows) {
        if (row.not_finite) continue;
        for (Before* one : {&before[row.place], &worst}) {
          if (row.relative > one->relative) *one = {row.relative, row.spread};
        }
      }
    };
    if (pair.inputs.empty()) {
      for (const Measured* one = pairs_.data(); one != &pair; ++one) take(*one);
    }
    for (const std::size_t input : pair.inputs) take(pairs_[input]);
    Jumps found;
    for (const RowApart& row : pair.apart.rows) {
      const Before input = own_rows || pair.inputs.empty() ? before[row.place] : worst;
      const double after = row.not_finite ? 1 : std::max(row.relative, pair.floor.rounding);
      found.logs.push_back(std::log(after / std::max(input.relative, pair.floor.rounding)));
      // Inputs that are equal have nothing to be amplified.
      found.spreads.push_back(input.relative > 0 ? std::min(input.spread, row.spread) : row.spread);
    }
    return found;
  }

  /// The chance that a row is so far off, as noise and as what its op makes of the noise of its inputs. An element near
  /// zero by a factor f is amplified by as much, and so near it is in one of f cases: in all of several columns with
  /// the product of these chances.
  double chance_of(const Measured& pair, std::size_t at, double usual, const Jumps& jumps, const Robust& jump) {
    const RowApart& row = pair.apart.rows[at];
    double chance = 0;
    for (const auto* known : {&pair.floor.noise, &pair.floor.repeated}) {
      if (!*known) continue;
      const double spread = std::max({(*known)->deviation, usual, least_spread(row)});
      const double far = (std::log(std::max(row.relative, pair.floor.rounding)) - (*known)->median) / spread;
      chance = std::max(chance, student_tail(far, (*known)->freedom));
    }
    const double more = jumps.logs[at] - std::max(0.0, jump.median);
    chance = std::max(chance, student_tail(more / std::max(jump.deviation, least_spread(row)), jump.freedom));
    return std::max(chance, std::exp(-std::max(0.0, more) * std::max(1.0, jumps.spreads[at])));
  }

  void find_rows(Measured& pair, double usual) {
    Floor& floor = pair.floor;
    if (floor.rounding == 0 || (!floor.noise && !floor.repeated)) return;
    Jumps jumps;
    Robust jump;
    double chance = 0;
    for (std::size_t i = 0; i < pair.apart.rows.size(); ++i) {
      const RowApart& row = pair.apart.rows[i];
      if (pair.explains(row)) continue;
      if (jumps.logs.empty()) {
        jumps = jumps_of(pair);
        jump = robust(jumps.logs);
      }
      const double chance_of_row = row.not_finite ? 0 : chance_of(pair, i, usual, jumps, jump);
      if (chance_of_row >= kChance) continue;
      if (chosen_.contains(row.place)) {
        floor.chosen.push_back(i);
        continue;
      }
      chance = std::max(chance, chance_of_row);
      floor.out.push_back(i);
    }
    floor.chance = floor.out.empty() ? 1 : chance;
  }

  /// What its input adds to the noise of a pair, as a logarithm; nothing where it is not measured.
  std::optional<double> jump(const Measured& pair) const {
    if (!pair.floor.noise) return std::nullopt;
    double before = std::log(pair.floor.rounding);
    for (const std::size_t input : pair.inputs) {
      if (pairs_[input].floor.noise) before = std::max(before, pairs_[input].floor.noise->median);
    }
    return std::max(pair.floor.noise->median, std::log(pair.floor.rounding)) - before;
  }

  static bool mostly_beyond(const Measured& pair) {
    const auto beyond = std::count_if(pair.apart.rows.begin(), pair.apart.rows.end(),
                                      [&](const RowApart& row) { return !pair.explains(row); });
    return 2 * beyond > std::ssize(pair.apart.rows);
  }

  void find_wholes() {
    std::vector<double> jumps;
    std::map<std::string, std::vector<double>> by_op;
    for (const Measured& pair : pairs_) {
      const auto one = jump(pair);
      if (!one) continue;
      jumps.push_back(*one);
      by_op[a_.group(pair.partner.a).op].push_back(*one);
    }
    const Robust all = robust(jumps);
    for (Measured& pair : pairs_) {
      const auto one = jump(pair);
      if (!one || !mostly_beyond(pair)) continue;
      const bool inputs_healthy = std::none_of(pair.inputs.begin(), pair.inputs.end(),
                                               [&](std::size_t input) { return mostly_beyond(pairs_[input]); });
      const std::vector<double>& same = by_op[a_.group(pair.partner.a).op];
      const Robust usual = same.size() > kFewestLayers ? robust(same) : all;
      const double spread = std::max(usual.deviation, pair.floor.noise->deviation);
      const double chance = spread > 0 ? student_tail((*one - usual.median) / spread, usual.freedom) : 0;
      if (!inputs_healthy || chance >= kChance) continue;
      pair.floor.whole = true;
      pair.floor.chance = chance;
    }
  }

  Side& a_;
  Side& b_;
  std::vector<Measured>& pairs_;
  std::map<std::size_t, const Measured*> repeated_;
  std::set<RowPlace> chosen_;  ///< that follow another choice
};

}  // namespace

bool Measured::explains(const RowApart& row) const {
  if (row.not_finite) return false;
  return row.largest <= floor.bound * row.size;
}

bool Measured::is_repeated(const RowApart& row) const {
  if (!floor.repeated || row.not_finite) return false;
  const double spread = std::max(floor.repeated->deviation, least_spread(row));
  const double far = (std::log(std::max(row.relative, floor.rounding)) - floor.repeated->median) / spread;
  return student_tail(far, floor.repeated->freedom) >= kChance;
}

void find_floors(Side& a, Side& b, std::vector<Measured>& pairs, const std::vector<Measured>& repeated) {
  Floors(a, b, pairs, repeated).run();
}

}  // namespace nanscope::align
