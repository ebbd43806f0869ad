#include "gui/prepare/error_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "core/counted.h"
#include "gui/prepare/map_tokens.h"
#include "gui/prepare/subject.h"
#include "scenarios/report/verify_words.h"

namespace nanscope::gui {
namespace {

constexpr double kLeastDistance = 0x1p-8;  ///< what is closer takes the first colour

/// Of each row of a tensor what its cells show.
std::vector<Cell> rows_of(const ErrorSpan& span, const Tensor& tensor) {
  Cell others = span.skipped ? kErrorNotChecked : kErrorNotSeen;
  // Tables and weights are looked at whole, and not row by row.
  if (span.checked && span.checked->distances.empty()) others = error_cell(worst_distance(*span.checked));
  std::vector<Cell> rows(static_cast<std::size_t>(tensor.tokens), others);
  const auto set = [&](std::int64_t at, Cell cell) {
    if (at >= 0 && at < tensor.tokens) rows[static_cast<std::size_t>(at)] = cell;
  };
  if (span.checked) {
    for (const RowDistance& one : span.checked->distances) set(one.row, error_cell(double{one.largest}));
    for (const std::int64_t one : span.checked->not_finite) set(one, kErrorNotFinite);
  }
  return rows;
}

}  // namespace

double worst_distance(const VerifiedOutput& one) {
  if (!one.not_finite.empty()) return std::numeric_limits<double>::infinity();
  double worst = one.worst.row >= 0 ? one.worst.ratio : 0;
  for (const RowDistance& row : one.distances) worst = std::fmax(worst, double{row.largest});
  return worst;
}

bool is_unexplained(const VerifiedOutput& one) { return one.off && certainty(one) == HowSure::none; }

Cell error_cell(double distance) {
  if (std::isnan(distance)) return kErrorAbsent;
  if (distance <= kLeastDistance) return kErrorFirst;
  if (distance <= 1)
    return static_cast<Cell>(kErrorWithin +
                             std::max(kErrorFirst - kErrorWithin, static_cast<int>(std::ceil(std::log2(distance)))));
  const double step = std::min(std::log10(distance) * kErrorStepsPerDecade, double{kErrorLast - kErrorBeyond});
  return static_cast<Cell>(kErrorBeyond + static_cast<int>(step));
}

double error_from(Cell cell) {
  if (cell <= kErrorFirst) return 0;
  if (cell <= kErrorWithin) return std::ldexp(1.0, cell - kErrorWithin - 1);
  return std::pow(10.0, static_cast<double>(cell - kErrorBeyond) / kErrorStepsPerDecade);
}

std::string error_words(Cell cell) {
  switch (cell) {
    case kErrorAbsent:
      return "nothing was dumped";
    case kErrorWaits:
      return "not checked yet";
    case kErrorNotChecked:
      return "not checked";
    case kErrorNotSeen:
      return "this row was left out: the op has too many";
    case kErrorNotFinite:
      return "NaN or Inf where the model has a number";
    case kErrorLast:
      return fmt::format("off by {:.0e} times the bound or more", error_from(cell));
    default:
      break;
  }
  const double to = error_from(static_cast<Cell>(cell + 1));
  if (cell <= kErrorWithin) return fmt::format("within the bound: at most {:.2g} of it", to);
  return fmt::format("off by {:.3g} to {:.3g} times the bound", error_from(cell), to);
}

const ErrorSpan* ErrorMap::span_at(std::int64_t column, std::size_t row) const {
  const ErrorSpan* worst = nullptr;
  for (const ErrorSpan& span : spans) {
    if (span.row != row || column < span.begin || column >= span.end) continue;
    const bool further = worst == nullptr || !worst->checked ||
                         (span.checked && worst_distance(*span.checked) > worst_distance(*worst->checked));
    if (further) worst = &span;
  }
  return worst;
}

std::size_t ErrorMap::unexplained() const {
  if (!findings) return 0;
  return static_cast<std::size_t>(std::count_if(findings->checked.begin(), findings->checked.end(),
                                                [](const auto& one) { return is_unexplained(*one); }));
}

std::string ErrorMap::words() const {
  if (!findings) return "opening";
  if (!findings->problem.empty()) return findings->problem;
  const std::size_t off = findings->off();
  const std::string checked = counted(findings->checked.size(), "output");
  const std::string so_far = findings->complete ? "" : findings->ended ? " before it was stopped" : " so far";
  if (off == 0) return fmt::format("the model's: none of {} is further off than rounding{}", checked, so_far);
  return fmt::format("not the model's: {} of {} {} further off than rounding{}", off, checked, off == 1 ? "is" : "are",
                     so_far);
}

std::optional<Selection> ErrorMap::first() const {
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (findings->checked[i]->off) return places[i];
  }
  return std::nullopt;
}

std::string verified_words(const VerifiedOutput& one) {
  if (!one.off) {
    const std::string words = fmt::format("{} of {} within the bound", one.explained, counted(one.elements, "element"));
    return one.worst.row < 0 ? words : fmt::format("{}, one {:.3g} times", words, one.worst.ratio);
  }
  return report::verified_off(one);
}

ErrorMapMaker::ErrorMapMaker(std::shared_ptr<const RunMap> map, RunView& run)
    : map_(std::move(map)), run_(run), cache_(run) {
  out_.columns = map_->columns;
  out_.cells.resize(map_->cells.size());
  std::transform(map_->cells.begin(), map_->cells.end(), out_.cells.begin(),
                 [](Cell cell) { return cell == kAbsent ? kErrorAbsent : kErrorWaits; });
  for (std::size_t i = map_->steps.size(); i-- > 0;)
    first_of_step_[map_->steps[i].row.id] = static_cast<std::uint32_t>(i);
  for (const MapOp& op : map_->ops) row_of_.emplace(op.id, op.row);
  const auto name = [&](StepId step) {
    for (const Tensor& tensor : run_.content(step).tensors) {
      const Op* op = run_.maker(tensor);
      if (tensor.known && op != nullptr && !tensor.name.empty())
        by_name_.emplace(tensor.name, Known{tensor.id, op->name, tensor.role});
    }
  };
  name(kBeforeSteps);
  for (const Step& step : run_.steps()) name(step.id);
}

const Tensor* ErrorMapMaker::find(const std::string& name, const std::string& op, const std::string& role) const {
  const auto [begin, end] = by_name_.equal_range(name);
  for (auto at = begin; at != end; ++at) {
    if ((at->second.op == op && at->second.role == role) || std::next(begin) == end)
      return run_.tensor(at->second.tensor);
  }
  return nullptr;
}

void ErrorMapMaker::add(std::shared_ptr<const Findings> findings) {
  for (; checked_ < findings->checked.size(); ++checked_) {
    const auto& one = findings->checked[checked_];
    const Tensor* tensor = find(one->name, one->op, one->role);
    if (tensor != nullptr) add({0, 0, 0, one, nullptr}, *tensor);
    out_.places.push_back(tensor != nullptr ? std::optional(place_of(*one, *tensor)) : std::nullopt);
  }
  for (; skipped_ < findings->not_checked.size(); ++skipped_) {
    const auto& one = findings->not_checked[skipped_];
    if (const Tensor* tensor = find(one->name, one->op, one->role)) add({0, 0, 0, nullptr, one}, *tensor);
  }
  if (findings->complete) std::replace(out_.cells.begin(), out_.cells.end(), kErrorWaits, kErrorNotChecked);
  out_.findings = std::move(findings);
}

void ErrorMapMaker::add(ErrorSpan span, const Tensor& tensor) {
  const auto first = first_of_step_.find(tensor.step);
  const auto row = row_of_.find(tensor.op);
  const Step* step = run_.step(tensor.step);
  if (first == first_of_step_.end() || row == row_of_.end() || step == nullptr) return;
  span.row = row->second;
  std::tie(span.begin, span.end) = map_->columns_of(map_->steps[first->second]);
  const std::vector<Cell> rows = rows_of(span, tensor);
  Cell* cells = out_.cells.data() + std::size_t{span.row} * static_cast<std::size_t>(out_.columns);
  const auto worsen = [&](std::int64_t column, Cell by) { cells[column] = std::max(cells[column], by); };
  if (tensor.axis == Axis::none && !rows.empty()) {  // of all tokens of the step
    const Cell worst = *std::max_element(rows.begin(), rows.end());
    for (std::int64_t column = span.begin; column < span.end; ++column) worsen(column, worst);
  }
  each_map_token({*map_, run_, cache_}, *step, first->second, tensor,
                 [&](std::int64_t at, std::int64_t column) { worsen(column, rows[static_cast<std::size_t>(at)]); });
  out_.spans.push_back(std::move(span));
}

Selection ErrorMapMaker::place_of(const VerifiedOutput& one, const Tensor& tensor) const {
  std::int64_t row = one.worst.row;
  if (row < 0 && !one.not_finite.empty()) row = one.not_finite.front();
  const Span* span = row >= 0 && row < tensor.tokens ? run_.token_of(tensor, row).span : nullptr;
  const Subject subject = subject_of(run_, tensor, span);
  if (row < 0 || row >= tensor.tokens || one.worst.channel < 0 || one.worst.channel >= tensor.channels)
    return Selection{tensor_place(subject), std::nullopt};
  return Selection{element_place(subject, row, one.worst.channel), row * tensor.channels + one.worst.channel};
}

}  // namespace nanscope::gui
