#include "instrument/kv_schemes/scheme_ops.h"

#include <algorithm>

#include "core/blocks/presets.h"

namespace nanscope {
namespace {

kernels::IntRounding rounding_of(const KvScheme& scheme) {
  using kernels::IntRounding;
  if (!scheme.block.empty()) {
    const Ties ties = find_block_preset(scheme.block)->format.ties;
    return ties == Ties::offset ? IntRounding::up : ties == Ties::even ? IntRounding::even : IntRounding::away;
  }
  switch (scheme.rounding) {
    case KvRounding::away:
      return IntRounding::away;
    case KvRounding::up:
      return IntRounding::up;
    case KvRounding::even:
      break;
  }
  return IntRounding::even;
}

kernels::ZeroPoint zero_of(const KvScheme& scheme) {
  const bool value = scheme.transform == KvTransform::minus_mean || scheme.zero == KvZero::value;
  return value ? kernels::ZeroPoint::value : kernels::ZeroPoint::code;
}

}  // namespace

bool multiplies(const KvScheme& scheme) {
  if (scheme.block.empty()) return scheme.reciprocal;
  const Scaling scaling = find_block_preset(scheme.block)->format.scaling;
  return scaling == Scaling::reciprocal || scaling == Scaling::reciprocal_second;
}

CodeRange code_range(const KvScheme& scheme) {
  if (scheme.format != Format::int8) return {0, 0, info(scheme.format).max_finite};
  if (!scheme.block.empty()) {
    const float largest = find_block_preset(scheme.block)->format.largest;  // below 0 of a signed extreme
    if (largest < 0) return {static_cast<std::int32_t>(largest), static_cast<std::int32_t>(-largest) - 1, -largest};
    return {-static_cast<std::int32_t>(largest), static_cast<std::int32_t>(largest), largest};
  }
  const std::int32_t bits = scheme.bits == 0 ? 8 : scheme.bits;
  const std::int32_t half = 1 << (bits - 1);
  if (scheme.statistic != KvStatistic::min_max) return {1 - half, half - 1, static_cast<float>(half - 1)};
  if (bits == 8) return {-half, half - 1, static_cast<float>(half)};
  return {0, 2 * half - 1, static_cast<float>(2 * half - 1)};
}

void describe(const KvScheme& scheme, std::int64_t scale_group, std::int64_t zero_group, kernels::KvStoreArgs& args) {
  const CodeRange range = code_range(scheme);
  args.scale_group = scale_group;
  args.zero_group = zero_group;
  args.zero = zero_of(scheme);
  args.multiply = multiplies(scheme);
  args.rounding = rounding_of(scheme);
  args.low = range.low;
  args.high = range.high;
}

void describe(const KvScheme& scheme, std::int64_t scale_group, std::int64_t zero_group, kernels::KvReadArgs& args) {
  args.scale_group = scale_group;
  args.zero_group = zero_group;
  args.zero = zero_of(scheme);
  if (scheme.statistic == KvStatistic::outliers) args.outliers_beyond = code_range(scheme).largest;
}

std::int64_t coded_end(const KvScheme& scheme, std::int64_t end, std::int64_t context, bool first_step) {
  const std::int64_t first = scheme.keep_first;
  if (first_step) end = first;
  std::int64_t wanted = context - scheme.keep_last;
  if (scheme.window == KvWindow::filled) wanted = first_step || context - end >= scheme.keep_last ? context : end;
  const std::int64_t group = scheme.axis == KvAxis::channel && scheme.group > 0 ? scheme.group : 1;
  if (wanted > first) wanted = first + (wanted - first) / group * group;
  return std::max(end, wanted);
}

bool quantizes_behind(const KvScheme& scheme, bool first_step) {
  return scheme.own == KvOwn::as_is || (scheme.own == KvOwn::first && first_step);
}

}  // namespace nanscope
