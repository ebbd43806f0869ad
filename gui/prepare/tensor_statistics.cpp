#include "gui/prepare/tensor_statistics.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/numbers/format.h"

namespace nanscope::gui {
namespace {

/// Mean and variance as they come, by Welford's method: a one-pass sum of squares would cancel.
class Moments {
 public:
  void add(double value) {
    ++count_;
    const double off = value - mean_;
    mean_ += off / static_cast<double>(count_);
    squares_ += off * (value - mean_);
  }
  double mean() const { return mean_; }
  double deviation() const { return count_ == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(count_)); }

 private:
  std::uint64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;
};

class Counter {
 public:
  explicit Counter(const TensorSheet& sheet) : sheet_(sheet) {
    const int bits = info(sheet.elements->format).bits;
    out_.code_shift = std::max(0, bits - 8);
    out_.codes.assign(std::size_t{1} << std::min(bits, 8), 0);
  }

  TensorStatistics count(const FrontRange& range) {
    out_.range = range;
    for (std::int64_t row = range.row_begin; row < range.row_end; ++row) {
      if (sheet_.subject.nobodys(row)) continue;
      for (std::int64_t column = range.column_begin; column < range.column_end; ++column) add(row, column);
    }
    out_.mean = moments_.mean();
    out_.deviation = moments_.deviation();
    list_bins();
    return std::move(out_);
  }

 private:
  void add(std::int64_t row, std::int64_t column) {
    const std::int64_t channel = sheet_.channel(column);
    ++out_.elements;
    ++out_.codes[sheet_.elements->code(row, channel) >> out_.code_shift];
    if (sheet_.cell(row, column) == kClipped) ++out_.clipped;
    const auto value = static_cast<double>(sheet_.elements->value(row, channel));
    if (std::isnan(value)) {
      ++out_.nan;
    } else if (std::isinf(value)) {
      ++(value > 0 ? out_.positive_inf : out_.negative_inf);
    } else {
      add_finite(value);
    }
  }

  void add_finite(double value) {
    out_.min = out_.finite == 0 ? value : std::min(out_.min, value);
    out_.max = out_.finite == 0 ? value : std::max(out_.max, value);
    out_.absmax = std::max(out_.absmax, std::abs(value));
    ++out_.finite;
    moments_.add(value);
    if (value == 0) {
      ++out_.zero;
      return;
    }
    const int exponent = std::ilogb(value);
    if (last_ == nullptr || last_->exponent != exponent) {
      last_ = &bins_.try_emplace(exponent, ValueBin{exponent, 0, 0}).first->second;
    }
    ++(value < 0 ? last_->negative : last_->positive);
  }

  void list_bins() {
    if (bins_.empty()) return;
    for (int exponent = bins_.begin()->first; exponent <= bins_.rbegin()->first; ++exponent) {
      const auto at = bins_.find(exponent);
      out_.values.push_back(at != bins_.end() ? at->second : ValueBin{exponent, 0, 0});
    }
  }

  const TensorSheet& sheet_;
  TensorStatistics out_;
  Moments moments_;
  std::map<int, ValueBin> bins_;
  ValueBin* last_ = nullptr;  ///< neighbours are alike
};

}  // namespace

TensorStatistics tensor_statistics(const TensorSheet& sheet, std::optional<FrontRange> range) {
  if (!sheet.elements) return {};
  const FrontRange all{0, sheet.columns, 0, sheet.rows};
  FrontRange part = range.value_or(all);
  part.column_begin = std::clamp<std::int64_t>(part.column_begin, 0, sheet.columns);
  part.column_end = std::clamp<std::int64_t>(part.column_end, part.column_begin, sheet.columns);
  part.row_begin = std::clamp<std::int64_t>(part.row_begin, 0, sheet.rows);
  part.row_end = std::clamp<std::int64_t>(part.row_end, part.row_begin, sheet.rows);
  TensorStatistics out = Counter(sheet).count(part);
  out.whole = part == all;
  return out;
}

}  // namespace nanscope::gui
