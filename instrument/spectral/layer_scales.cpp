#include "instrument/spectral/layer_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "core/tensor/content_hash.h"
#include "instrument/model/rope_table.h"

namespace nanscope {
namespace {

std::string prefix_of(std::int64_t layer) { return fmt::format("layers.{}.", layer); }

/// The norm whose output attention reads, by our names; empty: there is none.
std::string input_norm(const ModelConfig& model, std::int64_t layer) {
  if (norms_before(model)) return prefix_of(layer) + "attn_norm";
  if (model.norm_placement == NormPlacement::post && layer > 0) return prefix_of(layer - 1) + "mlp_post_norm";
  return {};
}

Status check_finite(const std::string& name, const std::vector<float>& values) {
  const auto bad = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  if (bad == values.end()) return {};
  return fail(
      fmt::format("weight '{}' holds {} at element {}: no bound follows from it", name, *bad, bad - values.begin()));
}

Result<std::vector<float>> finite(const NamedWeights& weights, const std::string& name, std::int64_t rows,
                                  std::int64_t columns) {
  Result<std::vector<float>> values = weights(name, rows, columns);
  if (!values) return values;
  if (Status status = check_finite(name, *values); !status) return tl::unexpected(status.error());
  return values;
}

/// W diag(gain) in place; what a norm's bias makes of W, and W's own bias.
std::vector<float> fold(std::vector<float>& rows, const std::vector<float>& gain, const std::vector<float>& shift,
                        std::vector<float> bias, std::int64_t width) {
  const auto count = static_cast<std::int64_t>(rows.size()) / width;
  if (!shift.empty() && bias.empty()) bias.assign(static_cast<std::size_t>(count), 0.0F);
  for (std::int64_t row = 0; row < count; ++row) {
    float* const values = rows.data() + row * width;
    double sum = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (!shift.empty()) sum += double{values[i]} * double{shift[at]};
      if (!gain.empty()) values[i] *= gain[at];
    }
    if (!shift.empty()) bias[static_cast<std::size_t>(row)] += static_cast<float>(sum);
  }
  return bias;
}

struct Norm {
  std::vector<float> gain, shift;
};

Result<Norm> norm_of(const ModelConfig& model, const std::string& name, const NamedWeights& weights) {
  Norm norm;
  if (name.empty()) return norm;
  Result<std::vector<float>> gain = finite(weights, name + ".weight", 1, model.width);
  if (!gain) return tl::unexpected(gain.error());
  norm.gain = std::move(*gain);
  if (model.norm != kernels::NormKind::layer_norm || !model.norm_bias) return norm;
  Result<std::vector<float>> shift = finite(weights, name + ".bias", 1, model.width);
  if (!shift) return tl::unexpected(shift.error());
  norm.shift = std::move(*shift);
  return norm;
}

double largest_magnitude(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

/// Gains of the norms on queries and keys; empty where there are none.
struct QkGains {
  std::vector<float> query, key;
};

Result<QkGains> qk_gains(const ModelConfig& model, std::int64_t layer, const NamedWeights& weights) {
  QkGains gains;
  if (!model.qk_norm) return gains;
  const bool each = model.qk_norm_over == QkNormOver::head;
  for (const bool query : {true, false}) {
    const std::int64_t columns = each ? model.head_dim : model.head_dim * (query ? model.heads : model.kv_heads);
    auto gain = finite(weights, prefix_of(layer) + (query ? "q_norm.weight" : "k_norm.weight"), 1, columns);
    if (!gain) return tl::unexpected(gain.error());
    (query ? gains.query : gains.key) = std::move(*gain);
  }
  return gains;
}

/// What scores can reach behind norms on Q and K: the product of their longest rows. One over all heads may give one
/// head everything.
double qk_norm_bound(const QkGains& gains) {
  const auto longest = [](const std::vector<float>& gain) {
    return largest_magnitude(gain) * std::sqrt(static_cast<double>(gain.size()));
  };
  return longest(gains.query) * longest(gains.key);
}

double capped(double bound, double softcap) { return softcap > 0 ? std::min(bound, softcap) : bound; }

HeadBounds bounds_of(const HeadNorms& norms, const LayerScales& layer, double length, double alpha) {
  const double squared = length * length;
  const double biases = norms.bias_terms * length + norms.bias_product;
  HeadBounds bounds;
  bounds.naive = capped(
      layer.factor * (norms.query * length + norms.query_bias) * (norms.key * length + norms.key_bias), layer.softcap);
  bounds.interaction = capped(layer.factor * (norms.interaction * squared + biases), layer.softcap);
  bounds.calibrated = capped(layer.factor * (alpha * norms.interaction * squared + biases), layer.softcap);
  return bounds;
}

/// How a layer's rotary embedding turns pairs of channels; nothing turns in a layer without one.
struct Rotary {
  std::vector<float> frequencies;
  double amplitude = 1;
};

Rotary rotary_of(const ModelConfig& model, const RopeConfig& rope, std::int64_t layer, std::int64_t length) {
  Rotary rotary;
  if (!is_rotary(model, layer)) return rotary;
  if (has_rope_table(model, rope)) {
    RopeTable table = rope_table(model, rope, window_of(model, layer) > 0, length);
    return {std::move(table.frequencies), double{table.amplitude}};
  }
  const std::int64_t rotated = model.rotated > 0 ? model.rotated : model.head_dim;
  for (std::int64_t i = 0; i < rotated / 2; ++i) {
    const double angle = std::pow(model.rope_base, -2.0 * static_cast<double>(i) / static_cast<double>(rotated));
    rotary.frequencies.push_back(static_cast<float>(angle));
  }
  return rotary;
}

/// Behind norms on queries and keys: channels that are not rotated are not amplified either.
double amplification(const ModelConfig& model, const Rotary& rotary) {
  const bool all = 2 * std::ssize(rotary.frequencies) == model.head_dim;
  return all ? rotary.amplitude : std::max(1.0, rotary.amplitude);
}

/// Into the rows that make the channels which are rotated: rotation and amplitude commute.
void fold_amplitude(const Rotary& rotary, QueryKeyWeights& weights) {
  if (rotary.amplitude == 1) return;
  const auto amplitude = static_cast<float>(rotary.amplitude);
  for (const bool query : {true, false}) {
    const std::span<float> rows(query ? weights.q : weights.k);
    std::vector<float>& bias = query ? weights.q_bias : weights.k_bias;
    const auto width = static_cast<std::size_t>(weights.width);
    for (std::size_t row = 0; row < rows.size() / width; ++row) {
      const auto channel = static_cast<std::int64_t>(row) % weights.head_dim;
      if (channel >= 2 * std::ssize(rotary.frequencies)) continue;
      for (float& value : rows.subspan(row * width, width)) value *= amplitude;
      if (!bias.empty()) bias[row] *= amplitude;
    }
  }
}

RotationProbe rotations_of(const Rotary& rotary, std::int64_t length) {
  RotationProbe probe;
  probe.frequencies = rotary.frequencies;
  for (std::int64_t offset = 1; offset < length; offset *= 2) probe.offsets.push_back(offset);
  return probe;
}

void iterate(const QueryKeyWeights& weights, const ScaleSettings& settings, LayerScales& layer) {
  const std::vector<double> start = cold_start(weights.width);
  const std::vector<float> first(start.begin(), start.end());
  InteractionIteration<float> iteration(weights, first, settings.threads);
  for (int i = 1; i <= settings.iterations; ++i) {
    layer.cold = iteration.step();
    if (i == 1) layer.cold_once = layer.cold;
  }
  layer.settled = layer_norm_of(weights, settings.threads);
}

/// The part of what scores of norm `found` can reach that a scale has room for which follows from the norm `assumed`: a
/// softcap holds both.
bool beyond_room(const LayerScales& layer, double found, double assumed, std::int64_t width, double utilization) {
  const double reach = layer.factor * static_cast<double>(width);
  return capped(found * reach, layer.softcap) * utilization > capped(assumed * reach, layer.softcap);
}

void warn_of_layer(LayerScales& layer, std::int64_t width, const ScaleSettings& settings) {
  const double head = layer.largest_head_norm();
  if (beyond_room(layer, head, layer.settled, width, settings.utilization)) {
    layer.warnings.push_back({"layer-norm-hides-heads", -1,
                              fmt::format("norm {:.4g} of all heads side by side, {:.4g} of one: they cancel, and a "
                                          "scale from the layer's norm is too small",
                                          layer.settled, head),
                              head / layer.settled});
  }
  if (beyond_room(layer, layer.settled, layer.cold, width, settings.utilization)) {
    layer.warnings.push_back({"cold-iteration", -1,
                              fmt::format("{} iterations from a cold start give {:.4g} of {:.4g}", settings.iterations,
                                          layer.cold, layer.settled),
                              layer.settled / layer.cold});
  }
}

/// Tokens that meet themselves, or the same token elsewhere, are no independent pairs: x' M x has the mean tr M, and is
/// beyond tr M + 2 norm_F sqrt(t) + 2 norm t with a chance of e^-t at most (Laurent, Massart 2000, lemma 1).
void warn_of_head(LayerScales& layer, std::int64_t head, const TailShape& shape, const ScaleSettings& settings,
                  double alpha) {
  const HeadNorms& norms = layer.norms[static_cast<std::size_t>(head)];
  const double calibrated = alpha * norms.interaction * static_cast<double>(shape.width);
  const double t = std::log(static_cast<double>(shape.heads) * static_cast<double>(shape.length) / settings.delta);
  const double worst = norms.interaction * static_cast<double>(shape.width);
  const double repeated =
      std::min(worst, std::abs(norms.trace) + std::sqrt(2 * t) * norms.spread + 2 * t * norms.interaction);
  if (capped(layer.factor * repeated, layer.softcap) > capped(layer.factor * calibrated, layer.softcap)) {
    layer.warnings.push_back(
        {"query-like-key", head,
         fmt::format("a token that meets itself, or is repeated, scores {:.4g} on average and up to {:.4g}; alpha "
                     "allows {:.4g}",
                     layer.factor * norms.trace, layer.factor * repeated, layer.factor * calibrated),
         repeated / calibrated});
  }
  if (beyond_room(layer, norms.rotated, norms.interaction, shape.width, settings.utilization)) {
    layer.warnings.push_back({"rotation-aligns", head,
                              fmt::format("norm {:.4g} at position 0, {:.4g} at some distance: only the naive bound "
                                          "holds",
                                          norms.interaction, norms.rotated),
                              norms.rotated / norms.interaction});
  }
}

void bound_by_qk_norm(const ModelConfig& model, const QkGains& gains, double amplified, LayerScales& layer) {
  layer.bound = ScoreBound::qk_norm;
  const double most = layer.factor * amplified * amplified * qk_norm_bound(gains);
  HeadBounds bounds;
  bounds.naive = bounds.interaction = bounds.calibrated = capped(most, layer.softcap);
  layer.heads.assign(static_cast<std::size_t>(model.heads), bounds);
}

void bound_by_interaction(const ModelConfig& model, const ScaleSettings& settings, LayerScales& layer) {
  layer.bound = ScoreBound::interaction;
  const TailShape shape = tail_shape(model, settings.length);
  const double alpha = calibration(shape, settings);
  const double length = std::sqrt(static_cast<double>(model.width));
  for (const HeadNorms& head : layer.norms) layer.heads.push_back(bounds_of(head, layer, length, alpha));
  warn_of_layer(layer, model.width, settings);
  for (std::int64_t head = 0; head < model.heads; ++head) warn_of_head(layer, head, shape, settings, alpha);
}

/// Bounds of what fp8 attention casts before the product, and the scales that follow.
void bound_elements(const ModelConfig& model, const QueryKeyWeights& folded, const QkGains& gains, const Rotary& rotary,
                    const ScaleSettings& settings, LayerScales& layer) {
  ElementForm form{.head_dim = model.head_dim,
                   .pairs = std::ssize(rotary.frequencies),
                   .amplitude = rotary.amplitude,
                   .all_mixed = settings.mixed_channels};
  const double alpha = std::min(1.0, smallest_element_alpha(tail_shape(model, settings.length), settings.delta));
  if (model.qk_norm) {
    layer.queries = element_bounds_of_norm(gains.query, model.heads, form);
    layer.keys = element_bounds_of_norm(gains.key, model.kv_heads, form);
  } else {
    // What it amplifies is folded in.
    form.amplitude = 1;
    layer.queries = element_bounds(folded.q, folded.q_bias, folded.width, form, alpha);
    layer.keys = element_bounds(folded.k, folded.k_bias, folded.width, form, alpha);
  }
  for (auto* elements : {&layer.queries, &layer.keys}) {
    for (ElementBounds& one : *elements) one.scale = one.calibrated / (settings.utilization * settings.largest);
  }
}

std::uint64_t identity_of(const QueryKeyWeights& weights, const QkGains& gains) {
  ContentHash hash;
  for (const auto* values : {&weights.q, &weights.k, &weights.q_bias, &weights.k_bias, &gains.query, &gains.key}) {
    hash.add(std::as_bytes(std::span(*values)));
  }
  return hash.finish();
}

}  // namespace

std::string_view name(ScoreBound bound) {
  switch (bound) {
    case ScoreBound::interaction:
      return "interaction";
    case ScoreBound::qk_norm:
      return "qk_norm";
    case ScoreBound::none:
      break;
  }
  return "none";
}

double LayerScales::largest_head_norm() const {
  double largest = 0;
  for (const HeadNorms& head : norms) largest = std::max(largest, head.interaction);
  return largest;
}

HeadBounds LayerScales::whole() const {
  HeadBounds all;
  for (const HeadBounds& head : heads) {
    all.naive = std::max(all.naive, head.naive);
    all.interaction = std::max(all.interaction, head.interaction);
    all.calibrated = std::max(all.calibrated, head.calibrated);
    all.scale = std::max(all.scale, head.scale);
  }
  return all;
}

Result<QueryKeyWeights> query_key_weights(const ModelConfig& model, std::int64_t layer, const NamedWeights& weights) {
  if (is_latent(model)) {
    return fail(fmt::format("model.kv_rank={}: scores of latent attention have no bound here", model.kv_rank));
  }
  const std::string prefix = prefix_of(layer);
  const Result<Norm> norm = norm_of(model, input_norm(model, layer), weights);
  if (!norm) return tl::unexpected(norm.error());
  QueryKeyWeights all{model.width, model.heads, model.kv_heads, model.head_dim, {}, {}, {}, {}};
  for (const bool query : {true, false}) {
    const std::string name = prefix + (query ? "q_proj" : "k_proj");
    const std::int64_t rows = model.head_dim * (query ? model.heads : model.kv_heads);
    Result<std::vector<float>> matrix = finite(weights, name + ".weight", rows, model.width);
    if (!matrix) return tl::unexpected(matrix.error());
    std::vector<float> bias;
    if (model.bias || model.qkv_bias) {
      Result<std::vector<float>> own = finite(weights, name + ".bias", 1, rows);
      if (!own) return tl::unexpected(own.error());
      bias = std::move(*own);
    }
    (query ? all.q_bias : all.k_bias) = fold(*matrix, norm->gain, norm->shift, std::move(bias), model.width);
    (query ? all.q : all.k) = std::move(*matrix);
  }
  return all;
}

double calibration(const TailShape& shape, const ScaleSettings& settings) {
  return settings.alpha.value_or(std::min(1.0, smallest_alpha(shape, settings.delta)));
}

TailShape tail_shape(const ModelConfig& model, std::int64_t length) {
  const std::int64_t layers = model.layers - static_cast<std::int64_t>(model.recurrent_layers.size());
  return {model.width, model.head_dim, layers * model.heads, length};
}

Result<std::uint64_t> layer_identity(const ModelConfig& model, std::int64_t layer, const NamedWeights& weights) {
  const Result<QueryKeyWeights> folded = query_key_weights(model, layer, weights);
  if (!folded) return tl::unexpected(folded.error());
  const Result<QkGains> gains = qk_gains(model, layer, weights);
  if (!gains) return tl::unexpected(gains.error());
  return identity_of(*folded, *gains);
}

Result<LayerScales> layer_scales(const ModelConfig& model, const RopeConfig& rope, std::int64_t index,
                                 const NamedWeights& weights, const ScaleSettings& settings, std::stop_token stop) {
  LayerScales layer;
  layer.layer = index;
  layer.rotary = is_rotary(model, index);
  const Rotary rotary = rotary_of(model, rope, index, settings.length);
  layer.factor = double{attention_scale(model, index)};
  layer.softcap = model.attention_softcap;
  Result<QueryKeyWeights> folded = query_key_weights(model, index, weights);
  if (!folded) return tl::unexpected(folded.error());
  const Result<QkGains> gains = qk_gains(model, index, weights);
  if (!gains) return tl::unexpected(gains.error());
  layer.identity = identity_of(*folded, *gains);
  fold_amplitude(rotary, *folded);
  const RotationProbe rotations =
      layer.rotary && !model.qk_norm ? rotations_of(rotary, settings.length) : RotationProbe{};
  Result<std::vector<HeadNorms>> norms = head_norms(*folded, rotations, settings.threads, std::move(stop));
  if (!norms) return tl::unexpected(norms.error());
  layer.norms = std::move(*norms);
  iterate(*folded, settings, layer);
  layer.naive_norm = naive_layer_norm(*folded, settings.threads);
  if (!model.qk_norm && input_norm(model, index).empty()) {
    layer.warnings.push_back({"input-not-normed", -1, "nothing bounds the tokens that attention reads", 1});
    return layer;
  }
  if (model.qk_norm) {
    bound_by_qk_norm(model, *gains, amplification(model, rotary), layer);
  } else {
    bound_by_interaction(model, settings, layer);
  }
  for (HeadBounds& head : layer.heads) head.scale = head.calibrated / (settings.utilization * settings.largest);
  bound_elements(model, *folded, *gains, rotary, settings, layer);
  return layer;
}

}  // namespace nanscope
