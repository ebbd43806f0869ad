#include "gui/prepare/tensor_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/counted.h"

namespace nanscope::gui {
namespace {

std::string shape_of(const TensorSheet& sheet) {
  const Tensor& tensor = sheet.subject.tensor;
  return fmt::format("{} \u00D7 {}", tensor.tokens, tensor.channels);
}

bool same_shape(const TensorSheet& a, const TensorSheet& b) {
  const Tensor& x = a.subject.tensor;
  const Tensor& y = b.subject.tensor;
  return x.tokens == y.tokens && x.channels == y.channels && x.heads == y.heads &&
         a.subject.first_token == b.subject.first_token && a.subject.row_names == b.subject.row_names;
}

bool many_scales(const TensorSheet& sheet) { return sheet.coded && !sheet.scale && sheet.storing->grid; }

/// Equal codes are equal values.
bool same_codes(const TensorSheet& a, const TensorSheet& b) {
  return a.subject.tensor.format == b.subject.tensor.format && a.coded == b.coded && a.scale == b.scale &&
         !many_scales(a) && !many_scales(b);
}

bool scale_unknown(const TensorSheet& sheet) { return sheet.coded && !sheet.storing->grid; }

double real_value(const TensorSheet& sheet, std::int64_t row, std::int64_t channel) {
  return static_cast<double>(sheet.elements->value(row, channel)) *
         static_cast<double>(sheet.scale_at(row, channel).value_or(1));
}

MagnitudeRange real_magnitudes(const TensorSheet& sheet) {
  MagnitudeRange range;
  for (std::int64_t row = 0; sheet.elements && row < sheet.rows; ++row) {
    if (sheet.subject.nobodys(row)) continue;
    for (std::int64_t column = 0; column < sheet.columns; ++column) {
      range.cover(real_value(sheet, row, sheet.channel(column)));
    }
  }
  return range;
}

bool unlike_infinite(double a, double b) { return (std::isinf(a) || std::isinf(b)) && a != b; }

Cell class_of(double here, double there, bool same_bits) {
  if (same_bits) return kDiffEqual;
  const bool nan_here = std::isnan(here);
  const bool nan_there = std::isnan(there);
  if (nan_here != nan_there) return nan_here ? kDiffNanHere : kDiffNanThere;
  if (nan_here || here == there) return kDiffBits;
  if (unlike_infinite(here, there)) return kDiffInf;
  return here > there ? kDiffFirst + 1 : kDiffFirst;
}

void count(TensorDifference& difference, Cell cell) {
  if (cell != kDiffEqual) ++difference.differing;
  if (cell == kDiffNanHere) ++difference.nan_here;
  if (cell == kDiffNanThere) ++difference.nan_there;
}

std::string differing_words(const TensorDifference& difference, const TensorSheet& here) {
  const std::uint64_t all = difference.cells.size();
  const char* unit = difference.unit == DifferenceUnit::ulp ? " ulp" : "";
  std::string words = difference.differing == all
                          ? fmt::format("all {} differ", counted(all, "element"))
                          : fmt::format("{} of {} differ", difference.differing, counted(all, "element"));
  if (difference.nan_here > 0) words += fmt::format(", {} NaN here only", difference.nan_here);
  if (difference.nan_there > 0) words += fmt::format(", {} NaN there only", difference.nan_there);
  if (difference.largest) {
    const std::int64_t row = *difference.largest / difference.columns;
    const std::int64_t channel = here.channel(*difference.largest % difference.columns);
    words += fmt::format(", at most by {:.4g}{} at [{},{}]", difference.high, unit, here.subject.row_name(row).token,
                         channel);
  }
  return words;
}

/// By how much an element differs in a unit; nothing where that is no finite number.
std::optional<double> magnitude_of(const ElementPair& pair, DifferenceUnit unit) {
  if (pair.cell != kDiffFirst && pair.cell != kDiffFirst + 1) return std::nullopt;
  if (unit == DifferenceUnit::ulp && pair.ulps) return static_cast<double>(*pair.ulps);
  return std::abs(*pair.difference);
}

/// Which elements differ, then by how much on a ramp over those that do.
void compare_elements(TensorDifference& out, const TensorSheet& here, const TensorSheet& there, Ramp ramp,
                      const Reference* reference) {
  std::vector<double> magnitudes(out.cells.size());
  MagnitudeRange range;
  for (std::size_t i = 0; i < out.cells.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    if (reference != nullptr && !reference->made[static_cast<std::size_t>(at / out.columns)]) continue;
    const ElementPair pair = pair_at(here, there, at / out.columns, at % out.columns);
    out.cells[i] = pair.cell;
    count(out, pair.cell);
    const std::optional<double> magnitude = magnitude_of(pair, out.unit);
    if (!magnitude) continue;
    magnitudes[i] = *magnitude;
    if (!out.largest || magnitudes[i] > range.largest) out.largest = at;
    range.cover(magnitudes[i]);
  }
  const RampScale scale(ramp, range.smallest, range.largest, kDiffSteps);
  out.low = scale.low();
  out.high = scale.high();
  for (std::size_t i = 0; i < out.cells.size(); ++i) {
    if (magnitudes[i] > 0) out.cells[i] = static_cast<Cell>(out.cells[i] + 2 * scale.step(magnitudes[i]));
  }
}

/// How far each element is off in units of its bound.
void measure_errors(TensorDifference& out, const TensorSheet& here, const Reference& reference) {
  for (std::size_t i = 0; i < out.cells.size(); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i) / out.columns;
    const std::int64_t channel = here.channel(static_cast<std::int64_t>(i) % out.columns);
    const auto value = double{here.elements->value(row, channel)};
    const double distance = reference.distance(row, channel, value);
    out.cells[i] = error_cell(distance);
    if (std::isnan(distance)) {
      const bool should_be =
          reference.judged(row, channel) && !(reference.hides && value < 0) &&
          std::abs(reference.expected[reference.index(row, channel)]) < nanscope::info(reference.format).max_finite;
      if (std::isfinite(value) || !should_be) continue;
      out.cells[i] = kErrorNotFinite;
      ++out.nan_here;
    } else {
      ++out.judged;
      if (!out.largest || distance > out.high) out.largest = static_cast<std::int64_t>(i), out.high = distance;
      if (distance <= 1) continue;
    }
    ++out.differing;
  }
}

std::string error_sentence(const TensorDifference& difference, const TensorSheet& here) {
  std::string words = fmt::format("{} of {} beyond what rounding explains", difference.differing,
                                  counted(difference.judged + difference.nan_here, "element"));
  if (difference.nan_here > 0)
    words += fmt::format(", {} NaN or Inf where the model has a number", difference.nan_here);
  if (difference.largest) {
    const std::int64_t row = *difference.largest / difference.columns;
    const std::int64_t channel = here.channel(*difference.largest % difference.columns);
    words +=
        fmt::format(", at most {:.4g} times at [{},{}]", difference.high, here.subject.row_name(row).token, channel);
  }
  return words;
}

std::string format_words(const TensorSheet& here, const TensorSheet& there) {
  const Format a = here.subject.tensor.format;
  const Format b = there.subject.tensor.format;
  return a == b ? std::string() : fmt::format(" \u00B7 {} here, {} there", name(a), name(b));
}

/// The sheet of the same place in the other run; null when it has none.
std::shared_ptr<const TensorSheet> twin_of(const Subject& subject, RunView& there, const Place& place,
                                           const SheetOptions& options, const TensorSheet* known) {
  Place twin = place;
  twin.role = subject.tensor.role;
  const Result<Subject> found = find_subject(there, twin);
  if (!found || found->tensor.role != twin.role) return nullptr;
  const auto sheet = make_tensor_sheet(there, twin, options, known);
  return sheet ? *sheet : nullptr;
}

std::shared_ptr<const TensorDifference> difference_of(const TensorSheet& here, const TensorSheet* there,
                                                      const SheetOptions& options, const Reference* reference) {
  auto made = std::make_shared<TensorDifference>(subtract(here, there, options.ramp, options.unit, reference));
  made->asked = options.unit;
  return made;
}

bool shows(const TensorSheet& sheet, const Subject& subject, const SheetOptions& options) {
  const bool head = !options.head || sheet.heads < 2 || *options.head == sheet.head;
  return sheet.subject.tensor.id == subject.tensor.id && sheet.ramp == options.ramp && sheet.signs == options.signs &&
         sheet.range == options.range && head;
}

}  // namespace

ElementPair pair_at(const TensorSheet& here, const TensorSheet& there, std::int64_t row, std::int64_t column) {
  const std::int64_t channel = here.channel(column);
  ElementPair pair;
  pair.here = real_value(here, row, channel);
  pair.there = real_value(there, row, channel);
  const std::uint32_t code_here = here.elements->code(row, channel);
  const std::uint32_t code_there = there.elements->code(row, channel);
  const bool codes = same_codes(here, there);
  const bool same_value = pair.here == pair.there || (std::isnan(pair.here) && std::isnan(pair.there));
  const bool same_bits = codes ? code_here == code_there : same_value;
  pair.cell = class_of(pair.here, pair.there, same_bits);
  if (std::isfinite(pair.here) && std::isfinite(pair.there)) {
    pair.difference = pair.here - pair.there;
    if (pair.there != 0) pair.relative = std::abs(*pair.difference / pair.there);
    if (codes) pair.ulps = ulp_distance(here.subject.tensor.format, code_here, code_there);
  }
  return pair;
}

std::string words_of(const ElementPair& pair) {
  switch (pair.cell) {
    case kDiffEqual:
      return "equal bits";
    case kDiffNanHere:
      return "NaN here only";
    case kDiffNanThere:
      return "NaN there only";
    case kDiffInf:
      return "infinite on one side";
    case kDiffBits:
      return std::isnan(pair.here) ? "NaN on both sides, other bits" : "+0 against -0";
    default:
      break;
  }
  std::string words = fmt::format("{:+.6g}", pair.difference.value_or(0));
  if (pair.relative) words += fmt::format(", {:.3g} % of there", 100 * *pair.relative);
  if (pair.ulps) words += fmt::format(", {} ulp", *pair.ulps);
  return words;
}

TensorDifference subtract(const TensorSheet& here, const TensorSheet* there, Ramp ramp, DifferenceUnit unit,
                          const Reference* reference) {
  TensorDifference out;
  out.unit = unit == DifferenceUnit::bound && reference == nullptr ? DifferenceUnit::absolute : unit;
  if (there == nullptr) {
    out.state = PairState::no_twin;
    out.words = "the other run has no such tensor";
  } else if (!same_shape(here, *there)) {
    out.state = PairState::other_shape;
    out.words = fmt::format("shapes differ: {} here, {} there", shape_of(here), shape_of(*there));
    if (shape_of(here) == shape_of(*there)) out.words = "other tokens there than here";
  } else if (!here.elements || !there->elements) {
    out.words = here.elements ? "the other run's elements are not to be had: " + there->problem
                              : "its elements are not to be had: " + here.problem;
  } else if (scale_unknown(here) || scale_unknown(*there)) {
    out.words = "each token has a scale of its own, which is not recorded: codes stand side by side";
  } else {
    out.rows = here.rows;
    out.columns = here.columns;
    out.cells.assign(here.cells.size(), kDiffAbsent);
    const bool codes = same_codes(here, *there);
    if (out.unit == DifferenceUnit::ulp && !codes) out.unit = DifferenceUnit::absolute;
    if (out.unit == DifferenceUnit::bound) {
      measure_errors(out, here, *reference);
      out.words = error_sentence(out, here);
    } else {
      compare_elements(out, here, *there, ramp, reference);
      out.words = out.differing > 0 ? differing_words(out, here)
                  : codes           ? "every element has equal bits"
                                    : "every element has an equal value";
      out.words += format_words(here, *there);
    }
    out.state = out.differing > 0 ? PairState::differs : PairState::equal;
  }
  return out;
}

std::pair<std::int64_t, std::int64_t> worst_difference(const TensorDifference& difference, const FrontRange& range) {
  return worst_cell({difference.cells, difference.columns, difference.rows}, range);
}

namespace {

/// Both sheets on one ramp, and their difference. `there` holds the tensor of `place`, or not.
Result<SheetPair> pair_of(RunView& run, RunView& there, const Place& place, const SheetOptions& options,
                          const SheetPair& known, const std::shared_ptr<const Reference>& reference) {
  const Result<Subject> subject = find_subject(run, place, options.call);
  if (!subject) return tl::unexpected(subject.error());
  const bool pair_known = known.here && known.difference;  // without a twin there was a sheet alone
  if (pair_known && known.reference == reference && shows(*known.here, *subject, options)) {
    SheetPair pair = known;
    if (known.difference->asked != options.unit)
      pair.difference = difference_of(*pair.here, pair.there.get(), options, reference.get());
    return pair;
  }
  SheetPair pair;
  pair.reference = reference;
  auto here = make_tensor_sheet(run, place, options, known.here.get());
  if (!here) return tl::unexpected(here.error());
  pair.here = std::move(*here);
  pair.there = twin_of(*subject, there, place, options, known.reference == reference ? known.there.get() : nullptr);
  if (pair.there) {
    SheetOptions common = options;
    common.beside.emplace();
    common.beside->real =
        !same_codes(*pair.here, *pair.there) && !scale_unknown(*pair.here) && !scale_unknown(*pair.there);
    if (options.range.part) common.range.typed = pair.here->magnitudes;  // both by the part of this one
    for (const TensorSheet* sheet : {pair.here.get(), pair.there.get()}) {
      common.beside->magnitudes.cover(common.beside->real ? real_magnitudes(*sheet) : sheet->magnitudes);
    }
    here = make_tensor_sheet(run, place, common, pair.here.get());
    if (!here) return tl::unexpected(here.error());
    pair.here = std::move(*here);
    pair.there = twin_of(*subject, there, place, common, pair.there.get());
  }
  pair.difference = difference_of(*pair.here, pair.there.get(), options, reference.get());
  return pair;
}

/// Rows that were not made show nothing.
std::shared_ptr<const TensorSheet> masked(const std::shared_ptr<const TensorSheet>& sheet, const Reference& reference) {
  if (std::find(reference.made.begin(), reference.made.end(), false) == reference.made.end()) return sheet;
  auto masked = std::make_shared<TensorSheet>(*sheet);
  for (std::int64_t row = 0; row < masked->rows; ++row) {
    if (reference.made[static_cast<std::size_t>(row)]) continue;
    const auto begin = masked->cells.begin() + row * masked->columns;
    std::fill(begin, begin + masked->columns, kAbsent);
  }
  return masked;
}

}  // namespace

Result<SheetPair> make_sheet_pair(RunView& run, RunView& there, const Place& place, const SheetOptions& options,
                                  const SheetPair& known) {
  return pair_of(run, there, place, options, known, nullptr);
}

Result<SheetPair> make_model_pair(RunView& run, ReferenceSource& model, const Place& place, const SheetOptions& options,
                                  const SheetPair& known) {
  const Result<Subject> subject = find_subject(run, place, options.call);
  if (!subject) return tl::unexpected(subject.error());
  ReferenceView there(run, model, subject->tensor.id);
  if (there.reference()) {
    auto pair = pair_of(run, there, place, options, known, there.reference());
    if (pair && pair->there) pair->there = masked(pair->there, *pair->reference);
    return pair;
  }
  SheetPair pair;
  auto here = make_tensor_sheet(run, place, options, known.here.get());
  if (!here) return tl::unexpected(here.error());
  pair.here = std::move(*here);
  auto difference = std::make_shared<TensorDifference>();
  const std::string& problem = there.problem();
  difference->words = problem.empty() ? "being recomputed\u2026" : "not recomputed: " + problem;
  pair.difference = std::move(difference);
  return pair;
}

TensorPicture make_pair_picture(SheetPair pair, std::string label, std::optional<FrontRange> range, int width,
                                int height) {
  TensorPicture picture = make_tensor_picture(pair.here, range, width, height);
  auto twin = std::make_shared<TwinPicture>();
  twin->label = std::move(label);
  const bool aligned = pair.difference->state != PairState::other_shape;
  if (pair.there) twin->there = make_tensor_picture(pair.there, aligned ? range : std::nullopt, width, height);
  const TensorDifference& difference = *pair.difference;
  const FrontRange all{0, difference.columns, 0, difference.rows};
  const CellGrid grid{difference.cells, difference.columns, difference.rows};
  twin->difference = difference.unit == DifferenceUnit::bound
                         ? make_front_image(grid, range.value_or(all), width, height, kErrorBeyond)
                         : make_image(grid, range.value_or(all), width, height);
  twin->pair = std::move(pair);
  picture.twin = std::move(twin);
  return picture;
}

}  // namespace nanscope::gui
