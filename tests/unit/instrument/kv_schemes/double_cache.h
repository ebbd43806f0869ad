#pragma once
/// What a cache under a scheme has to read back, worked out in double precision from the definitions of the scheme's
/// words: nothing here is shared with the library.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "instrument/kv_schemes/kv_scheme.h"

namespace nanscope::testing {

using Row = std::vector<double>;

/// What one element may read as: `value`, or as far from it as `reach`; NaN must be NaN.
struct Expected {
  double value = 0;
  double reach = 0;
};

class DoubleCache {
 public:
  DoubleCache(const KvScheme& scheme, int kv_heads, int head_dim)
      : scheme_(scheme), width_(head_dim), channels_(kv_heads * head_dim) {}

  void store(const std::vector<std::vector<float>>& rows) {
    const bool first = rows_.empty();
    const std::size_t before = rows_.size();
    for (const auto& row : rows) rows_.push_back(turned(Row(row.begin(), row.end())));
    expected_.resize(rows_.size());
    const std::size_t from = first ? static_cast<std::size_t>(scheme_.keep_first) : coded_;
    const std::size_t to = std::max(from, end_of_codes(before, first));
    if (!keeps() && first) coded_ = 0;
    std::vector<std::size_t> leaving;
    for (std::size_t t = keeps() ? from : before; t < (keeps() ? to : rows_.size()); ++t) leaving.push_back(t);
    coded_ = keeps() ? to : rows_.size();
    for (std::size_t t = before; t < rows_.size(); ++t) keep(t);
    if (!leaving.empty()) quantize(leaving);
  }

  /// By position and channel, of rotated heads where the scheme rotates them.
  const std::vector<std::vector<Expected>>& expected() const { return expected_; }

  Row turned(const Row& row) const {
    if (scheme_.transform != KvTransform::hadamard) return row;
    Row out(row.size(), 0);
    for (int i = 0; i < channels_; ++i) {
      for (int j = 0; j < width_; ++j) {
        const unsigned common = static_cast<unsigned>(i % width_) & static_cast<unsigned>(j);
        const double x = row[static_cast<std::size_t>(i / width_ * width_ + j)];
        out[static_cast<std::size_t>(i)] += (std::popcount(common) % 2 == 1 ? -x : x) / std::sqrt(width_);
      }
    }
    return out;
  }

 private:
  struct Span {
    double low = 0, high = 0;  ///< of the values; high alone of magnitudes
  };

  bool keeps() const {
    return scheme_.keep_first > 0 || scheme_.keep_last > 0 || scheme_.own != KvOwn::quantized ||
           scheme_.statistic == KvStatistic::outliers || (scheme_.axis == KvAxis::channel && scheme_.group > 0);
  }

  std::size_t end_of_codes(std::size_t before, bool first) const {
    const auto all = static_cast<std::int64_t>(rows_.size());
    if (scheme_.window == KvWindow::filled) {
      const auto waiting = all - static_cast<std::int64_t>(first ? 0 : coded_);
      return first || waiting >= scheme_.keep_last ? rows_.size() : coded_;
    }
    std::int64_t end = std::max<std::int64_t>(0, all - scheme_.keep_last);
    if (scheme_.axis == KvAxis::channel && scheme_.group > 0) end -= (end - scheme_.keep_first) % scheme_.group;
    static_cast<void>(before);
    return static_cast<std::size_t>(end);
  }

  void keep(std::size_t t) {
    for (const double x : rows_[t]) expected_[t].push_back({x, std::abs(x) * 1e-6});
  }

  Span measure(std::vector<double> values) const {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const double value : values) {
      if (std::isnan(value)) return {nan, nan};
    }
    if (scheme_.statistic == KvStatistic::min_max) {
      return {*std::min_element(values.begin(), values.end()), *std::max_element(values.begin(), values.end())};
    }
    for (double& value : values) value = std::abs(value);
    std::sort(values.begin(), values.end());
    if (scheme_.statistic == KvStatistic::percentile) {
      const double at = scheme_.percentile / 100 * static_cast<double>(values.size() - 1);
      const auto i = static_cast<std::size_t>(std::floor(at));
      const double next = values[std::min(i + 1, values.size() - 1)];
      return {0, values[i] + (next - values[i]) * (at - std::floor(at))};
    }
    const std::size_t apart = scheme_.statistic == KvStatistic::outliers
                                  ? static_cast<std::size_t>(scheme_.outliers * static_cast<double>(values.size()))
                                  : 0;
    return {0, values[values.size() - 1 - apart]};
  }

  /// First channel and how many share the scale of channel c.
  std::pair<int, int> shared(int c) const {
    switch (scheme_.axis) {
      case KvAxis::channel:
        return {c, 1};
      case KvAxis::head:
      case KvAxis::token_head:
        return {c / width_ * width_, width_};
      case KvAxis::block: {
        const int group = static_cast<int>(scheme_.group);
        return {c / group * group, std::min(group, channels_ - c / group * group)};
      }
      default:
        return {0, channels_};
    }
  }

  double value(std::size_t t, int c) const {
    const double x = rows_[t][static_cast<std::size_t>(c)];
    return mean_.empty() ? x : x - mean_[static_cast<std::size_t>(c)];
  }

  Span measure(const std::vector<std::size_t>& tokens, int c) const {
    const auto [first, count] = shared(c);
    std::vector<double> values;
    for (const std::size_t t : tokens) {
      for (int i = first; i < first + count; ++i) values.push_back(value(t, i));
    }
    return measure(values);
  }

  bool each_token() const {
    return scheme_.axis == KvAxis::token || scheme_.axis == KvAxis::token_head || scheme_.axis == KvAxis::block;
  }

  void quantize(const std::vector<std::size_t>& tokens) {
    if (scheme_.transform == KvTransform::minus_mean && mean_.empty()) {
      for (int c = 0; c < channels_; ++c) {
        double sum = 0;
        for (const std::size_t t : tokens) sum += rows_[t][static_cast<std::size_t>(c)];
        mean_.push_back(sum / static_cast<double>(tokens.size()));
      }
    }
    for (int c = 0; c < channels_; ++c) {
      const bool per_group = scheme_.axis == KvAxis::channel && scheme_.group > 0;
      if (each_token() || per_group) {
        const std::size_t group = per_group ? static_cast<std::size_t>(scheme_.group) : 1;
        for (std::size_t i = 0; i < tokens.size(); i += group) {
          const std::vector<std::size_t> some(tokens.begin() + static_cast<std::ptrdiff_t>(i),
                                              tokens.begin() + static_cast<std::ptrdiff_t>(i + group));
          put(some, c, measure(some, c));
        }
        continue;
      }
      put(tokens, c, over_time(tokens, c));
    }
    ++step_;
  }

  /// The span that the scheme's lifetime gives these rows; nothing: the scale is 1, or what is fixed.
  std::optional<Span> over_time(const std::vector<std::size_t>& tokens, int c) {
    const auto at = static_cast<std::size_t>(c);
    seen_.resize(static_cast<std::size_t>(channels_));
    const Span now = measure(tokens, c);
    std::vector<Span>& seen = seen_[at];
    const std::vector<Span> before = seen;
    seen.push_back(now);
    const auto largest = [](const std::vector<Span>& all) {
      Span most{all.front().low, all.front().high};
      for (const Span& one : all) {
        if (std::isnan(one.high) || std::isnan(most.high)) return Span{std::nan(""), std::nan("")};
        most = {std::min(most.low, one.low), std::max(most.high, one.high)};
      }
      return most;
    };
    switch (scheme_.lifetime) {
      case KvLifetime::fixed:
        return std::nullopt;
      case KvLifetime::first:
      case KvLifetime::request:
        return seen.front();
      case KvLifetime::running:
        return largest(seen);
      case KvLifetime::delayed: {
        if (before.empty()) return std::nullopt;
        const auto keep = std::min<std::size_t>(before.size(), static_cast<std::size_t>(scheme_.history));
        const Span most = largest({before.end() - static_cast<std::ptrdiff_t>(keep), before.end()});
        if (most.high == 0) return std::nullopt;
        return most;
      }
      default:
        return now;
    }
  }

  void put(const std::vector<std::size_t>& tokens, int c, std::optional<Span> span) {
    const bool integers = scheme_.format == Format::int8;
    const int bits = scheme_.bits == 0 ? 8 : scheme_.bits;
    const bool asymmetric = scheme_.statistic == KvStatistic::min_max;
    const double largest = integers ? std::pow(2, bits - 1) - 1 : 448;  // of e4m3
    double scale = scheme_.fixed_scale;
    double zero = 0;
    const double levels = std::pow(2, bits) - 1;
    if (span) {
      const double divisor = scheme_.divisor > 0 ? scheme_.divisor : asymmetric ? levels : largest;
      scale = asymmetric ? (span->high - span->low) / divisor : span->high / divisor;
      if (scale < scheme_.smallest_scale) scale = scheme_.smallest_scale;
      if (asymmetric) zero = scheme_.zero == KvZero::value ? span->low : -span->low / scale;
      if (scheme_.zero == KvZero::integer) zero = std::clamp(std::nearbyint(zero), 0.0, levels);
    }
    for (const std::size_t t : tokens) {
      const double x = value(t, c);
      Expected& out = expected_[t][static_cast<std::size_t>(c)];
      if (scheme_.statistic == KvStatistic::outliers && std::abs(x) > span->high * (1 + 1e-6)) continue;
      const double off = asymmetric && scheme_.zero == KvZero::value ? zero : 0;
      const double shift = asymmetric && scheme_.zero != KvZero::value ? zero : 0;
      double q = (x - off) / scale + shift;
      const double low = asymmetric ? 0 : -largest;
      const double high = asymmetric ? levels : largest;
      const bool clipped = q > high || q < low;
      if (std::isnan(q) && integers) q = 0;
      q = std::isnan(q) ? q : std::clamp(q, low, high);
      out.value = (q - shift) * scale + off;
      // Scales in f16 are off by 2^-11 of themselves, up to the whole range.
      const double rounded = scheme_.scale_format == Format::f16 ? std::pow(2, -11) : 1e-5;
      out.reach = integers ? scale * (0.5 + 1e-3 + rounded * levels) + std::abs(off) * rounded
                           : std::max(std::abs(q) * scale / 16, scale * std::pow(2, -10));
      if (clipped) out.reach = scale * (1e-3 + levels * rounded) + (std::abs(out.value) + std::abs(off)) * rounded;
      if (scheme_.zero == KvZero::integer) out.reach += 0.5 * scale;  // a tie of the zero point
      if (!mean_.empty()) out.value += mean_[static_cast<std::size_t>(c)];
      out.reach += std::abs(out.value) * 1e-5;
    }
  }

  KvScheme scheme_;
  int width_;
  int channels_;
  std::vector<Row> rows_;
  std::vector<std::vector<Expected>> expected_;
  std::size_t coded_ = 0;
  int step_ = 0;
  Row mean_;
  std::vector<std::vector<Span>> seen_;  ///< by channel and step
};

}  // namespace nanscope::testing
