/// bench_score_guarantee [SEQUENCES]: scores of random tokens against the calibrated bound, of several shapes of
/// attention; then each assumption of it broken on purpose: scores go beyond, and the weights alone tell.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "instrument/spectral/layer_scales.h"
#include "instrument/spectral/scale_file.h"
#include "instrument/weights/random.h"
#include "tests/bench/bench.h"

namespace nanscope {
namespace {

constexpr std::int64_t kLength = 1024;
constexpr double kDelta = 1e-6;

/// One layer of attention: its shape and weights by our names.
struct Attention {
  ModelConfig model;
  std::map<std::string, std::vector<float>, std::less<>> named;

  NamedWeights source() const {
    return [this](std::string_view name, std::int64_t rows, std::int64_t columns) -> Result<std::vector<float>> {
      const auto found = named.find(name);
      if (found == named.end() || std::ssize(found->second) != rows * columns) return fail(std::string(name));
      return found->second;
    };
  }
  std::vector<float>& weight(std::string_view name) { return named["layers.0." + std::string(name)]; }
};

std::vector<float> gaussian_values(std::string_view stream, std::int64_t count, float scale, std::uint64_t first = 0) {
  std::vector<float> values(static_cast<std::size_t>(count));
  fill_gaussian(values, 1, stream, scale, first);
  return values;
}

Attention attention(std::int64_t width, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  Attention made;
  ModelConfig& model = made.model;
  model.layers = 1;
  model.width = width;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.head_dim = head_dim;
  model.norm = kernels::NormKind::rms_norm;
  model.positions = kLength;
  const float scale = 1 / std::sqrt(static_cast<float>(width));
  made.weight("attn_norm.weight").assign(static_cast<std::size_t>(width), 1.0F);
  made.weight("q_proj.weight") = gaussian_values("q", heads * head_dim * width, scale);
  made.weight("k_proj.weight") = gaussian_values("k", kv_heads * head_dim * width, scale);
  return made;
}

ScaleSettings settings() {
  ScaleSettings chosen;
  chosen.delta = kDelta;
  chosen.length = kLength;
  return chosen;
}

LayerScales scales_of(const Attention& layer) {
  return must(layer_scales(layer.model, {}, 0, layer.source(), settings()));
}

/// Rows of norm sqrt(width) that point anywhere; behind a layer norm, whose mean is 0.
std::vector<float> tokens(const Attention& layer, std::int64_t sequence) {
  const std::int64_t width = layer.model.width;
  std::vector<float> x = gaussian_values("tokens", kLength * width, 1, static_cast<std::uint64_t>(sequence) << 32U);
  for (std::int64_t t = 0; t < kLength; ++t) {
    const std::span<float> row(x.data() + t * width, static_cast<std::size_t>(width));
    double mean = 0;
    for (const float value : row) mean += double{value} / static_cast<double>(width);
    if (layer.model.norm != kernels::NormKind::layer_norm) mean = 0;
    double squares = 0;
    for (float& value : row) {
      value -= static_cast<float>(mean);
      squares += double{value} * double{value};
    }
    const auto scale = static_cast<float>(std::sqrt(static_cast<double>(width) / squares));
    for (float& value : row) value *= scale;
  }
  return x;
}

float dot(const float* a, const float* b, std::int64_t count) {
  float lanes[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int lane = 0; lane < 16; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

/// x W' + b, and the norm of each head where the model has one.
std::vector<float> projected(const Attention& layer, const QueryKeyWeights& folded, const std::vector<float>& x,
                             bool query) {
  const std::vector<float>& rows = query ? folded.q : folded.k;
  const std::vector<float>& bias = query ? folded.q_bias : folded.k_bias;
  const std::int64_t width = folded.width;
  const std::int64_t columns = std::ssize(rows) / width;
  std::vector<float> out(static_cast<std::size_t>(kLength * columns));
  for (std::int64_t t = 0; t < kLength; ++t) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const float sum = dot(x.data() + t * width, rows.data() + c * width, width);
      out[static_cast<std::size_t>(t * columns + c)] = sum + (bias.empty() ? 0 : bias[static_cast<std::size_t>(c)]);
    }
  }
  if (!layer.model.qk_norm) return out;
  const std::vector<float>& gain =
      layer.named.find(query ? "layers.0.q_norm.weight" : "layers.0.k_norm.weight")->second;
  const std::int64_t dim = folded.head_dim;
  for (std::int64_t first = 0; first < std::ssize(out); first += dim) {
    float* const head = out.data() + first;
    const float squares = dot(head, head, dim);
    for (std::int64_t c = 0; c < dim; ++c) {
      head[c] *= gain[static_cast<std::size_t>(c)] * std::sqrt(static_cast<float>(dim) / squares);
    }
  }
  return out;
}

struct Trials {
  std::int64_t count = 0;
  std::int64_t beyond = 0;  ///< the calibrated bound of their head
  double largest = 0;       ///< score over that bound
};

/// Every token of a sequence with every token, itself among them: what one meets at another place, when it is repeated.
Trials trials(const Attention& layer, std::span<const double> bounds, std::int64_t sequences) {
  const QueryKeyWeights folded = must(query_key_weights(layer.model, 0, layer.source()));
  const std::int64_t dim = folded.head_dim;
  const double factor = double{attention_scale(layer.model, 0)};
  Trials all;
  for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
    const std::vector<float> x = tokens(layer, sequence);
    const std::vector<float> q = projected(layer, folded, x, true);
    const std::vector<float> k = projected(layer, folded, x, false);
    for (std::int64_t head = 0; head < folded.heads; ++head) {
      for (std::int64_t i = 0; i < kLength; ++i) {
        const float* const query = q.data() + i * folded.heads * dim + head * dim;
        for (std::int64_t j = 0; j < kLength; ++j) {
          const float* const key = k.data() + j * folded.kv_heads * dim + head / folded.group() * dim;
          const double part = std::abs(factor * double{dot(query, key, dim)}) / bounds[static_cast<std::size_t>(head)];
          ++all.count;
          all.beyond += part > 1 ? 1 : 0;
          all.largest = std::max(all.largest, part);
        }
      }
    }
  }
  return all;
}

std::vector<double> calibrated(const LayerScales& layer) {
  std::vector<double> bounds;
  for (const HeadBounds& head : layer.heads) bounds.push_back(head.calibrated);
  return bounds;
}

std::string text_of(const Trials& all) {
  return fmt::format("{} of {:.3g} M, {:.3g} of it", all.beyond, static_cast<double>(all.count) * 1e-6, all.largest);
}

bool holds(std::string_view shape, const Attention& layer, std::int64_t sequences) {
  const LayerScales scales = scales_of(layer);
  const Trials all = trials(layer, calibrated(scales), sequences);
  const bool ok = all.beyond == 0 && all.count >= 1'000'000 && scales.warnings.empty();
  return row(shape, text_of(all), "0 beyond", ok);
}

/// Beyond in at least one score, and warned of by that name.
bool warned(std::string_view what, std::string_view kind, const LayerScales& scales, const std::string& found,
            bool beyond) {
  const bool told = std::any_of(scales.warnings.begin(), scales.warnings.end(),
                                [&](const ScaleWarning& one) { return one.kind == kind; });
  return row(what, found, kind.substr(0, 10), told && beyond);
}

bool shapes_hold(std::int64_t sequences) {
  bool ok = holds("RMS norm, 4 heads of their own", attention(512, 4, 4, 32), sequences);
  ok &= holds("8 query heads on 2 key heads", attention(512, 8, 2, 32), sequences);
  ok &= holds("one head as wide as the theory likes least", attention(256, 1, 1, 64), 4 * sequences);
  Attention biased = attention(512, 4, 2, 32);
  biased.model.qkv_bias = true;
  biased.weight("q_proj.bias") = gaussian_values("q bias", 128, 1);
  biased.weight("k_proj.bias") = gaussian_values("k bias", 64, 1);
  ok &= holds("biases on queries and keys", biased, sequences);
  Attention shifted = attention(512, 4, 4, 32);
  shifted.model.norm = kernels::NormKind::layer_norm;
  shifted.weight("attn_norm.weight") = gaussian_values("gain", 512, 1);
  shifted.weight("attn_norm.bias") = gaussian_values("shift", 512, 0.1F);
  ok &= holds("layer norm with gains and a shift", shifted, sequences);
  Attention normed = attention(512, 4, 2, 32);
  normed.model.qk_norm = true;
  normed.weight("q_norm.weight") = gaussian_values("q gain", 32, 1);
  normed.weight("k_norm.weight") = gaussian_values("k gain", 32, 1);
  return holds("norms on queries and keys", normed, sequences) && ok;
}

/// Rows that are orthonormal: all directions of the head count alike.
std::vector<float> orthonormal(std::int64_t rows, std::int64_t width) {
  std::vector<float> made(static_cast<std::size_t>(rows * width), 0.0F);
  const std::int64_t each = width / rows;
  for (std::int64_t i = 0; i < each * rows; ++i) {
    made[static_cast<std::size_t>(i / each * width + i)] = 1 / std::sqrt(static_cast<float>(each));
  }
  return made;
}

bool like_keys_are_warned_of(std::int64_t sequences) {
  Attention layer = attention(1024, 1, 1, 64);
  layer.weight("q_proj.weight") = layer.weight("k_proj.weight") = orthonormal(64, 1024);
  const LayerScales scales = scales_of(layer);
  const Trials all = trials(layer, calibrated(scales), sequences);
  return warned("queries are keys: tokens that meet themselves", "query-like-key", scales, text_of(all),
                all.beyond > 0);
}

/// Vector C1 of a paper's reading: W_Q = [A, -A] in one group.
bool cancelling_heads_are_warned_of() {
  Attention layer = attention(512, 2, 1, 32);
  std::vector<float>& q = layer.weight("q_proj.weight");
  for (std::size_t i = 0; i < q.size() / 2; ++i) q[q.size() / 2 + i] = -q[i];
  const LayerScales scales = scales_of(layer);
  const double by_layer = scales.heads[0].calibrated * scales.settled / scales.norms[0].interaction;
  const std::vector<double> bounds(2, std::max(by_layer, 1e-30));
  const Trials all = trials(layer, bounds, 1);
  return warned("heads cancel, and the scale is the layer's", "layer-norm-hides-heads", scales, text_of(all),
                all.beyond > 0);
}

/// Queries along one channel, keys along the one that it is rotated with: at a distance they meet.
bool rotation_is_warned_of() {
  Attention layer = attention(512, 1, 1, 32);
  for (std::int64_t row = 0; row < 32; ++row) {
    const auto clear = [&](std::string_view name, bool keep) {
      float* const values = layer.weight(name).data() + row * 512;
      if (!keep) std::fill(values, values + 512, 0.0F);
    };
    clear("q_proj.weight", row == 0);
    clear("k_proj.weight", row == 16);
  }
  layer.model.positions = 0;
  const LayerScales scales = scales_of(layer);
  const double at_distance = scales.norms[0].rotated;
  const double here = scales.norms[0].interaction;
  return warned("rotation turns queries into keys", "rotation-aligns", scales,
                fmt::format("norm {:.3g} at a distance, {:.3g} here", at_distance, here), at_distance > 1.25 * here);
}

bool cold_iterations_are_warned_of() {
  const Attention layer = attention(512, 4, 4, 32);
  ScaleSettings once = settings();
  once.iterations = 1;
  const LayerScales scales = must(layer_scales(layer.model, {}, 0, layer.source(), once));
  return warned("one iteration from a cold start", "cold-iteration", scales,
                fmt::format("{:.3g} of {:.3g}", scales.cold, scales.settled), scales.cold * 1.25 < scales.settled);
}

bool tokens_without_a_norm_are_warned_of() {
  Attention layer = attention(512, 4, 4, 32);
  layer.model.norm_placement = NormPlacement::branch;
  const LayerScales scales = scales_of(layer);
  return warned("no norm before attention", "input-not-normed", scales, "no bound", scales.heads.empty());
}

bool swapped_weights_are_warned_of() {
  const Attention layer = attention(512, 4, 4, 32);
  const LayerScales before = scales_of(layer);
  ScaleFile file{"scales.safetensors", "before", "geometry", {}};
  FiledLayer& filed = file.layers.emplace_back();
  filed.identity = before.identity;
  for (std::size_t head = 0; head < before.heads.size(); ++head) {
    filed.scores.push_back(static_cast<float>(before.heads[head].scale));
    filed.norms.push_back(static_cast<float>(before.norms[head].interaction));
  }
  Attention swapped = layer;
  for (const char* name : {"q_proj.weight", "k_proj.weight"}) {
    for (float& value : swapped.weight(name)) value *= 4;
  }
  ModelScales after;
  after.layers.push_back(scales_of(swapped));
  warn_of_other_weights(file, after);
  const Trials all = trials(swapped, calibrated(before), 1);
  return warned("weights four times those of the scales", "swapped-checkpoint", after.layers.front(), text_of(all),
                all.beyond > 0);
}

bool run(std::int64_t sequences) {
  fmt::print("{} sequences of {} tokens, every token with every token, delta {:g}\n", sequences, kLength, kDelta);
  bool ok = shapes_hold(sequences);
  ok &= like_keys_are_warned_of(sequences);
  ok &= cancelling_heads_are_warned_of();
  ok &= rotation_is_warned_of();
  ok &= cold_iterations_are_warned_of();
  ok &= tokens_without_a_norm_are_warned_of();
  return swapped_weights_are_warned_of() && ok;
}

}  // namespace
}  // namespace nanscope

int main(int count, char** arguments) {
  std::int64_t sequences = 4;
  if (count > 1) std::from_chars(arguments[1], arguments[1] + std::strlen(arguments[1]), sequences);
  return nanscope::run(std::max<std::int64_t>(sequences, 1)) ? 0 : 1;
}
