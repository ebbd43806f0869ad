#include "instrument/kv_schemes/scale_chooser.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/blocks/block_elements.h"
#include "core/blocks/presets.h"
#include "core/numbers/codec.h"
#include "core/run/scales.h"
#include "instrument/kv_schemes/scheme_ops.h"

namespace nanscope {
namespace {

/// NaN where one is, as torch.amax has it.
float larger(float a, float b) { return std::isnan(a) || a > b ? a : b; }
float smaller(float a, float b) { return std::isnan(a) || a < b ? a : b; }

float absmax(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = larger(largest, std::abs(value));
  return largest;
}

bool has_nan(std::span<const float> values) {
  return std::any_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
}

/// numpy's: between the two values beside (n - 1) x share, linearly.
float percentile(std::vector<float>& magnitudes, double percent) {
  std::sort(magnitudes.begin(), magnitudes.end());
  const double at = percent / 100 * static_cast<double>(magnitudes.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, magnitudes.size() - 1);
  const double low = double{magnitudes[below]};
  return static_cast<float>(low + (double{magnitudes[above]} - low) * (at - static_cast<double>(below)));
}

std::int64_t channels_a_scale(const KvScheme& scheme, std::int64_t head_dim) {
  if (!scheme.block.empty()) return find_block_preset(scheme.block)->format.block.columns;
  switch (scheme.axis) {
    case KvAxis::head:
    case KvAxis::token_head:
      return head_dim;
    case KvAxis::channel:
      return 1;
    case KvAxis::block:
      return scheme.group;
    default:
      return 0;
  }
}

float divisor_of(const KvScheme& scheme) {
  if (scheme.divisor > 0) return static_cast<float>(scheme.divisor);
  const CodeRange range = code_range(scheme);
  if (scheme.statistic == KvStatistic::min_max) return static_cast<float>(range.high - range.low);
  return range.largest;
}

}  // namespace

float KvScales::largest() const {
  const std::vector<float>& all = read_scales();
  float largest = all.empty() ? 1.0F : 0.0F;
  for (const float scale : all) largest = larger(largest, std::abs(scale));
  return largest;
}

ScaleChooser::ScaleChooser(const KvScheme& scheme, std::int64_t kv_heads, std::int64_t head_dim)
    : scheme_(scheme),
      channels_(kv_heads * head_dim),
      scale_group_(channels_a_scale(scheme, head_dim)),
      zero_group_(scheme.transform == KvTransform::minus_mean ? 1 : scale_group_),
      groups_(kernels::group_count(channels_, scale_group_)),
      divisor_(divisor_of(scheme)) {}

ScaleChooser::Rows ScaleChooser::part(Rows rows, std::int64_t first, std::int64_t count) const {
  return rows.subspan(static_cast<std::size_t>(first * channels_), static_cast<std::size_t>(count * channels_));
}

ScaleChooser::Extent ScaleChooser::extent(std::vector<float>& values) const {
  if (scheme_.statistic == KvStatistic::min_max) {
    Extent found{values.front(), values.front()};
    for (const float value : values) found = {smaller(found.low, value), larger(found.high, value)};
    return found;
  }
  if (scheme_.statistic == KvStatistic::absmax || has_nan(values)) return {0, absmax(values)};
  for (float& value : values) value = std::abs(value);
  if (scheme_.statistic == KvStatistic::percentile) return {0, percentile(values, scheme_.percentile)};
  const auto apart = static_cast<std::ptrdiff_t>(scheme_.outliers * static_cast<double>(values.size()));
  std::nth_element(values.begin(), values.end() - 1 - apart, values.end());
  return {0, *(values.end() - 1 - apart)};
}

std::vector<ScaleChooser::Extent> ScaleChooser::extents(Rows rows, std::int64_t group) const {
  const auto width = static_cast<std::size_t>(channels_);
  const std::size_t step = group <= 0 ? width : static_cast<std::size_t>(group);
  std::vector<Extent> found;
  std::vector<float> values;
  for (std::size_t first = 0; first < width; first += step) {
    values.clear();
    const std::size_t count = std::min(step, width - first);
    for (std::size_t row = 0; row < rows.size(); row += width) {
      const auto from = rows.begin() + static_cast<std::ptrdiff_t>(row + first);
      values.insert(values.end(), from, from + static_cast<std::ptrdiff_t>(count));
    }
    found.push_back(values.empty() ? Extent{} : extent(values));
  }
  return found;
}

/// The rows' largest magnitude, and whose it is.
KvScaleOrigin ScaleChooser::origin(Rows rows, std::span<const Span> spans, std::int64_t step) const {
  KvScaleOrigin found{.source = ScaleSource::calibrated,
                      .request = spans.empty() ? -1 : spans.front().request,
                      .step = step,
                      .tokens = static_cast<std::int64_t>(rows.size()) / channels_,
                      .absmax = double{absmax(rows)}};
  for (std::int64_t row = 0; row < found.tokens; ++row) {
    const double own = double{absmax(part(rows, row, 1))};
    if (own != found.absmax && !std::isnan(own)) continue;
    const auto whose = std::find_if(spans.begin(), spans.end(), [&](const Span& span) { return span.has(row); });
    found.request = whose == spans.end() ? kPaddingRows : whose->request;
    break;
  }
  return found;
}

ScaleChooser::Held ScaleChooser::measured(Rows rows, std::span<const Span> spans, std::int64_t step) const {
  return {extents(rows, scheme_.block.empty() ? scale_group_ : 0), origin(rows, spans, step)};
}

/// What the steps before held; nothing but a scale of 1 where there were none, or nothing but zeros.
ScaleChooser::Held ScaleChooser::of_history(Rows rows, std::span<const Span> spans, std::int64_t step) {
  Held largest;
  largest.origin.source = ScaleSource::fixed;
  for (const Held& one : history_) {
    if (largest.extents.empty()) {
      largest = one;
      continue;
    }
    const double most = largest.origin.absmax;
    if (!std::isnan(most) && !(one.origin.absmax <= most)) largest.origin = one.origin;
    for (std::size_t group = 0; group < one.extents.size(); ++group) {
      Extent& extent = largest.extents[group];
      extent = {smaller(extent.low, one.extents[group].low), larger(extent.high, one.extents[group].high)};
    }
  }
  history_.push_back(measured(rows, spans, step));
  if (std::ssize(history_) > scheme_.history) history_.pop_front();
  return largest;
}

ScaleChooser::Held ScaleChooser::held(Rows rows, std::span<const Span> spans, std::int64_t step) {
  switch (scheme_.lifetime) {
    case KvLifetime::fixed:
      return {{}, {.source = ScaleSource::fixed, .locked = true}};
    case KvLifetime::first:
      if (!for_good_) {
        for_good_ = measured(rows, spans, step);
        for_good_->origin.locked = true;
      }
      return *for_good_;
    case KvLifetime::request: {
      const auto [known, is_new] = of_request_.try_emplace(spans.empty() ? -1 : spans.front().request);
      if (is_new) known->second = measured(rows, spans, step);
      return known->second;
    }
    case KvLifetime::delayed:
      return of_history(rows, spans, step);
    case KvLifetime::running: {
      Held now = measured(rows, spans, step);
      if (!for_good_) for_good_ = now;
      if (now.origin.absmax > for_good_->origin.absmax || std::isnan(now.origin.absmax)) for_good_->origin = now.origin;
      for (std::size_t group = 0; group < now.extents.size(); ++group) {
        Extent& extent = for_good_->extents[group];
        extent = {smaller(extent.low, now.extents[group].low), larger(extent.high, now.extents[group].high)};
      }
      return *for_good_;
    }
    case KvLifetime::step:
      break;
  }
  return measured(rows, spans, step);
}

KvScales ScaleChooser::grid(std::int64_t rows) const {
  KvScales out;
  out.rows = rows;
  out.groups = groups_;
  out.scales.assign(static_cast<std::size_t>(rows * groups_), 1.0F);
  const bool rounded = !scheme_.block.empty() || scheme_.reciprocal;
  if (rounded) out.kept = out.scales;
  if (scheme_.statistic == KvStatistic::min_max) {
    out.zero_rows = rows;
    out.zero_groups = groups_;
    out.zeros.assign(out.scales.size(), 0.0F);
  }
  return out;
}

void ScaleChooser::put(KvScales& out, std::size_t at, const Extent& extent) const {
  const bool asymmetric = scheme_.statistic == KvStatistic::min_max;
  float scale = asymmetric ? (extent.high - extent.low) / divisor_ : extent.high / divisor_;
  if (scale < static_cast<float>(scheme_.smallest_scale)) scale = static_cast<float>(scheme_.smallest_scale);
  const auto kept = [&](float value) {
    return decode(scheme_.scale_format, encode(scheme_.scale_format, value, Overflow::overflow));
  };
  scale = kept(scale);
  out.scales[at] = scheme_.reciprocal ? 1.0F / scale : scale;
  if (scheme_.reciprocal) out.kept[at] = scale;
  if (!asymmetric) return;
  if (scheme_.zero == KvZero::value) {
    out.zeros[at] = kept(extent.low);
    return;
  }
  const CodeRange range = code_range(scheme_);
  float zero = -extent.low / scale;
  if (scheme_.zero == KvZero::integer && !std::isnan(zero))
    zero = std::clamp(std::nearbyint(zero), 0.0F, static_cast<float>(range.high - range.low));
  out.zeros[at] = zero + static_cast<float>(range.low);
}

void ScaleChooser::put_all(KvScales& out, std::int64_t row, const Held& held) const {
  const auto first = static_cast<std::size_t>(row * groups_);
  for (std::size_t group = 0; group < static_cast<std::size_t>(groups_); ++group) {
    const std::size_t at = first + group;
    const bool delayed_zeros = scheme_.lifetime == KvLifetime::delayed && !held.extents.empty() &&
                               held.extents[group].high == 0 && held.extents[group].low == 0;
    if (!held.extents.empty() && !delayed_zeros) {
      put(out, at, held.extents[group]);
      continue;
    }
    const float fixed = scheme_.lifetime == KvLifetime::fixed ? static_cast<float>(scheme_.fixed_scale) : 1.0F;
    out.scales[at] = scheme_.reciprocal ? 1.0F / fixed : fixed;
    if (scheme_.reciprocal) out.kept[at] = fixed;
  }
}

KvScales ScaleChooser::of_each_token(Rows rows, std::span<const Span> spans, std::int64_t step) const {
  const auto tokens = static_cast<std::int64_t>(rows.size()) / channels_;
  KvScales out = grid(tokens);
  out.origin = origin(rows, spans, step);
  for (std::int64_t row = 0; row < tokens; ++row) {
    put_all(out, row, {extents(part(rows, row, 1), scale_group_), {}});
  }
  return out;
}

KvScales ScaleChooser::of_token_groups(Rows rows, std::span<const Span> spans, std::int64_t step) const {
  KvScales out = grid(static_cast<std::int64_t>(rows.size()) / channels_);
  out.origin = origin(rows, spans, step);
  for (const Span& span : spans) {
    for (std::int64_t first = 0; first < span.rows; first += scheme_.group) {
      const std::int64_t count = std::min(scheme_.group, span.rows - first);
      const Held own{extents(part(rows, span.row + first, count), scale_group_), {}};
      for (std::int64_t row = 0; row < count; ++row) put_all(out, span.row + first + row, own);
    }
  }
  return out;
}

void ScaleChooser::put_blocks(KvScales& out, std::int64_t row, Rows values, float second) const {
  const BlockFormat& format = find_block_preset(scheme_.block)->format;
  const ElementRounding rounding(format, 0);
  for (std::int64_t block = 0; block < groups_; ++block) {
    const std::int64_t first = block * scale_group_;
    const BlockPart of{values.data() + first, 1, std::min(scale_group_, channels_ - first), channels_, 0};
    const std::uint32_t magnitude = of.largest_magnitude();
    const bool nan = magnitude > block_detail::kInfBits;
    const float extreme = nan ? std::numeric_limits<float>::quiet_NaN() : of.first_of_magnitude(magnitude);
    const BlockScale scale = block_scale(format, extreme, second, rounding.nan_code);
    const auto at = static_cast<std::size_t>(row * groups_ + block);
    out.kept[at] = block_whole(format, block_scale_value(format, scale.code), second);
    // Codes that are all alike are NaN under a scale that is NaN, else those of zeros.
    float factor = scale.factor;
    if (scale.filled) factor = std::isnan(out.kept[at]) ? out.kept[at] : 0.0F;
    const bool as_factor = scale.filled || scale.multiply;
    out.scales[at] = as_factor == multiplies(scheme_) ? factor : 1.0F / factor;
  }
}

KvScales ScaleChooser::of_blocks(Rows rows, std::span<const Span> spans, std::int64_t step) {
  const BlockFormat& format = find_block_preset(scheme_.block)->format;
  const auto tokens = static_cast<std::int64_t>(rows.size()) / channels_;
  KvScales out = grid(tokens);
  float second = 1;
  out.origin = origin(rows, spans, step);
  if (format.second != SecondScale::none) {
    const Held above = held(rows, spans, step);
    out.origin = above.origin;
    second = above.extents.empty() ? static_cast<float>(scheme_.fixed_scale)
                                   : second_block_scale(format, above.extents.front().high);
    if (second == 0 || std::isinf(second)) second = 1;
  }
  for (std::int64_t row = 0; row < tokens; ++row) put_blocks(out, row, part(rows, row, 1), second);
  return out;
}

/// One scale a group of channels, or where requests have their own, one a row.
KvScales ScaleChooser::of_lifetime(Rows rows, std::span<const Span> spans, std::int64_t step) {
  const bool each = scheme_.lifetime == KvLifetime::request && spans.size() > 1;
  if (!each) {
    KvScales out = grid(1);
    const Held own = held(rows, spans, step);
    out.origin = own.origin;
    put_all(out, 0, own);
    return out;
  }
  KvScales out = grid(static_cast<std::int64_t>(rows.size()) / channels_);
  float largest = -1;
  for (const Span& span : spans) {
    Span alone = span;
    alone.row = 0;
    const Held own = held(part(rows, span.row, span.rows), std::span(&alone, 1), step);
    for (std::int64_t row = 0; row < span.rows; ++row) put_all(out, span.row + row, own);
    const float scale = out.read_scales()[static_cast<std::size_t>(span.row * groups_)];
    if (largest >= 0 && larger(largest, scale) == largest) continue;
    largest = scale;
    out.origin = own.origin;
  }
  return out;
}

std::vector<float> ScaleChooser::less_means(Rows rows, std::span<const Span> spans, KvScales& means) {
  std::vector<float> less(rows.begin(), rows.end());
  const auto width = static_cast<std::size_t>(channels_);
  means.zero_groups = channels_;
  means.zero_rows = spans.size() > 1 ? static_cast<std::int64_t>(rows.size()) / channels_ : 1;
  means.zeros.assign(static_cast<std::size_t>(means.zero_rows * channels_), 0.0F);
  for (const Span& span : spans) {
    const auto [known, is_new] = means_.try_emplace(span.request, width, 0.0F);
    std::vector<float>& mean = known->second;
    const Rows own = part(rows, span.row, span.rows);
    for (std::size_t channel = 0; is_new && channel < width; ++channel) {
      double sum = 0;
      for (std::size_t at = channel; at < own.size(); at += width) sum += double{own[at]};
      mean[channel] = static_cast<float>(sum / static_cast<double>(span.rows));
    }
    for (std::int64_t row = 0; row < span.rows; ++row) {
      const auto first = static_cast<std::size_t>((span.row + row) * channels_);
      for (std::size_t channel = 0; channel < width; ++channel) {
        less[first + channel] -= mean[channel];
        means.zeros[means.zero_rows == 1 ? channel : first + channel] = mean[channel];
      }
    }
  }
  return less;
}

double ScaleChooser::headroom(const KvScales& scales, Rows rows) const {
  if (scheme_.statistic == KvStatistic::min_max) return 1;
  const double reach = double{code_range(scheme_).largest};
  const bool apart = scheme_.statistic == KvStatistic::outliers;
  const bool less_mean = scheme_.transform == KvTransform::minus_mean;
  double least = std::numeric_limits<double>::infinity();
  const auto tokens = static_cast<std::int64_t>(rows.size()) / channels_;
  for (std::int64_t row = 0; row < tokens; ++row) {
    const std::int64_t scale_row = (scales.rows == 1 ? 0 : row) * scales.groups;
    const std::int64_t zero_row = (scales.zero_rows <= 1 ? 0 : row) * channels_;
    for (std::int64_t channel = 0; channel < channels_; ++channel) {
      const std::int64_t group = scale_group_ == 0 ? 0 : channel / scale_group_;
      const double to = reach * std::abs(double{scales.read_scales()[static_cast<std::size_t>(scale_row + group)]});
      const float zero = less_mean ? scales.zeros[static_cast<std::size_t>(zero_row + channel)] : 0.0F;
      const float value = std::abs(rows[static_cast<std::size_t>(row * channels_ + channel)] - zero);
      if (std::isnan(value) || value == 0 || (apart && double{value} > to)) continue;
      least = std::isnan(to) ? to : std::min(least, to / double{value});
      if (std::isnan(least)) return least;
    }
  }
  return least;
}

KvScales ScaleChooser::choose(Rows rows, std::span<const Span> spans, std::int64_t step) {
  KvScales means;
  std::vector<float> less;
  if (scheme_.transform == KvTransform::minus_mean) {
    less = less_means(rows, spans, means);
    rows = less;
  }
  const bool each_token =
      scheme_.axis == KvAxis::token || scheme_.axis == KvAxis::token_head || scheme_.axis == KvAxis::block;
  KvScales out;
  if (!scheme_.block.empty()) {
    out = of_blocks(rows, spans, step);
  } else if (each_token) {
    out = of_each_token(rows, spans, step);
  } else if (scheme_.axis == KvAxis::channel && scheme_.group > 0) {
    out = of_token_groups(rows, spans, step);
  } else {
    out = of_lifetime(rows, spans, step);
  }
  if (scheme_.transform == KvTransform::minus_mean) {
    out.zero_rows = means.zero_rows;
    out.zero_groups = means.zero_groups;
    out.zeros = std::move(means.zeros);
  }
  return out;
}

}  // namespace nanscope
