#include "gui/prepare/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "core/counted.h"
#include "core/numbers/format.h"
#include "core/run/scales.h"
#include "gui/prepare/requests_told.h"
#include "gui/prepare/subject.h"
#include "instrument/diagnosis/casts.h"
#include "instrument/recompute/kernel_arithmetic.h"
#include "instrument/recompute/recompute.h"
#include "scenarios/report/text.h"

namespace nanscope::gui {
namespace {

/// Below it values clip. A scale that is made of the largest value itself is rounded to f32, and gives 1 but for that.
constexpr double kClips = 1 - 1e-6;

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
  if (row.calibrated_request == kPaddingRows) return "padding";
  return row.calibrated_request < 0 ? "the warm-up" : fmt::format("request {}", row.calibrated_request);
}

/// For an order: an undefined headroom says nothing, so it comes last.
double headroom_of(const LedgerEntry& entry) {
  return std::isnan(entry.row.headroom) ? std::numeric_limits<double>::infinity() : entry.row.headroom;
}

/// "up_proj input" of up_proj_quantise; scores are what they are called.
std::string activation_name(std::string op) {
  constexpr std::string_view kEnding = "_quantise";
  if (op.ends_with(kEnding)) op.resize(op.size() - kEnding.size());
  return op == "scores" ? op : op + " input";
}

std::string name_of(std::int64_t layer, const std::string& target) {
  return layer < 0 ? target : fmt::format("layer {} {}", layer, target);
}

/// One that cannot be a scale, else that of the largest value.
double telling_scale(const Cast& cast) {
  for (const float one : cast.grid->values()) {
    if (!scale_complaint(double{one}).empty()) return double{one};
  }
  return cast.at_row < 0 ? cast.grid->first() : cast.grid->at(cast.at_row, cast.at_channel);
}

class LedgerMaker {
 public:
  explicit LedgerMaker(RunView& run) : run_(run), facts_(run) {}

  Result<Ledger> make() {
    for (const ScaleRow& row : run_.scales()) add(row);
    if (run_.scales().empty() || run_.info().device == kDumpDevice) add_casts();
    add_weights();
    for (LedgerLine& line : ledger_.lines) finish(line);
    std::stable_sort(ledger_.lines.begin(), ledger_.lines.end(), [](const LedgerLine& a, const LedgerLine& b) {
      const bool weight_a = a.kind == ScaledKind::weight;
      const bool weight_b = b.kind == ScaledKind::weight;
      return std::tie(weight_a, a.layer, a.kind, a.target) < std::tie(weight_b, b.layer, b.kind, b.target);
    });
    order_entries();
    const std::vector<LedgerEntry>& entries = ledger_.entries;
    ledger_.quantized = std::any_of(entries.begin(), entries.end(),
                                    [](const LedgerEntry& entry) { return entry.row.source != ScaleSource::none; });
    for (std::size_t i = 0; i < ledger_.steps.size(); ++i) {
      const bool goes_on =
          i > 0 && ledger_.steps[i].request && ledger_.steps[i].request == ledger_.steps[i - 1].request;
      if (!goes_on) ledger_.bands.push_back({i, i});
      ledger_.bands.back().last = i;
    }
    for (const LedgerEntry& entry : entries) {
      ledger_.names_are_long = ledger_.names_are_long || entry.kind != ScaledKind::cache;
      ledger_.range.cover(entry.row.absmax);
      if (entry.row.source != ScaleSource::none) ledger_.range.cover(entry.limit);
    }
    say();
    if (Status status = run_.status(); !status) return tl::unexpected(status.error());
    return std::move(ledger_);
  }

 private:
  void order_entries() {
    const std::vector<LedgerEntry>& entries = ledger_.entries;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      ledger_.by_headroom.push_back(i);
      if (entries[i].below()) ledger_.below.push_back(i);
    }
    std::stable_sort(ledger_.by_headroom.begin(), ledger_.by_headroom.end(),
                     [&](std::size_t a, std::size_t b) { return headroom_of(entries[a]) < headroom_of(entries[b]); });
  }

  std::size_t step_index(StepId id) {
    const auto [at, added] = steps_.emplace(id, ledger_.steps.size());
    if (!added) return at->second;
    LedgerStep step;
    step.id = id;
    step.title = "weights";
    if (const Step* row = run_.step(id)) {
      step.index = row->index();
      step.title = fmt::format("{} requests", row->spans.size());
      if (row->spans.size() == 1) {
        step.request = row->request();
        step.title = request_name(run_, row->request());
      }
    }
    ledger_.steps.push_back(std::move(step));
    return at->second;
  }

  LedgerLine& line_of(const LedgerEntry& entry) {
    const auto [at, added] = lines_.emplace(entry.name, ledger_.lines.size());
    if (added) {
      ledger_.lines.push_back({entry.row.layer, entry.row.target, entry.name, entry.kind, {}, 0, {}, {}});
    }
    return ledger_.lines[at->second];
  }

  /// An entry with its step, and the place of what was stored.
  void add(LedgerEntry entry, const Op* op, const Tensor* codes, std::optional<std::int64_t> row = {}) {
    const Step* step = run_.step(entry.row.step);
    entry.step = step_index(step != nullptr ? step->id : kBeforeSteps);
    Place& place = entry.target.place;
    place.layer = entry.row.layer;
    place.op = op != nullptr ? op->name : "kv_store";
    if (codes != nullptr) place.role = codes->role;
    const std::size_t index = ledger_.entries.size();
    if (step != nullptr && step->rank > 0) entry.name += fmt::format(" @{}", step->rank);
    if (step == nullptr || step->spans.empty()) ledger_.outside.push_back(index);
    if (step != nullptr && !step->spans.empty()) {
      place.rank = step->rank;
      place.request = step->request();
      place.step = step->index();
      for (const Span& span : step->spans) ledger_.of_step[{step->rank, span.request, span.index}].push_back(index);
      if (row && codes != nullptr) point_at(place, *codes, *row);
    }
    line_of(entry).entries.push_back(index);
    ledger_.entries.push_back(std::move(entry));
  }

  void point_at(Place& place, const Tensor& codes, std::int64_t row) {
    const RowToken token = run_.token_of(codes, row);
    if (token.span == nullptr) return;
    place.request = token.span->request;
    place.step = token.span->index;
    place.token = token.position;
  }

  /// What a recording states.
  void add(const ScaleRow& row) {
    const Op* op = run_.op(row.op);
    LedgerEntry entry;
    entry.row = row;
    const bool activation = target_without_head(row.target) == "x";
    if (activation) {
      entry.kind = ScaledKind::activation;
      if (op != nullptr) entry.row.target = activation_name(op->name);
      if (const auto head = head_of_target(row.target); head >= 0) entry.row.target += fmt::format(" head {}", head);
    }
    entry.name = name_of(row.layer, entry.row.target);
    entry.limit = static_cast<double>(info(row.format).max_finite) * row.scale;
    entry.clips = row.headroom < kClips;
    const Tensor* codes = nullptr;
    if (op != nullptr) codes = activation ? run_.result(*op) : run_.output(*op, row.target + "_codes");
    if (codes != nullptr) {
      entry.elements = codes->health.count;
      entry.clipped = codes->health.clipped;
      entry.nan = codes->health.nan;
    }
    add(std::move(entry), op, codes);
  }

  /// What codes, scales and sources of a dump show.
  void add_casts() {
    KernelArithmetic arithmetic;
    Recomputer recomputer(facts_, arithmetic);
    for (const Cast& cast : casts_of(recomputer.values())) {
      if (cast.ledger == nullptr) add(cast);
    }
  }

  void add(const Cast& cast) {
    const Op* op = run_.op(cast.op);
    const Tensor* codes = run_.tensor(cast.codes);
    if (op == nullptr || codes == nullptr) return;
    // Where each token has a scale of its own that was not dumped, no single one explains the codes.
    const bool known =
        cast.grid && (!cast.implied || storing_of(run_, subject_of(run_, *codes)).value_or(Storing{}).grid);
    LedgerEntry entry;
    entry.kind = cast.target == "x" ? ScaledKind::activation : ScaledKind::cache;
    ScaleRow& row = entry.row;
    row.step = cast.step;
    row.op = cast.op;
    row.layer = cast.layer.value_or(-1);
    row.target = entry.kind == ScaledKind::activation ? activation_name(op->name) : cast.target;
    row.format = cast.format;
    row.source = known ? ScaleSource::calibrated : ScaleSource::none;
    const double largest = static_cast<double>(info(cast.format).max_finite);
    if (known) {
      row.scale = telling_scale(cast);
      entry.grid = cast.grid->single() ? "" : cast.grid->text();
    }
    entry.limit = known ? largest * row.scale : std::numeric_limits<double>::quiet_NaN();
    // Without what was cast, the codes say what can be said.
    const bool seen = known && cast.has_source();
    row.absmax = cast.has_source() ? cast.absmax : static_cast<double>(codes->health.absmax) * row.scale;
    row.headroom = seen && cast.reach > 0 ? cast.headroom() : std::numeric_limits<double>::quiet_NaN();
    const Tensor* scale = run_.tensor(cast.scale);
    entry.origin = known && cast.implied ? "not dumped: it is the one that codes and source show"
                   : scale != nullptr    ? "taken from " + report::printable(facts_.name_of(*scale), {})
                                         : "not dumped, and no single one explains the codes";
    entry.name = name_of(row.layer, row.target);
    entry.elements = static_cast<std::uint64_t>(cast.elements);
    entry.nan = static_cast<std::uint64_t>(cast.bad);
    entry.clips = known && cast.clips();
    entry.clipped = entry.clips ? static_cast<std::uint64_t>(cast.clipped) : 0;
    const bool points = entry.clips && !cast.clipped_rows.empty();
    add(std::move(entry), op, codes, points ? std::optional(cast.clipped_rows.front()) : std::nullopt);
  }

  /// Weights that are codes, with the scales that their products multiply by.
  void add_weights() {
    std::vector<StepId> steps{kBeforeSteps};
    for (const Step& step : run_.steps()) {
      if (run_.info().device == kDumpDevice) steps.push_back(step.id);
    }
    for (const StepId step : steps) {
      for (const Op& op : run_.content(step).ops) {
        if (op.kind != OpKind::parameter) continue;
        for (const TensorId id : op.outputs) {
          const Tensor* weight = run_.tensor(id);
          if (weight != nullptr && weight->known) add_weight(op, *weight);
        }
      }
    }
  }

  void add_weight(const Op& op, const Tensor& weight) {
    const Subject subject = subject_of(run_, weight);
    const std::optional<Storing> storing = storing_of(run_, subject);
    if (!storing || !storing->grid) return;
    LedgerEntry entry;
    entry.kind = ScaledKind::weight;
    ScaleRow& row = entry.row;
    row.step = op.step;
    row.op = op.id;
    row.layer = op.layer.value_or(-1);
    row.target = op.name;
    row.format = weight.format;
    row.source = ScaleSource::checkpoint;
    const std::vector<float>& scales = storing->grid->values();
    row.scale = static_cast<double>(*std::max_element(scales.begin(), scales.end()));
    for (const float one : scales) {
      if (!scale_complaint(double{one}).empty()) row.scale = double{one};
    }
    entry.limit = static_cast<double>(info(weight.format).max_finite) * row.scale;
    row.absmax = static_cast<double>(weight.health.absmax) * row.scale;
    row.headroom = std::numeric_limits<double>::quiet_NaN();  // a weight does not grow
    entry.grid = storing->grid->single() ? "" : storing->grid->text();
    entry.origin = "of the checkpoint";
    entry.name = name_of(row.layer, row.target);
    entry.elements = weight.health.count;
    entry.nan = weight.health.bad();
    entry.target.place.rank = subject.occurrence;
    add(std::move(entry), &op, &weight);
  }

  void finish(LedgerLine& line) const {
    const std::vector<LedgerEntry>& entries = ledger_.entries;
    line.lowest = *std::min_element(line.entries.begin(), line.entries.end(), [&](std::size_t a, std::size_t b) {
      return headroom_of(entries[a]) < headroom_of(entries[b]);
    });
    const auto locked = std::find_if(line.entries.begin(), line.entries.end(),
                                     [&](std::size_t entry) { return entries[entry].row.locked; });
    if (locked != line.entries.end()) line.locked = *locked;
    line.setter = set_by(entries[line.locked.value_or(line.entries.front())]);
  }

  void say() {
    const std::vector<LedgerEntry>& entries = ledger_.entries;
    if (entries.empty()) return;
    const LedgerEntry& worst = entries[ledger_.by_headroom.front()];
    const Place& at = worst.target.place;
    const std::string where =
        at.request ? fmt::format("{} in request {} step {}", worst.name, *at.request, at.step.value_or(0)) : worst.name;
    const std::string format(name(worst.row.format));
    if (!ledger_.quantized && !worst.origin.empty()) {
      ledger_.headline = "No scale was dumped, and codes show none: what was clipped cannot be told";
      ledger_.rule = fmt::format("The largest value that was cast to {} is {}", format, short_number(worst.row.absmax));
      return;
    }
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
    const auto lost = std::count_if(entries.begin(), entries.end(),
                                    [](const LedgerEntry& entry) { return std::isnan(entry.row.scale); });
    if (lost > 0 && ledger_.below.empty()) {
      ledger_.headline =
          fmt::format("{} of {} scales are NaN: nothing that they scale is a number", lost, entries.size());
    }
    ledger_.rule = ledger_.below.empty() ? "Closest to clipping: " + reach : reach;
    ledger_.rule += fmt::format(". The scale was {}.", set_by(worst));
  }

  RunView& run_;
  Facts facts_;
  Ledger ledger_;
  std::map<StepId, std::size_t> steps_;
  std::map<std::string, std::size_t> lines_;
};

}  // namespace

Cell LedgerEntry::health() const {
  if (nan > 0) return kNan;
  if (clipped > 0 || below()) return kClipped;
  if (row.headroom < kLowHeadroomBelow) return kLowHeadroom;  // never of a NaN
  return row.absmax > 0 ? kHealthyLast : kZero;
}

std::optional<std::size_t> Ledger::find(const Selection& selection) const {
  const Place& place = selection.place;
  std::optional<std::size_t> found;
  const std::vector<std::size_t>* among = &outside;
  if (place.request && place.step) {
    const auto step = of_step.find({place.rank, *place.request, *place.step});
    if (step == of_step.end()) return found;
    among = &step->second;
  }
  for (const std::size_t i : *among) {
    const Place& at = entries[i].target.place;
    const bool same = at.rank == place.rank && at.layer == place.layer && at.op == place.op &&
                      (place.role.empty() || at.role == place.role);
    if (same && (!found || headroom_of(entries[i]) < headroom_of(entries[*found]))) found = i;
  }
  return found;
}

bool has_headroom(const LedgerEntry& entry) { return entry.origin.empty() || !std::isnan(entry.row.headroom); }

std::string short_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "\u221E" : "-\u221E";
  return fmt::format("{:.4g}", value);
}

std::string headroom_text(double headroom) {
  if (!std::isfinite(headroom)) return short_number(headroom);
  return headroom > std::ldexp(1, kFarPowers) ? fmt::format("> 2^{}", kFarPowers) : fmt::format("{:.3g}", headroom);
}

std::string set_by(const LedgerEntry& entry) {
  const ScaleRow& row = entry.row;
  if (row.source == ScaleSource::none)
    return entry.origin.empty() ? "stored without a scale" : "its scale was " + entry.origin;
  if (!entry.origin.empty()) return entry.grid.empty() ? entry.origin : entry.origin + ", " + entry.grid;
  std::string text(source_name(row.source));
  if (row.source == ScaleSource::calibrated) {
    text += fmt::format(" by {} on {} with absmax {}", calibrator(row), counted(row.calibrated_tokens, "token"),
                        short_number(row.calibrated_absmax));
  }
  return fmt::format("{}{} (policy {})", text, row.locked ? ", then locked" : "", row.policy);
}

std::string set_by_briefly(const LedgerEntry& entry) {
  const ScaleRow& row = entry.row;
  if (!entry.origin.empty() && row.source != ScaleSource::none) {
    return entry.grid.empty() ? entry.origin : entry.grid;
  }
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

Result<Ledger> make_ledger(RunView& run) { return LedgerMaker(run).make(); }

}  // namespace nanscope::gui
