#include "tests/corpus/model.h"

#include <fmt/format.h>

#include <cmath>

namespace nanscope::corpus {
namespace {

Linear linear(std::uint64_t seed, const std::string& name, std::int64_t out, std::int64_t in, Format format,
              bool biased) {
  Linear made;
  made.out = out;
  made.in = in;
  made.set(normal(seed, name, out, in, 1 / std::sqrt(static_cast<double>(in)), Format::f32), format);
  if (biased) made.bias = normal(seed, name + ".bias", 1, out, 0.05, format).values;
  return made;
}

Norm norm(std::uint64_t seed, const std::string& name, const Shape& shape) {
  Norm made;
  made.weight = normal(seed, name, 1, shape.width, 0.1, shape.dtype).values;
  for (float& w : made.weight) w = stored(shape.dtype, w + 1);
  if (shape.layer_norm()) made.bias = normal(seed, name + ".bias", 1, shape.width, 0.05, shape.dtype).values;
  return made;
}

Layer layer(std::uint64_t seed, int number, const Shape& shape) {
  const auto name = [number](std::string_view part) { return fmt::format("layer{}.{}", number, part); };
  const bool biased = !shape.gated();
  const Format f = shape.dtype;
  Layer made;
  made.attn_norm = norm(seed, name("attn_norm"), shape);
  made.mlp_norm = norm(seed, name("mlp_norm"), shape);
  made.q = linear(seed, name("q"), shape.q_width(), shape.width, f, biased || shape.family == Family::qwen);
  made.k = linear(seed, name("k"), shape.kv_width(), shape.width, f, biased || shape.family == Family::qwen);
  made.v = linear(seed, name("v"), shape.kv_width(), shape.width, f, biased || shape.family == Family::qwen);
  made.o = linear(seed, name("o"), shape.width, shape.q_width(), f, biased);
  if (shape.experts == 0) {
    if (shape.gated()) made.gate = linear(seed, name("gate"), shape.inner, shape.width, f, false);
    made.up = linear(seed, name("up"), shape.inner, shape.width, f, biased);
    made.down = linear(seed, name("down"), shape.width, shape.inner, f, biased);
    return made;
  }
  made.router = linear(seed, name("router"), shape.experts, shape.width, f, false);
  made.router_bias = normal(seed, name("router_bias"), 1, shape.experts, 0.05, Format::f32).values;
  for (int e = 0; e < shape.experts; ++e) {
    const auto of = [&](std::string_view part) { return name(fmt::format("expert{}.{}", e, part)); };
    made.experts.push_back({linear(seed, of("gate"), shape.inner, shape.width, f, false),
                            linear(seed, of("up"), shape.inner, shape.width, f, false),
                            linear(seed, of("down"), shape.width, shape.inner, f, false)});
  }
  return made;
}

}  // namespace

Matrix Linear::values() const {
  Matrix read(out, in);
  const Format as = read_as.value_or(format);
  for (std::size_t i = 0; i < codes.size(); ++i) read.values[i] = decode(as, codes[i]);
  return read;
}

void Linear::set(const Matrix& weight, Format stored_as) {
  format = stored_as;
  codes.clear();
  for (const float w : weight.values) codes.push_back(encode(format, w, Overflow::overflow));
}

void Linear::quantize_weight(Format stored_as) {
  Quantized q = quantize(values(), Cast{.format = stored_as, .divisor = info(stored_as).max_finite, .given = {}});
  format = stored_as;
  codes = std::move(q.codes);
  scale = q.scales.front();
}

Model make_model(const Shape& shape, std::uint64_t seed) {
  Model model;
  model.shape = shape;
  model.embed = normal(seed, "embed", shape.vocabulary, shape.width, 1, shape.dtype);
  for (int l = 0; l < shape.layers; ++l) model.layers.push_back(layer(seed, l, shape));
  model.final_norm = norm(seed, "final_norm", shape);
  model.lm_head = linear(seed, "lm_head", shape.vocabulary, shape.width, shape.dtype, false);
  return model;
}

void answer_to(Linear& weight, std::span<const float> towards, double gain, std::uint64_t seed, std::string_view name) {
  const Matrix amounts = normal(seed, name, weight.out, 1, gain / static_cast<double>(weight.in), Format::f32);
  Matrix w = weight.values();
  for (std::int64_t r = 0; r < w.rows; ++r) {
    for (std::int64_t c = 0; c < w.cols; ++c) w.at(r, c) += amounts.at(r, 0) * towards[static_cast<std::size_t>(c)];
  }
  weight.set(w, weight.format);
}

}  // namespace nanscope::corpus
