#include "instrument/engine/config.h"

#include <fmt/format.h>

#include <algorithm>

namespace nanscope {

NormConfig resolved_inner_norm(const EngineConfig& config) {
  const InnerNormConfig& own = config.inner_norm;
  NormConfig norm = config.norm;
  norm.variance = own.variance.value_or(norm.variance);
  norm.order = own.order.value_or(norm.order);
  norm.contract = own.contract.value_or(norm.contract);
  norm.clamp = own.clamp.value_or(norm.clamp);
  norm.mean_by_reciprocal = own.mean_by_reciprocal.value_or(norm.mean_by_reciprocal);
  norm.eps = own.eps.value_or(norm.eps);
  return norm;
}

double rope_stretch(const RopeConfig& rope) {
  if (rope.scaling == RopeScaling::none) return 1;
  if (rope.scaling == RopeScaling::dynamic && rope.served <= rope.trained) return 1;
  return rope.factor * static_cast<double>(rope.served) / static_cast<double>(rope.trained) - (rope.factor - 1);
}

Format read_format(const KvConfig& kv) {
  const bool fp8 = info(kv.format).bits == 8 && info(kv.format).exponent_bits > 0;
  return fp8 ? kv.read_format.value_or(kv.format) : kv.format;
}

BlockShape block_shape(BlockFormat format) {
  if (format == BlockFormat::nvfp4) return {Format::e2m1, Format::e4m3, 16};
  return {format == BlockFormat::mxfp4 ? Format::e2m1 : Format::e4m3, Format::e8m0, 32};
}

bool is_recurrent(const ModelConfig& model, std::int64_t layer) {
  return std::find(model.recurrent_layers.begin(), model.recurrent_layers.end(), layer) != model.recurrent_layers.end();
}

Status check(const EngineConfig& config) {
  const ModelConfig& model = config.model;
  if (model.heads % model.kv_heads != 0) {
    return fail(fmt::format("model.heads={} is no multiple of model.kv_heads={}", model.heads, model.kv_heads));
  }
  if (model.head_dim % 2 != 0) {
    return fail(fmt::format("model.head_dim={} is odd; rotary embedding turns pairs of channels", model.head_dim));
  }
  if (model.head_dim == 2 && config.rope.scaling != RopeScaling::none) {
    return fail("rope.scaling needs model.head_dim above 2");
  }
  if (model.experts > 0 && model.experts_per_token > model.experts) {
    return fail(fmt::format("model.experts_per_token={} is more than model.experts={}", model.experts_per_token,
                            model.experts));
  }
  std::int64_t recurrent = 0;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) recurrent += is_recurrent(model, layer) ? 1 : 0;
  if (recurrent != static_cast<std::int64_t>(model.recurrent_layers.size())) {
    return fail(
        fmt::format("model.recurrent_layers names a layer twice or one that is not in 0..{}", model.layers - 1));
  }
  if (recurrent == model.layers) {
    return fail(
        "model.recurrent_layers names every layer; at least one layer must be attention, whose pool holds the states");
  }
  return {};
}

}  // namespace nanscope
