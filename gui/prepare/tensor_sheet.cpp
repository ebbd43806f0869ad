#include "gui/prepare/tensor_sheet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace nanscope::gui {
namespace {

constexpr std::int64_t kMostSheetElements = std::int64_t{48}
                                            << 20;  ///< more would take memory away from everything else

std::string number(double value) { return fmt::format("{:.6g}", value); }

class TensorSheetMaker {
 public:
  TensorSheetMaker(RunView& run, Subject subject, const SheetOptions& options) : run_(run) {
    sheet_.subject = std::move(subject);
    sheet_.ramp = options.ramp;
    sheet_.signs = options.signs;
    sheet_.range = options.range;
    sheet_.storing = storing_of(run_, sheet_.subject);
    sheet_.coded = sheet_.storing.has_value();
    if (sheet_.storing) sheet_.scale = sheet_.storing->only_scale();
    if (options.beside) {
      sheet_.real = options.beside->real;
      sheet_.magnitudes = options.beside->magnitudes;
    }
  }

  Result<std::shared_ptr<const TensorSheet>> make(const Place& place, const SheetOptions& options,
                                                  const TensorSheet* known) {
    fetch(known);
    if (sheet_.elements) {
      lay_out(place, options);
      color();
    } else {
      color_rows();
    }
    sum_up();
    list_numbers();
    if (Status status = run_.status(); !status) return tl::unexpected(status.error());
    return std::make_shared<const TensorSheet>(std::move(sheet_));
  }

 private:
  const Tensor& tensor() const { return sheet_.subject.tensor; }
  const std::optional<Storing>& storing() const { return sheet_.storing; }
  bool nobodys(std::int64_t row) const { return sheet_.subject.nobodys(row); }
  bool hides() const { return tensor().hides || may_hide(tensor().role); }

  void fetch(const TensorSheet* known) {
    if (known != nullptr && known->elements && known->subject.tensor.id == tensor().id) {
      sheet_.elements = known->elements;
    } else if (tensor().tokens > 0 && tensor().channels > kMostSheetElements / tensor().tokens) {
      sheet_.problem = "it has too many elements to show each";
      return;
    } else if (Result<Elements> fetched = fetch_elements(run_, tensor()); fetched) {
      sheet_.elements = std::move(*fetched);
    } else {
      sheet_.problem = fetched.error().message;
      return;
    }
    if (!storing()) return;
    source_ = storing()->computed;
    if (storing()->source) {
      if (Result<Elements> source = fetch_elements(run_, *storing()->source)) source_ = std::move(*source);
    }
    if (tensor().health.clipped > 0) row_health_ = run_.rows(tensor());
  }

  void lay_out(const Place& place, const SheetOptions& options) {
    sheet_.rows = tensor().tokens;
    sheet_.columns = tensor().channels;
    sheet_.query_by_key = is_query_by_key(sheet_.subject.op, tensor());
    const std::int64_t heads = tensor().heads;
    if (!sheet_.query_by_key || heads < 1 || sheet_.columns % heads != 0) return;
    sheet_.columns /= heads;
    sheet_.heads = heads;
    const std::int64_t selected = channel_of(tensor(), place).value_or(0) / std::max<std::int64_t>(1, sheet_.columns);
    sheet_.head = std::clamp<std::int64_t>(options.head.value_or(selected), 0, heads - 1);
    sheet_.first_channel = sheet_.head * sheet_.columns;
  }

  /// Some value of the row was clipped when it was stored.
  bool row_clipped(std::int64_t row) const {
    if (static_cast<std::int64_t>(row_health_.size()) != tensor().tokens) return tensor().health.clipped > 0;
    return row_health_[static_cast<std::size_t>(row)].clipped > 0;
  }

  /// The value before storing was beyond what the format holds. Where it or its scale is not to be had,
  /// all of the row that landed on the end of the format is suspect.
  bool clipped(std::int64_t row, std::int64_t channel) const {
    const std::int64_t from =
        storing()->source_rows.empty() ? -1 : storing()->source_rows[static_cast<std::size_t>(row)];
    const std::optional<float> scale = storing()->scale(row, channel);
    if (!source_ || !scale || from < 0 || from >= source_->tokens) return row_clipped(row);
    return std::abs(double{source_->value(from, channel)}) / double{*scale} > largest_stored();
  }

  /// A recording counts what lay beyond the largest finite value. In a dump what rounds to it is no loss.
  double largest_stored() const {
    const FormatInfo& format = info(tensor().format);
    const double largest = double{format.max_finite};
    if (tensor().name.empty()) return largest;
    return format.exponent_bits == 0 ? largest + 0.5 : largest * (1 + std::ldexp(0.5, -format.mantissa_bits));
  }

  Cell special(float value, std::int64_t row, std::int64_t channel) const {
    if (nobodys(row)) return kAbsent;
    if (std::isnan(value)) return kNan;
    if (std::isinf(value)) return hides() && value < 0 ? kAbsent : kInf;
    const FormatInfo& format = info(tensor().format);
    const float magnitude = std::abs(value);
    const bool at_end = magnitude >= format.max_finite && format.format != Format::i32;
    if (storing() && at_end && clipped(row, channel)) return kClipped;
    const bool headroom_tells = format.storage_bytes() > 1 || (storing() && storing()->foreign);
    if (headroom_tells && magnitude * static_cast<float>(kLowHeadroomBelow) > format.max_finite &&
        format.format != Format::i32) {
      return kLowHeadroom;
    }
    return magnitude == 0 ? kZero : kHealthyFirst;
  }

  /// What a code is worth on the ramp.
  double unit(std::int64_t row, std::int64_t channel) const {
    return sheet_.real ? static_cast<double>(sheet_.scale_at(row, channel).value_or(1)) : 1;
  }

  void color() {
    const auto count = static_cast<std::size_t>(sheet_.rows * sheet_.columns);
    std::vector<float> values(count);
    const bool covers = !sheet_.range.part && !sheet_.range.typed;
    if (!covers) sheet_.magnitudes = sheet_.range.typed.value_or(MagnitudeRange{});
    for (std::int64_t row = 0; row < sheet_.rows; ++row) {
      for (std::int64_t column = 0; column < sheet_.columns; ++column) {
        const float value = sheet_.elements->value(row, sheet_.channel(column));
        values[static_cast<std::size_t>(row * sheet_.columns + column)] = value;
        if (nobodys(row) || !(covers || in_part(row, column))) continue;
        sheet_.magnitudes.cover(static_cast<double>(value) * unit(row, sheet_.channel(column)));
      }
    }
    const int steps = sheet_.signs ? kSignedSteps : kHealthySteps;
    const MagnitudeRange& all = sheet_.magnitudes;
    const bool typed = sheet_.range.typed && all.smallest < all.largest;
    const RampScale ramp = typed ? RampScale::between(sheet_.ramp, all.smallest, all.largest, steps)
                                 : RampScale(sheet_.ramp, all.smallest, all.largest, steps);
    sheet_.low = ramp.low();
    sheet_.high = ramp.high();
    sheet_.cells.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t row = static_cast<std::int64_t>(i) / sheet_.columns;
      const std::int64_t channel = sheet_.channel(static_cast<std::int64_t>(i) % sheet_.columns);
      const Cell cell = special(values[i], row, channel);
      const int step = ramp.step(std::abs(static_cast<double>(values[i]) * unit(row, channel)));
      const Cell healthy = sheet_.signs ? signed_cell(step, values[i] < 0) : static_cast<Cell>(kHealthyFirst + step);
      sheet_.cells[i] = cell != kHealthyFirst ? cell : healthy;
    }
  }

  bool in_part(std::int64_t row, std::int64_t column) const {
    if (!sheet_.range.part || sheet_.range.typed) return false;
    const FrontRange& part = *sheet_.range.part;
    return row >= part.row_begin && row < part.row_end && column >= part.column_begin && column < part.column_end;
  }

  /// One cell a row, as it was recorded.
  void color_rows() {
    std::vector<Health> rows = run_.rows(tensor());
    const bool whole = static_cast<std::int64_t>(rows.size()) != tensor().tokens;
    if (whole) rows.assign(1, tensor().health);
    sheet_.rows = static_cast<std::int64_t>(rows.size());
    sheet_.columns = 1;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bool skipped = !whole && nobodys(static_cast<std::int64_t>(i));
      sheet_.cells.push_back(skipped ? kAbsent : cell_of(rows[i], hides(), 0));
    }
    sheet_.low = std::pow(10.0, kRampFrom);
    sheet_.high = std::pow(10.0, kRampTo);
  }

  void sum_up() {
    sheet_.row_health.assign(static_cast<std::size_t>(sheet_.rows), {});
    sheet_.column_health.assign(static_cast<std::size_t>(sheet_.columns), {});
    const float of_row = 1.0F / static_cast<float>(std::max<std::int64_t>(1, sheet_.columns));
    const float of_column = 1.0F / static_cast<float>(std::max<std::int64_t>(1, sheet_.rows));
    const Cell* cell = sheet_.cells.data();
    for (LineHealth& row : sheet_.row_health) {
      for (LineHealth& column : sheet_.column_health) {
        count(row, *cell, of_row);
        count(column, *cell++, of_column);
      }
    }
  }

  static void count(LineHealth& line, Cell cell, float share) {
    if (cell <= kHealthyLast) {
      line.largest = std::max(line.largest, cell);
      return;
    }
    float& part = cell == kNan       ? line.nan
                  : cell == kInf     ? line.inf
                  : cell == kClipped ? line.clipped
                                     : line.low_headroom;
    part += share;
  }

  /// Of the rows that are somebody's.
  Health live_health() {
    Health all = whole_health(run_, tensor());
    const auto& names = sheet_.subject.row_names;
    padding_ = std::count_if(names.begin(), names.end(), [](const RowName& name) { return name.nobodys; });
    if (padding_ == 0) return all;
    const std::vector<Health>& rows = run_.rows(tensor());
    if (static_cast<std::int64_t>(rows.size()) != tensor().tokens) return all;
    all = empty_health();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!nobodys(static_cast<std::int64_t>(i))) merge(all, rows[i]);
    }
    return all;
  }

  void count_bad(const Health& health) {
    sheet_.nan = health.nan;
    sheet_.inf = health.pos_inf + (hides() ? 0 : health.neg_inf);
    sheet_.clipped = health.clipped;
    if (health.clipped > 0 || !storing() || !sheet_.elements) return;
    for (std::int64_t row = 0; row < tensor().tokens; ++row) {
      for (std::int64_t channel = 0; channel < tensor().channels; ++channel) {
        const float value = sheet_.elements->value(row, channel);
        sheet_.clipped += std::isfinite(value) && special(value, row, channel) == kClipped ? 1 : 0;
      }
    }
  }

  void list_numbers() {
    const Health health = live_health();
    count_bad(health);
    const auto add = [&](std::string name, std::string value, Cell tone = kHealthyFirst) {
      sheet_.numbers.push_back({std::move(name), std::move(value), tone});
    };
    const auto count = [&](const char* name, std::uint64_t number, Cell tone = kHealthyFirst) {
      add(name, fmt::format("{}", number), number > 0 ? tone : kHealthyFirst);
    };
    add("shape", fmt::format("{} \u00D7 {}", tensor().tokens, tensor().channels));
    add("format", std::string(name(tensor().format)));
    if (sheet_.scale) add("scale", number(static_cast<double>(*sheet_.scale)));
    if (!sheet_.scale && storing() && storing()->grid) add("scales", storing()->grid->text());
    const bool finite = health.finite() > 0 && health.min <= health.max;
    add("min", finite ? number(static_cast<double>(health.min)) : "\u2013");
    add("max", finite ? number(static_cast<double>(health.max)) : "\u2013");
    add("largest |x|", finite ? number(static_cast<double>(health.absmax)) : "\u2013");
    count("NaN", sheet_.nan, kNan);
    count("Inf", health.pos_inf + health.neg_inf, sheet_.inf > 0 ? kInf : kHealthyFirst);
    if (storing() || sheet_.clipped > 0) count("clipped", sheet_.clipped, kClipped);
    count("at largest finite", health.saturated, kLowHeadroom);
    count("zero", health.zero);
    count("subnormal", health.subnormal);
    if (padding_ > 0) add("padding rows", fmt::format("{}", padding_));
  }

  RunView& run_;
  TensorSheet sheet_;
  std::int64_t padding_ = 0;  ///< rows
  Elements source_;
  std::vector<Health> row_health_;  ///< when it tells of clipped values
};

/// One a texel; lines that share a texel show the largest of each share.
std::vector<LineHealth> bars(const std::vector<LineHealth>& lines, std::int64_t begin, std::int64_t end, int texels) {
  std::vector<LineHealth> out(static_cast<std::size_t>(texels));
  for (int i = 0; i < texels; ++i) {
    LineHealth& bar = out[static_cast<std::size_t>(i)];
    const std::int64_t last = begin + (end - begin) * (i + 1) / texels;
    for (std::int64_t at = begin + (end - begin) * i / texels; at < last; ++at) {
      const LineHealth& line = lines[static_cast<std::size_t>(at)];
      bar = {std::max(bar.nan, line.nan), std::max(bar.inf, line.inf), std::max(bar.clipped, line.clipped),
             std::max(bar.low_headroom, line.low_headroom), std::max(bar.largest, line.largest)};
    }
  }
  return out;
}

}  // namespace

double ramp_part(Cell cell, bool signs) {
  if (cell < kHealthyFirst) return 0;
  const int step = std::min<int>(cell, kHealthyLast) - kHealthyFirst;
  return signs ? static_cast<double>(step / 2) / (kSignedSteps - 1) : static_cast<double>(step) / (kHealthySteps - 1);
}

std::optional<std::pair<std::int64_t, std::int64_t>> next_bad(const TensorSheet& sheet,
                                                              std::pair<std::int64_t, std::int64_t> from,
                                                              bool forward) {
  const std::vector<Cell>& cells = sheet.cells;
  if (!sheet.elements || cells.empty()) return std::nullopt;
  const auto bad = [](Cell cell) { return cell >= kClipped; };
  const auto size = std::ssize(cells);
  const std::int64_t at = std::clamp<std::int64_t>(from.first * sheet.columns + from.second, -1, size);
  std::int64_t found = size;
  if (forward) {
    const auto begin = cells.begin() + std::min(at + 1, size);
    auto next = std::find_if(begin, cells.end(), bad);
    if (next == cells.end()) next = std::find_if(cells.begin(), begin, bad);
    if (next == begin && (begin == cells.end() || !bad(*begin))) return std::nullopt;
    found = next - cells.begin();
  } else {
    const auto begin = cells.rbegin() + (size - std::clamp<std::int64_t>(at, 0, size));
    auto next = std::find_if(begin, cells.rend(), bad);
    if (next == cells.rend()) {
      next = std::find_if(cells.rbegin(), begin, bad);
      if (next == begin) return std::nullopt;
    }
    found = cells.rend() - next - 1;
  }
  return std::pair{found / sheet.columns, found % sheet.columns};
}

void MagnitudeRange::cover(double value) {
  const double magnitude = std::abs(value);
  if (!std::isfinite(magnitude) || magnitude == 0) return;
  smallest = std::min(smallest, magnitude);
  largest = std::max(largest, magnitude);
}

void MagnitudeRange::cover(const MagnitudeRange& other) {
  smallest = std::min(smallest, other.smallest);
  largest = std::max(largest, other.largest);
}

Result<std::shared_ptr<const TensorSheet>> make_tensor_sheet(RunView& run, const Place& place,
                                                             const SheetOptions& options, const TensorSheet* known) {
  Result<Subject> subject = find_subject(run, place, options.call);
  if (!subject) return tl::unexpected(subject.error());
  return TensorSheetMaker(run, std::move(*subject), options).make(place, options, known);
}

std::pair<std::int64_t, std::int64_t> worst_cell(const CellGrid& grid, const FrontRange& range) {
  const auto at = [&](std::int64_t row, std::int64_t column) {
    return grid.cells[static_cast<std::size_t>(row * grid.columns + column)];
  };
  std::pair<std::int64_t, std::int64_t> found{std::clamp<std::int64_t>(range.row_begin, 0, grid.rows - 1),
                                              std::clamp<std::int64_t>(range.column_begin, 0, grid.columns - 1)};
  for (std::int64_t row = found.first; row < std::min(range.row_end, grid.rows); ++row) {
    for (std::int64_t column = std::max<std::int64_t>(0, range.column_begin);
         column < std::min(range.column_end, grid.columns); ++column) {
      if (at(row, column) > at(found.first, found.second)) found = {row, column};
    }
  }
  return found;
}

std::pair<std::int64_t, std::int64_t> worst_element(const TensorSheet& sheet, const FrontRange& range) {
  return worst_cell({sheet.cells, sheet.columns, sheet.rows}, range);
}

TensorPicture make_tensor_picture(std::shared_ptr<const TensorSheet> sheet, std::optional<FrontRange> range, int width,
                                  int height) {
  TensorPicture picture;
  const FrontRange part = range.value_or(FrontRange{0, sheet->columns, 0, sheet->rows});
  picture.image = make_front_image({sheet->cells, sheet->columns, sheet->rows}, part, width, height);
  const FrontRange& shown = picture.image.range;
  picture.row_bars = bars(sheet->row_health, shown.row_begin, shown.row_end, picture.image.height);
  picture.column_bars = bars(sheet->column_health, shown.column_begin, shown.column_end, picture.image.width);
  picture.sheet = std::move(sheet);
  return picture;
}

}  // namespace nanscope::gui
