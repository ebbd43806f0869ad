#include "instrument/kv_schemes/scheme_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/numbers/codec.h"
#include "instrument/kv_schemes/scheme_ops.h"
#include "kernels/ops/hadamard.h"

namespace nanscope {
namespace {

using kernels::TensorView;

/// The CPU device works on the host's memory; ops do not write to what they read.
TensorView view_of(const void* data, Format format, std::int64_t rows, std::int64_t columns) {
  return {const_cast<void*>(data), format, rows, columns, columns};  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

TensorView floats(std::span<const float> values, std::int64_t rows, std::int64_t columns) {
  return values.empty() ? TensorView{} : view_of(values.data(), Format::f32, rows, columns);
}

}  // namespace

SchemeCache::SchemeCache(const KvScheme& scheme, std::int64_t layer, std::int64_t layers, std::int64_t kv_heads,
                         std::int64_t head_dim)
    : scheme_(scheme_of_layer(scheme, layer, layers)),
      heads_(kv_heads),
      head_dim_(head_dim),
      channels_(kv_heads * head_dim) {}

Status SchemeCache::start() {
  if (device_ != nullptr) return {};
  if (Status status = check(scheme_, heads_, head_dim_); !status) return status;
  auto device = kernels::make_cpu_device(kernels::Isa::best, 1);
  if (!device) return tl::unexpected(device.error());
  device_ = std::move(*device);
  if (quantizes(scheme_)) chooser_ = std::make_unique<ScaleChooser>(scheme_, heads_, head_dim_);
  return {};
}

Result<std::vector<float>> SchemeCache::rotated(std::span<const float> rows) const {
  std::vector<float> out(rows.size());
  const std::int64_t tokens = std::ssize(rows) / channels_;
  if (tokens == 0) return out;
  const kernels::HadamardArgs args{
      .x = floats(rows, tokens, channels_), .out = floats(out, tokens, channels_), .heads = heads_};
  if (Status status = device_->launch(args); !status) return tl::unexpected(status.error());
  return out;
}

/// Makes room for the step's rows; `rows` are all of them one behind the other.
Status SchemeCache::append(std::span<const KvRows> step, std::vector<float>& rows, std::vector<Span>& spans) {
  for (const KvRows& part : step) {
    const std::int64_t count = std::ssize(part.values) / channels_;
    if (part.values.size() != size(count) || count == 0)
      return fail(
          fmt::format("rows of request {}: {} values are no rows of {}", part.request, part.values.size(), channels_));
    Sequence& sequence = sequences_[part.request];
    if (part.first_position == 0) sequence = {};
    if (part.first_position != sequence.tokens)
      return fail(fmt::format("rows of request {} begin at position {}, where {} is the next", part.request,
                              part.first_position, sequence.tokens));
    sequence.tokens += count;
    const std::size_t bytes = info(scheme_.format).storage_bytes();
    sequence.codes.resize(size(sequence.tokens) * bytes);
    spans.push_back({.request = part.request,
                     .index = steps_,
                     .row = std::ssize(rows) / channels_,
                     .rows = count,
                     .first_token = part.first_position,
                     .context = sequence.tokens});
    rows.insert(rows.end(), part.values.begin(), part.values.end());
  }
  return {};
}

Status SchemeCache::store(std::span<const KvRows> step) {
  if (Status status = start(); !status) return status;
  std::vector<float> rows;
  std::vector<Span> spans;
  if (Status status = append(step, rows, spans); !status) return status;
  if (scheme_.transform == KvTransform::hadamard) {
    Result<std::vector<float>> turned = rotated(rows);
    if (!turned) return tl::unexpected(turned.error());
    rows = std::move(*turned);
  }
  ++steps_;
  std::vector<Sequence*> sequences;
  sequences.reserve(spans.size());
  for (const Span& span : spans) sequences.push_back(&sequences_[span.request]);
  if (!keeps_rows(scheme_)) return quantize(rows, spans, sequences);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    Sequence& sequence = *sequences[i];
    const auto own = std::span(rows).subspan(size(spans[i].row), size(spans[i].rows));
    sequence.kept.insert(sequence.kept.end(), own.begin(), own.end());
    const bool first_step = spans[i].first_token == 0;
    const std::int64_t from = first_step ? scheme_.keep_first : sequence.coded;
    sequence.coded = coded_end(scheme_, from, spans[i].context, first_step);
    if (sequence.coded <= from) continue;
    const Span leaving{.request = spans[i].request,
                       .index = spans[i].index,
                       .row = 0,
                       .rows = sequence.coded - from,
                       .first_token = from,
                       .context = sequence.coded};
    const auto values = std::span<const float>(sequence.kept).subspan(size(from), size(leaving.rows));
    if (Status status = quantize(values, std::span(&leaving, 1), std::span(&sequences[i], 1)); !status) return status;
  }
  return {};
}

Status SchemeCache::quantize(std::span<const float> rows, std::span<const Span> spans,
                             std::span<Sequence* const> sequences) {
  KvScales scales;
  if (chooser_ != nullptr) scales = chooser_->choose(rows, spans, steps_);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Range to{sequences[i], spans[i].first_token, spans[i].rows};
    const auto own = rows.subspan(size(spans[i].row), size(spans[i].rows));
    if (Status status = write(to, own, scales, spans[i].row); !status) return status;
    if (chooser_ == nullptr) continue;
    if (Status status = count(to, own, scales, spans[i].row); !status) return status;
  }
  return {};
}

Status SchemeCache::write(const Range& to, std::span<const float> rows, const KvScales& scales, std::int64_t row) {
  Sequence& sequence = *to.sequence;
  std::vector<std::int32_t> slots;
  for (std::int64_t i = 0; i < to.count; ++i) slots.push_back(static_cast<std::int32_t>(to.first + i));
  kernels::KvStoreArgs args{.x = floats(rows, to.count, channels_),
                            .pool = view_of(sequence.codes.data(), scheme_.format, sequence.tokens, channels_),
                            .slots = view_of(slots.data(), Format::i32, to.count, 1),
                            .scales = {},
                            .slot_scales = {},
                            .codes = {}};
  if (chooser_ != nullptr) {
    describe(scheme_, chooser_->scale_group(), chooser_->zero_group(), args);
    const auto of_rows = [&](const std::vector<float>& values, std::int64_t all, std::int64_t columns) {
      const auto first = static_cast<std::size_t>(all == 1 ? 0 : row * columns);
      return values.empty() ? TensorView{} : floats(std::span(values).subspan(first), all == 1 ? 1 : to.count, columns);
    };
    args.scales = of_rows(scales.scales, scales.rows, scales.groups);
    args.kept = of_rows(scales.kept, scales.rows, scales.groups);
    args.zeros = of_rows(scales.zeros, scales.zero_rows, scales.zero_groups);
    sequence.scales.resize(static_cast<std::size_t>(sequence.tokens * scales.groups));
    sequence.zeros.resize(static_cast<std::size_t>(sequence.tokens * scales.zero_groups));
    args.slot_scales = floats(sequence.scales, sequence.tokens, scales.groups);
    args.slot_zeros = floats(sequence.zeros, sequence.tokens, scales.zero_groups);
  }
  return device_->launch(args);
}

Status SchemeCache::read_rows(const Sequence& sequence, std::int64_t first, std::int64_t count,
                              std::span<float> out) const {
  const std::int32_t block = 0;
  const std::byte* codes = sequence.codes.data() + size(first) * info(scheme_.format).storage_bytes();
  kernels::KvReadArgs args{.pool = view_of(codes, scheme_.format, count, channels_),
                           .blocks = view_of(&block, Format::i32, 1, 1),
                           .slot_scales = {},
                           .out = floats(out, count, channels_),
                           .block_size = count};
  if (chooser_ == nullptr) return device_->launch(args);
  describe(scheme_, chooser_->scale_group(), chooser_->zero_group(), args);
  // Slots behind those that have codes have no scale yet.
  const auto part = [&](const std::vector<float>& all, std::int64_t groups) {
    const auto begin = std::min(all.size(), static_cast<std::size_t>(first * groups));
    const auto end = std::min(all.size(), static_cast<std::size_t>((first + count) * groups));
    std::vector<float> values(all.begin() + static_cast<std::ptrdiff_t>(begin),
                              all.begin() + static_cast<std::ptrdiff_t>(end));
    values.resize(static_cast<std::size_t>(count * groups));
    return values;
  };
  const std::int64_t groups = kernels::group_count(channels_, args.scale_group);
  const std::vector<float> scales = part(sequence.scales, groups);
  args.slot_scales = floats(scales, count, groups);
  std::vector<float> zeros;
  const std::int64_t zero_groups = kernels::group_count(channels_, args.zero_group);
  const bool shifted = scheme_.statistic == KvStatistic::min_max || scheme_.transform == KvTransform::minus_mean;
  if (shifted || !sequence.zeros.empty()) zeros = part(sequence.zeros, zero_groups);
  args.slot_zeros = floats(zeros, count, zero_groups);
  if (keeps_rows(scheme_)) {
    args.kept_rows = floats(std::span(sequence.kept).subspan(size(first), size(count)), count, channels_);
    args.coded_from = scheme_.keep_first - first;
    args.coded_end = sequence.coded - first;
  }
  return device_->launch(args);  // while what the views are of lives
}

Result<std::vector<float>> SchemeCache::read(std::int64_t request) const {
  const auto found = sequences_.find(request);
  if (found == sequences_.end()) return fail(fmt::format("nothing of request {} was stored", request));
  std::vector<float> out(size(found->second.tokens));
  if (Status status = read_rows(found->second, 0, found->second.tokens, out); !status)
    return tl::unexpected(status.error());
  return scheme_.transform == KvTransform::hadamard ? rotated(out) : out;
}

/// Looks at what was just written: codes, and what they read as. Not at the rows before: a sequence of many steps would
/// take the square of their number.
Status SchemeCache::count(const Range& range, std::span<const float> rows, const KvScales& scales, std::int64_t row) {
  const Sequence& sequence = *range.sequence;
  std::vector<float> read(size(range.count));
  if (Status status = read_rows(sequence, range.first, range.count, read); !status) return status;
  const CodeRange codes = code_range(scheme_);
  const bool values = scheme_.transform == KvTransform::minus_mean || scheme_.zero == KvZero::value;
  const bool asymmetric = scheme_.statistic == KvStatistic::min_max;
  const double high = scheme_.format == Format::int8 ? codes.high : double{codes.largest};
  const double low = scheme_.format == Format::int8 ? codes.low : -double{codes.largest};
  const std::size_t bytes = info(scheme_.format).storage_bytes();
  std::vector<double> used(static_cast<std::size_t>((scales.rows == 1 ? 1 : range.count) * scales.groups), 0);
  for (std::int64_t t = 0; t < range.count; ++t) {
    for (std::int64_t c = 0; c < channels_; ++c) {
      const auto at = static_cast<std::size_t>(t * channels_ + c);
      const std::size_t slot = size(range.first) + at;
      const float x = rows[at];
      const std::int64_t group = chooser_->scale_group() == 0 ? 0 : c / chooser_->scale_group();
      const std::int64_t zero_group = chooser_->zero_group() == 0 ? 0 : c / chooser_->zero_group();
      const auto of_scale = static_cast<std::size_t>((scales.rows == 1 ? 0 : row + t) * scales.groups + group);
      const double scale = double{scales.read_scales()[of_scale]};
      double zero = 0;
      if (!scales.zeros.empty())
        zero = double{scales.zeros[static_cast<std::size_t>((scales.zero_rows == 1 ? 0 : row + t) * scales.zero_groups +
                                                            zero_group)]};
      const double quotient = values ? (double{x} - zero) / scale : double{x} / scale + zero;
      const bool outlier = scheme_.statistic == KvStatistic::outliers && std::abs(double{x} / scale) > high;
      if (outlier) continue;
      ++counts_.elements;
      const double slack = 1e-4 * std::max(1.0, high);
      const bool integers = scheme_.format == Format::int8;
      const double reach = integers ? 0.5 : slack;
      if (std::isfinite(quotient) && (quotient > high + reach || quotient < low - reach)) ++counts_.clipped;
      if (x != 0 && read[at] == 0) ++counts_.flushed;
      if (std::isfinite(x) && !std::isfinite(read[at])) ++counts_.non_finite;
      const auto code = std::to_integer<std::uint32_t>(sequence.codes[slot * bytes]);
      const double share = std::abs(double{decode(scheme_.format, code)} - (asymmetric ? codes.low : 0)) /
                           (asymmetric ? codes.high - codes.low : double{codes.largest});
      double& most = used[static_cast<std::size_t>((scales.rows == 1 ? 0 : t) * scales.groups + group)];
      if (std::isfinite(share)) most = std::max(most, share);
    }
  }
  for (const double share : used) used_ += share;
  scales_ += std::ssize(used);
  counts_.utilization = scales_ == 0 ? 0 : used_ / static_cast<double>(scales_);
  return {};
}

}  // namespace nanscope
