#include "instrument/model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace nanscope {
namespace {

bool is_table(RopeScaling scaling) {
  return scaling == RopeScaling::linear || scaling == RopeScaling::llama3 || scaling == RopeScaling::yarn ||
         scaling == RopeScaling::longrope;
}

double llama3_angle(const RopeConfig& rope, double angle) {
  const double wave = 2 * std::numbers::pi / angle;
  const auto trained = static_cast<double>(rope.trained);
  if (wave > trained / rope.low_factor) return angle / rope.factor;
  if (wave < trained / rope.high_factor) return angle;
  const double blend = (trained / wave - rope.low_factor) / (rope.high_factor - rope.low_factor);
  return (1 - blend) * angle / rope.factor + blend * angle;
}

/// The pair of channels, a real number, that turns `turns` times within the trained positions.
double yarn_pair(const RopeConfig& rope, double base, double channels, double turns) {
  return channels * std::log(static_cast<double>(rope.trained) / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
}

/// Share of the slowed angle, by pair: 0 below the fast bound, 1 above the slow one.
double yarn_share(const RopeConfig& rope, double base, double channels, std::size_t pair) {
  double low = yarn_pair(rope, base, channels, rope.fast);
  double high = yarn_pair(rope, base, channels, rope.slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, channels - 1);
  if (low == high) high += 0.001;
  return std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
}

double amplitude_of(const RopeConfig& rope) {
  if (rope.amplitude > 0) return rope.amplitude;
  if (rope.factor <= 1) return 1;
  if (rope.scaling == RopeScaling::yarn) return 0.1 * std::log(rope.factor) + 1;
  if (rope.scaling == RopeScaling::longrope) {
    return std::sqrt(1 + std::log(rope.factor) / std::log(static_cast<double>(rope.trained)));
  }
  return 1;
}

}  // namespace

std::int64_t rotated_channels(const ModelConfig& model) { return model.rotated > 0 ? model.rotated : model.head_dim; }

bool has_rope_table(const ModelConfig& model, const RopeConfig& rope) {
  return is_table(rope.scaling) || model.rotated > 0 || model.local_rope_base > 0;
}

RopeTable rope_table(const ModelConfig& model, const RopeConfig& rope, bool local, std::int64_t context) {
  const bool own_base = local && model.local_rope_base > 0;
  const double base = own_base ? model.local_rope_base : model.rope_base;
  const auto channels = static_cast<double>(rotated_channels(model));
  RopeTable table;
  table.frequencies.resize(static_cast<std::size_t>(rotated_channels(model) / 2));
  if (!own_base) table.amplitude = static_cast<float>(amplitude_of(rope));
  for (std::size_t pair = 0; pair < table.frequencies.size(); ++pair) {
    double angle = std::pow(base, -2 * static_cast<double>(pair) / channels);
    if (!own_base && rope.scaling == RopeScaling::linear) angle /= rope.factor;
    if (!own_base && rope.scaling == RopeScaling::llama3) angle = llama3_angle(rope, angle);
    if (!own_base && rope.scaling == RopeScaling::yarn) {
      const double share = yarn_share(rope, base, channels, pair);
      angle = angle / rope.factor * share + angle * (1 - share);
    }
    if (!own_base && rope.scaling == RopeScaling::longrope) {
      angle /= context > rope.trained ? rope.long_factors[pair] : rope.short_factors[pair];
    }
    table.frequencies[pair] = static_cast<float>(angle);
  }
  return table;
}

}  // namespace nanscope
