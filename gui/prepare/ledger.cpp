#include "gui/prepare/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "core/counted.h"
#include "core/numbers/format.h"

namespace nanscope::gui {
namespace {

std::string_view source_name(ScaleSource source) {
  switch (source) {
    case ScaleSource::checkpoint:
      return "taken from the checkpoint";
    case ScaleSource::fixed:
      return "fixed by configuration";
    case ScaleSource::calibrated:
      return "calibrated";
    case ScaleSource::sentinel:
      return "a sentinel, not a scale";
    case ScaleSource::none:
      return "no scale";
  }
  return "unknown";
}

/// Whose values a scale was computed from; a warm-up is request -1.
std::string calibrator(const ScaleRow& row) {
  return row.calibrated_request < 0 ? "the warm-up" : fmt::format("request {}", row.calibrated_request);
}

/// For an order: an undefined headroom says nothing, so it comes last.
double headroom_of(const LedgerEntry& entry) {
  return std::isnan(entry.row.headroom) ? std::numeric_limits<double>::infinity() : entry.row.headroom;
}

class LedgerMaker {
 public:
  explicit LedgerMaker(RunData& run) : run_(run) {}

  Result<Ledger> make() {
    for (const ScaleRow& row : run_.scales()) add(row);
    for (LedgerLine& line : ledger_.lines) finish(line);
    std::sort(ledger_.lines.begin(), ledger_.lines.end(), [](const LedgerLine& a, const LedgerLine& b) {
      return std::tie(a.layer, a.target) < std::tie(b.layer, b.target);
    });
    const std::vector<LedgerEntry>& entries = ledger_.entries;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      ledger_.by_headroom.push_back(i);
      if (entries[i].below()) ledger_.below.push_back(i);
    }
    std::stable_sort(ledger_.by_headroom.begin(), ledger_.by_headroom.end(),
                     [&](std::size_t a, std::size_t b) { return headroom_of(entries[a]) < headroom_of(entries[b]); });
    ledger_.quantized = std::any_of(entries.begin(), entries.end(),
                                    [](const LedgerEntry& entry) { return entry.row.source != ScaleSource::none; });
    for (std::size_t i = 0; i < ledger_.steps.size(); ++i) {
      const bool goes_on = i > 0 && ledger_.steps[i].row.request == ledger_.steps[i - 1].row.request;
      if (!goes_on) ledger_.bands.push_back({i, i});
      ledger_.bands.back().last = i;
    }
    for (const LedgerEntry& entry : entries) {
      ledger_.range.cover(entry.row.absmax);
      if (entry.row.source != ScaleSource::none) ledger_.range.cover(entry.limit);
    }
    say();
    if (Status status = run_.status(); !status) return tl::unexpected(status.error());
    return std::move(ledger_);
  }

 private:
  std::size_t step_index(std::int64_t id) {
    const auto [at, added] = steps_.emplace(id, ledger_.steps.size());
    if (!added) return at->second;
    LedgerStep step;
    if (const StepRow* row = run_.step(id)) step.row = *row;
    if (const RequestRow* request = run_.request(step.row.request)) step.request = request->name;
    ledger_.steps.push_back(std::move(step));
    return at->second;
  }

  LedgerLine& line_of(const ScaleRow& row) {
    const auto [at, added] = lines_.emplace(std::pair(row.layer, row.target), ledger_.lines.size());
    if (added) ledger_.lines.push_back({row.layer, row.target, {}, 0, {}, {}});
    return ledger_.lines[at->second];
  }

  void add(const ScaleRow& row) {
    LedgerEntry entry;
    entry.row = row;
    entry.step = step_index(row.step);
    entry.limit = static_cast<double>(info(row.format).max_finite) * row.scale;
    const StepRow& step = ledger_.steps[entry.step].row;
    Place& place = entry.target.place;
    place.request = step.request;
    place.step = step.index;
    place.layer = row.layer;
    place.op = "kv_store";
    if (const auto op = run_.op(row.op)) place.op = op->name;
    if (const auto codes = run_.output(row.op, row.target + "_codes")) {
      place.role = codes->role;
      entry.elements = codes->health.count;
      entry.clipped = codes->health.clipped;
      entry.nan = codes->health.nan;
    }
    ledger_.of_step[{step.request, step.index}].push_back(ledger_.entries.size());
    line_of(row).entries.push_back(ledger_.entries.size());
    ledger_.entries.push_back(std::move(entry));
  }

  void finish(LedgerLine& line) const {
    const std::vector<LedgerEntry>& entries = ledger_.entries;
    line.lowest = *std::min_element(line.entries.begin(), line.entries.end(), [&](std::size_t a, std::size_t b) {
      return headroom_of(entries[a]) < headroom_of(entries[b]);
    });
    const auto locked = std::find_if(line.entries.begin(), line.entries.end(),
                                     [&](std::size_t entry) { return entries[entry].row.locked; });
    if (locked != line.entries.end()) line.locked = *locked;
    line.setter = set_by(entries[line.locked.value_or(line.entries.front())].row);
  }

  void say() {
    const std::vector<LedgerEntry>& entries = ledger_.entries;
    if (entries.empty()) return;
    const LedgerEntry& worst = entries[ledger_.by_headroom.front()];
    const std::string where = fmt::format("layer {} {} in request {} step {}", worst.row.layer, worst.row.target,
                                          worst.target.place.request.value_or(0), worst.target.place.step.value_or(0));
    const std::string format(name(worst.row.format));
    if (!ledger_.quantized) {
      ledger_.headline = fmt::format("The KV cache is stored as {} without a scale: nothing here can clip", format);
      ledger_.rule = fmt::format("The largest value stored is {}, {} holds up to {}", short_number(worst.row.absmax),
                                 format, short_number(worst.limit));
      return;
    }
    const std::string reach = fmt::format(
        "{} reaches {} where {} \u00D7 {} = {} is the largest value that {} can hold (headroom {})", where,
        short_number(worst.row.absmax), short_number(static_cast<double>(info(worst.row.format).max_finite)),
        short_number(worst.row.scale), short_number(worst.limit), format, headroom_text(worst.row.headroom));
    ledger_.headline = ledger_.below.empty()
                           ? fmt::format("Nothing was clipped: no headroom is below 1 in {} entries", entries.size())
                           : fmt::format("{} of {} entries fell below headroom 1: values were clipped",
                                         ledger_.below.size(), entries.size());
    ledger_.rule = ledger_.below.empty() ? "Closest to clipping: " + reach : reach;
    ledger_.rule += fmt::format(". The scale was {}.", set_by(worst.row));
  }

  RunData& run_;
  Ledger ledger_;
  std::map<std::int64_t, std::size_t> steps_;
  std::map<std::pair<std::int64_t, std::string>, std::size_t> lines_;
};

}  // namespace

Cell LedgerEntry::health() const {
  if (nan > 0) return kNan;
  if (clipped > 0 || below()) return kClipped;
  if (row.headroom < kLowHeadroomBelow) return kLowHeadroom;
  return row.absmax > 0 ? kHealthyLast : kZero;
}

std::optional<std::size_t> Ledger::find(const Selection& selection) const {
  const Place& place = selection.place;
  std::optional<std::size_t> found;
  if (!place.request || !place.step) return found;
  const auto step = of_step.find({*place.request, *place.step});
  if (step == of_step.end()) return found;
  for (const std::size_t i : step->second) {
    const Place& at = entries[i].target.place;
    const bool same = at.layer == place.layer && at.op == place.op && (place.role.empty() || at.role == place.role);
    if (same && (!found || headroom_of(entries[i]) < headroom_of(entries[*found]))) found = i;
  }
  return found;
}

std::string short_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "\u221E" : "-\u221E";
  return fmt::format("{:.4g}", value);
}

std::string headroom_text(double headroom) {
  return std::isfinite(headroom) ? fmt::format("{:.3g}", headroom) : short_number(headroom);
}

std::string set_by(const ScaleRow& row) {
  if (row.source == ScaleSource::none) return "stored without a scale";
  std::string text(source_name(row.source));
  if (row.source == ScaleSource::calibrated) {
    text += fmt::format(" by {} on {} with absmax {}", calibrator(row), counted(row.calibrated_tokens, "token"),
                        short_number(row.calibrated_absmax));
  }
  return fmt::format("{}{} (policy {})", text, row.locked ? ", then locked" : "", row.policy);
}

std::string set_by_briefly(const ScaleRow& row) {
  if (row.source != ScaleSource::calibrated) return std::string(source_name(row.source));
  return fmt::format("{}, {}{}", calibrator(row), counted(row.calibrated_tokens, "token"),
                     row.locked ? ", locked" : "");
}

std::vector<LedgerColumn> squeeze(const Ledger& ledger, const LedgerLine& line, std::size_t columns) {
  std::vector<LedgerColumn> squeezed(std::min(columns, ledger.steps.size()));
  for (const std::size_t index : line.entries) {
    const LedgerEntry& entry = ledger.entries[index];
    LedgerColumn& column = squeezed[entry.step * squeezed.size() / ledger.steps.size()];
    if (!column.worst || headroom_of(entry) < headroom_of(ledger.entries[*column.worst])) column.worst = index;
    column.health = std::max(column.health, entry.health());
    if (entry.row.absmax > 0) column.absmax = std::max(column.absmax, entry.row.absmax);
    column.limit = column.limit > 0 ? std::min(column.limit, entry.limit) : entry.limit;
    column.nan = column.nan || entry.nan > 0;
  }
  return squeezed;
}

std::size_t columns_of(float width) { return static_cast<std::size_t>(std::max(1.0F, width / 2)); }

void LogRange::cover(double value) {
  if (!(value > 0) || std::isinf(value)) return;
  lowest = std::min(lowest, value);
  highest = std::max(highest, value);
}

void LogRange::cover(const LogRange& other) {
  cover(other.lowest);
  cover(other.highest);
}

LogAxis::LogAxis(double lowest, double highest) {
  if (!(lowest > 0) || !std::isfinite(lowest)) lowest = 1;
  if (!(highest >= lowest) || !std::isfinite(highest)) highest = lowest;
  low_ = std::log10(lowest) - kRoom;
  high_ = std::log10(highest) + kRoom;
}

double LogAxis::at(double value) const {
  if (!(value > 0)) return 0;
  return std::clamp((std::log10(value) - low_) / (high_ - low_), 0.0, 1.0);
}

std::vector<double> LogAxis::ticks(std::size_t most) const {
  std::vector<double> found;
  for (const std::vector<double>& digits : {std::vector<double>{1, 2, 5}, {1, 3}, {1}}) {
    found.clear();
    for (int decade = static_cast<int>(std::floor(low_)); decade <= high_; ++decade) {
      for (const double digit : digits) {
        const double at = decade + std::log10(digit);
        if (at >= low_ && at <= high_) found.push_back(digit * std::pow(10.0, decade));
      }
    }
    if (found.size() <= most) return found;
  }
  const std::size_t every = most == 0 ? found.size() : (found.size() + most - 1) / most;
  std::vector<double> thinned;
  for (std::size_t i = 0; i < found.size(); i += std::max<std::size_t>(every, 1)) thinned.push_back(found[i]);
  return thinned;
}

LogAxis axis_of(const Ledger& ledger, std::span<const LogRange> also) {
  LogRange all = ledger.range;
  for (const LogRange& range : also) all.cover(range);
  return {all.lowest, all.highest};
}

Result<Ledger> make_ledger(RunData& run) { return LedgerMaker(run).make(); }

}  // namespace nanscope::gui
