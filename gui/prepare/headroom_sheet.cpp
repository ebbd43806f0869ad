#include "gui/prepare/headroom_sheet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/counted.h"
#include "core/numbers/format.h"
#include "gui/prepare/requests_told.h"
#include "scenarios/report/text.h"

namespace nanscope::gui {
namespace {

constexpr std::uint32_t kNoTensor = HeadroomSheet::kNoTensor;
constexpr double kNearLimit = 1e5;  ///< times the largest |x|: above, an axis that holds the limit shows nothing else

/// Steps of the ramp a power of two, near the limit and farther off.
constexpr int kFineSteps = 4;
constexpr int kFinePowers = 6;
static_assert(kRampPowers == kHealthySteps - kFinePowers * (kFineSteps - 1));

/// Colour of a healthy |x|.
Cell absmax_cell(double magnitude) {
  Health health{};
  health.count = 1;
  health.absmax = static_cast<float>(magnitude);
  return cell_of(health, 0);
}

std::string said(const std::string& text) { return report::printable(text, {}); }

class HeadroomMaker {
 public:
  HeadroomMaker(RunView& run, std::shared_ptr<const TensorIndex> index) : run_(run), index_(*index) {
    sheet_.index = std::move(index);
  }

  Result<HeadroomSheet> make() {
    lay_out();
    const std::size_t cells = sheet_.steps.size() * sheet_.groups.size();
    sheet_.by_headroom.assign(cells, kAbsent);
    sheet_.by_absmax.assign(cells, kAbsent);
    sheet_.closest.assign(cells, kNoTensor);
    sheet_.largest.assign(cells, kNoTensor);
    for (std::size_t i = 0; i < index_.size(); ++i) add(i);
    for (std::size_t cell = 0; cell < cells; ++cell) colour(cell);
    say();
    if (Status status = run_.status(); !status) return tl::unexpected(status.error());
    return std::move(sheet_);
  }

 private:
  /// Columns are steps that work for somebody, rows are layers that have a tensor in one.
  void lay_out() {
    sheet_.column_of.assign(index_.steps.size(), kNoTensor);
    for (std::size_t i = 0; i < index_.steps.size(); ++i) {
      const IndexStep& step = index_.steps[i];
      if (!step.request) continue;
      sheet_.column_of[i] = static_cast<std::uint32_t>(sheet_.steps.size());
      HeadroomStep one{static_cast<std::uint32_t>(i), {}, step.index, counted(step.sequences, "request")};
      if (step.sequences == 1) {
        one.request = step.request;
        one.title = name_of(*step.request);
      }
      sheet_.steps.push_back(std::move(one));
    }
    for (std::size_t i = 0; i < sheet_.steps.size(); ++i) {
      const bool goes_on = i > 0 && sheet_.steps[i].request && sheet_.steps[i].request == sheet_.steps[i - 1].request;
      if (!goes_on) sheet_.bands.push_back({i, i});
      sheet_.bands.back().last = i;
    }
    std::vector<bool> used(index_.rows.size());
    for (std::size_t i = 0; i < index_.size(); ++i) {
      if (sheet_.column_of[index_.step[i]] != kNoTensor) used[index_.row[i]] = true;
    }
    sheet_.group_of.assign(index_.rows.size(), kNoTensor);
    for (std::size_t row = 0; row < index_.rows.size(); ++row) {
      if (!used[row]) continue;
      const std::string& group = index_.rows[row].group;
      if (sheet_.groups.empty() || sheet_.groups.back() != group) sheet_.groups.push_back(group);
      sheet_.group_of[row] = static_cast<std::uint32_t>(sheet_.groups.size() - 1);
    }
  }

  const std::string& name_of(std::int64_t request) {
    const auto [at, added] = names_.try_emplace(request);
    if (added) at->second = request_name(run_, request);
    return at->second;
  }

  /// What is not healthy before what is, then by headroom; nothing is told where that means nothing.
  bool closer(std::size_t a, std::uint32_t b) const {
    if (b == kNoTensor) return true;
    const auto severity = [this](std::size_t i) { return index_.cell[i] >= kLowHeadroom ? index_.cell[i] : kAbsent; };
    if (severity(a) != severity(b)) return severity(a) > severity(b);
    if (severity(a) >= kInf) return false;  // the first one is where it came from
    const auto room = [this](std::size_t i) {
      return index_.headroom[i] > 0 ? index_.headroom[i] : std::numeric_limits<double>::infinity();
    };
    return room(a) < room(b);
  }

  void add(std::size_t i) {
    const std::optional<std::int64_t> column = sheet_.column(i);
    const std::optional<std::int64_t> row = sheet_.row(i);
    if (!column || !row || index_.cell[i] == kAbsent) return;
    const std::size_t cell = sheet_.cell(*column, *row);
    const auto tensor = static_cast<std::uint32_t>(i);
    if (closer(i, sheet_.closest[cell])) sheet_.closest[cell] = tensor;
    std::uint32_t& largest = sheet_.largest[cell];
    if (largest == kNoTensor || index_.magnitude[i] > index_.magnitude[largest]) largest = tensor;
    sheet_.by_headroom[cell] = std::max(sheet_.by_headroom[cell], index_.cell[i]);  // its severity, until colour()
    if (index_.cell[i] >= kLowHeadroom && !sheet_.warning) sheet_.warning = i;
    if (index_.cell[i] >= kInf && !sheet_.first_bad) sheet_.first_bad = i;
    const bool healthy = index_.cell[i] < kLowHeadroom && index_.headroom[i] > 0;
    if (healthy && (!sheet_.least || index_.headroom[i] < index_.headroom[*sheet_.least])) sheet_.least = i;
  }

  void colour(std::size_t cell) {
    const std::uint32_t closest = sheet_.closest[cell];
    const std::uint32_t largest = sheet_.largest[cell];
    if (closest == kNoTensor) return;
    if (sheet_.by_headroom[cell] >= kLowHeadroom) {
      sheet_.by_absmax[cell] = sheet_.by_headroom[cell];
      return;
    }
    const double room = index_.headroom[closest];
    sheet_.by_headroom[cell] = room > 0 ? headroom_cell(room) : kZero;
    sheet_.by_absmax[cell] = absmax_cell(static_cast<double>(index_.magnitude[largest]));
  }

  std::string tensor_said(std::size_t i) const {
    return said(index_.name(i).empty() ? to_string(index_.place(i)) : index_.name(i));
  }

  std::string step_said(std::size_t i) const {
    const IndexStep& step = index_.steps[index_.step[i]];
    return fmt::format("request {} step {}", step.request.value_or(0), step.index);
  }

  /// "has headroom 1.12", "is clipped, headroom 0.43".
  std::string state_said(std::size_t i) const {
    const bool clipped = index_.cell[i] == kClipped;
    if (!(index_.headroom[i] > 0)) return clipped ? "is clipped" : std::string(cell_name(index_.cell[i]));
    return fmt::format("{} headroom {}", clipped ? "is clipped," : "has", headroom_text(index_.headroom[i]));
  }

  /// "5 steps before the first NaN".
  std::string lead_said(std::size_t warning) const {
    if (!sheet_.first_bad) return "; no NaN and no Inf followed";
    const std::size_t bad = *sheet_.first_bad;
    const std::int64_t steps = *sheet_.column(bad) - *sheet_.column(warning);
    if (steps > 0) return fmt::format(", {} before the first {}", counted(steps, "step"), cell_name(index_.cell[bad]));
    return fmt::format(", {} before the first {} in the same step", counted(bad - warning, "tensor"),
                       cell_name(index_.cell[bad]));
  }

  void say() {
    if (sheet_.steps.empty() || sheet_.groups.empty()) return;
    if (!sheet_.warning) {
      sheet_.headline = fmt::format(
          "No warning: no headroom is below {}, nothing was clipped, there is no NaN and no Inf", kLowHeadroomBelow);
      if (sheet_.least) {
        sheet_.rule = fmt::format("The least headroom is {}: {}", headroom_text(index_.headroom[*sheet_.least]),
                                  reach_said(*sheet_.least));
      }
      return;
    }
    const std::size_t first = *sheet_.warning;
    if (index_.cell[first] >= kInf) {
      sheet_.headline = fmt::format("Nothing warned: the first sign is the {} of {}, in {}",
                                    cell_name(index_.cell[first]), tensor_said(first), step_said(first));
      if (sheet_.least) sheet_.rule = "The least headroom of what is healthy: " + reach_said(*sheet_.least);
      return;
    }
    sheet_.headline = fmt::format("Earliest warning: {} {} in {}{}", tensor_said(first), state_said(first),
                                  step_said(first), lead_said(first));
    sheet_.rule = reach_said(first);
    if (!sheet_.first_bad) return;
    const std::size_t bad = *sheet_.first_bad;
    sheet_.rule += fmt::format(". The first {} is in {}", cell_name(index_.cell[bad]), tensor_said(bad));
  }

  /// "x reaches 103.6 where 448 is the largest that e4m3 under its scale can hold".
  std::string reach_said(std::size_t i) const {
    const double limit = limit_of(index_, i);
    const bool scaled = info(index_.format[i]).storage_bytes() < 2;
    const std::string format(name(index_.format[i]));
    if (!(limit > 0)) return fmt::format("{} is stored as {}", tensor_said(i), format);
    return fmt::format("{} reaches {} where {} is the largest value that {}{} can hold", tensor_said(i),
                       short_number(static_cast<double>(index_.magnitude[i])), short_number(limit), format,
                       scaled ? " under its scale" : "");
  }

  RunView& run_;
  const TensorIndex& index_;
  std::map<std::int64_t, std::string> names_;
  HeadroomSheet sheet_;
};

}  // namespace

Cell headroom_cell(double headroom) {
  if (!(headroom > 0)) return kZero;
  const double powers = std::log2(headroom);
  const double down = powers < kFinePowers ? powers * kFineSteps : kFinePowers * kFineSteps + powers - kFinePowers;
  return static_cast<Cell>(kHealthyLast - static_cast<int>(std::clamp(std::floor(down), 0.0, kHealthySteps - 1.0)));
}

double limit_of(const TensorIndex& index, std::size_t tensor) {
  if (!(index.headroom[tensor] > 0)) return std::numeric_limits<double>::quiet_NaN();
  if (info(index.format[tensor]).storage_bytes() >= 2) {
    return static_cast<double>(info(index.format[tensor]).max_finite);
  }
  return index.headroom[tensor] * static_cast<double>(index.magnitude[tensor]);
}

std::optional<std::size_t> HeadroomSheet::tensor(StripBy by, std::int64_t column, std::int64_t row) const {
  if (column < 0 || column >= columns() || row < 0 || row >= rows()) return std::nullopt;
  const std::uint32_t found = (by == StripBy::headroom ? closest : largest)[cell(column, row)];
  return found == kNoTensor ? std::nullopt : std::optional<std::size_t>(found);
}

std::optional<std::int64_t> HeadroomSheet::column(std::size_t tensor) const {
  const std::uint32_t at = column_of[index->step[tensor]];
  return at == kNoTensor ? std::nullopt : std::optional<std::int64_t>(at);
}

std::optional<std::int64_t> HeadroomSheet::row(std::size_t tensor) const {
  const std::uint32_t at = group_of[index->row[tensor]];
  return at == kNoTensor ? std::nullopt : std::optional<std::int64_t>(at);
}

Result<HeadroomSheet> make_headroom_sheet(RunView& run, std::shared_ptr<const TensorIndex> index) {
  return HeadroomMaker(run, std::move(index)).make();
}

HeadroomCurve make_headroom_curve(const HeadroomSheet& sheet, std::size_t tensor, std::int64_t begin, std::int64_t end,
                                  std::size_t most) {
  const TensorIndex& index = *sheet.index;
  HeadroomCurve curve;
  const std::optional<std::int64_t> row = sheet.row(tensor);
  begin = std::clamp<std::int64_t>(begin, 0, sheet.columns());
  end = std::clamp<std::int64_t>(end, begin, sheet.columns());
  if (!row || begin == end) return curve;
  const std::int64_t wide = end - begin;
  curve.points.resize(std::min(std::max<std::size_t>(most, 1), static_cast<std::size_t>(wide)));
  const auto point_of = [&](std::int64_t column) -> HeadroomCurve::Point& {
    return curve.points[static_cast<std::size_t>((column - begin) * std::ssize(curve.points) / wide)];
  };
  const std::string op = index.op(tensor).op;
  curve.name =
      fmt::format("{} {}.{}", sheet.groups[static_cast<std::size_t>(*row)], said(op), said(index.role_of(tensor)));
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (index.row[i] != index.row[tensor] || index.role[i] != index.role[tensor]) continue;
    const std::optional<std::int64_t> column = sheet.column(i);
    if (!column || *column < begin || *column >= end) continue;
    HeadroomCurve::Point& point = point_of(*column);
    point.absmax = std::max(point.absmax, static_cast<double>(index.magnitude[i]));
    const double limit = limit_of(index, i);
    if (limit > 0) point.limit = point.limit > 0 ? std::min(point.limit, limit) : limit;
    point.health = std::max(point.health, index.cell[i]);
  }
  for (std::int64_t column = begin; column < end; ++column) {
    const std::uint32_t largest = sheet.largest[sheet.cell(column, *row)];
    if (largest == kNoTensor) continue;
    HeadroomCurve::Point& point = point_of(column);
    point.layer = std::max(point.layer, static_cast<double>(index.magnitude[largest]));
  }
  for (const HeadroomCurve::Point& point : curve.points) {
    for (const double value : {point.absmax, point.layer}) curve.range.cover(value);
    if (point.limit > 0) curve.limit = curve.limit > 0 ? std::min(curve.limit, point.limit) : point.limit;
  }
  curve.near = curve.limit > 0 && curve.limit < kNearLimit * std::max(curve.range.highest, 1.0);
  for (const HeadroomCurve::Point& point : curve.points) {
    if (curve.near) curve.range.cover(point.limit);
  }
  return curve;
}

}  // namespace nanscope::gui
