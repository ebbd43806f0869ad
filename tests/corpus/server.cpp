#include "tests/corpus/server.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace nanscope::corpus {
namespace {

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

float gelu(float x) { return 0.5F * x * (1 + std::erf(x * 0.70710678F)); }

/// As servers of one kind compute it: both sums in f32, one after the other.
float one_pass_variance(std::span<const float> x, float mean) {
  float squares = 0;
  for (const float v : x) squares += v * v;
  return squares / static_cast<float>(x.size()) - mean * mean;
}

float two_pass_variance(std::span<const float> x, double mean) {
  double sum = 0;
  for (const float v : x) sum += (double{v} - mean) * (double{v} - mean);
  return static_cast<float>(sum / static_cast<double>(x.size()));
}

std::int64_t argmax(std::span<const float> row) {
  std::int64_t best = 0;
  float largest = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (!(row[i] > largest)) continue;
    largest = row[i];
    best = static_cast<std::int64_t>(i);
  }
  return best;
}

Matrix added(const Matrix& a, const Matrix& b, Format format) {
  Matrix sum(a.rows, a.cols);
  for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] = stored(format, a.values[i] + b.values[i]);
  return sum;
}

}  // namespace

Server::Server(Model m, Settings s) : model(std::move(m)), settings(std::move(s)) {
  const auto layers = static_cast<std::size_t>(model.shape.layers);
  keys_.resize(layers);
  values_.resize(layers);
  score_history.assign(layers, std::vector<float>(16, 1.0F));
}

std::string Server::name(std::string_view part, int layer, std::string_view what) const {
  return module_name(model.shape, part, layer) + '.' + std::string(what);
}

Prompt Server::prompt(std::uint64_t seed, std::string_view name, std::int64_t tokens) const {
  Prompt made;
  made.embedded = Matrix(tokens, model.shape.width);
  for (std::int64_t t = 0; t < tokens; ++t) {
    made.ids.push_back(draw(seed + static_cast<std::uint64_t>(t) * 7919, name, model.shape.vocabulary));
    const auto row = model.embed.row(made.ids.back());
    std::copy(row.begin(), row.end(), made.embedded.row(t).begin());
  }
  return made;
}

void Server::put(Tape& tape, Group group, std::string_view part, int layer, std::string_view what,
                 const Matrix& m) const {
  std::vector<std::int64_t> shape = {m.rows, m.cols};
  if (!model.shape.gated()) shape.insert(shape.begin(), 1);
  const Format format = part == "lm_head" && what == "output" ? Format::f32 : model.shape.dtype;
  tape.add(group, std::string(part) + '.' + std::string(what), name(part, layer, what), format, shape, m.values);
}

Matrix Server::normed(const Norm& norm, const Matrix& x) const {
  Matrix out(x.rows, x.cols);
  const auto n = static_cast<float>(x.cols);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const auto row = x.row(r);
    float sum = 0;
    double squares = 0;
    for (const float v : row) {
      sum += v;
      squares += double{v} * double{v};
    }
    const float mean = model.shape.layer_norm() ? sum / n : 0;
    float variance = static_cast<float>(squares / static_cast<double>(n));
    if (model.shape.layer_norm()) {
      variance = settings.one_pass ? one_pass_variance(row, mean) : two_pass_variance(row, double{mean});
    }
    const float root = 1 / std::sqrt(variance + settings.eps);
    for (std::int64_t c = 0; c < x.cols; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const float bias = norm.bias.empty() ? 0 : norm.bias[at];
      out.at(r, c) = stored(model.shape.dtype, (row[at] - mean) * root * norm.weight[at] + bias);
    }
  }
  return out;
}

Matrix Server::cast_input(Tape& tape, std::string_view part, int layer, const Linear& linear, const Matrix& x) const {
  const Quantized q = quantize(x, *linear.input);
  const std::string tag(part);
  if (q.cast.power_of_two) {
    std::vector<std::uint32_t> codes;
    for (const float s : q.scales) codes.push_back(encode(Format::e8m0, s, Overflow::overflow));
    tape.add_codes(kScales, tag + ".input_scale", name(part, layer, "input_scale"), "F8_E8M0", q.scale_shape(), codes);
  } else {
    tape.add(kScales, tag + ".input_scale", name(part, layer, "input_scale"), Format::f32, q.scale_shape(), q.scales);
  }
  const bool packed = q.cast.format == Format::e2m1;
  if (!packed) {
    const std::string_view dtype = q.cast.format == Format::int8   ? "I8"
                                   : q.cast.format == Format::e5m2 ? "F8_E5M2"
                                                                   : "F8_E4M3";
    tape.add_codes(kCodes, tag + ".input_codes", name(part, layer, "input_codes"), dtype, {x.rows, x.cols}, q.codes);
  }
  return dequantize(q, q.cast.format, linear.input_power);
}

Matrix Server::through(Tape& tape, std::string_view part, int layer, Linear& linear, const Matrix& x) {
  put(tape, kInputs, part, layer, "input", x);
  const Matrix in = linear.input ? cast_input(tape, part, layer, linear, x) : x;
  const Matrix weight = linear.values();
  const double scale = linear.scale ? double{applied(*linear.scale, linear.scale_power)} : 1;
  Matrix out(x.rows, linear.out);
  const std::int64_t terms = broken(part, layer, Bug::short_sum) ? linear.in - linear.in / 4 : linear.in;
  const bool biased = !linear.bias.empty() && !broken(part, layer, Bug::no_bias);
  const double factor = broken(part, layer, Bug::factor) ? double{settings.broken->factor} : 1;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t o = 0; o < linear.out; ++o) {
      double sum = 0;
      for (std::int64_t k = 0; k < terms; ++k) sum += double{in.at(r, k)} * double{weight.at(o, k)};
      sum *= scale * factor;
      if (biased) sum += double{linear.bias[static_cast<std::size_t>(o)]};
      if (broken(part, layer, Bug::zero_columns) && o >= linear.out - linear.out / 4) sum = 0;
      out.at(r, o) = part == "lm_head" ? static_cast<float>(sum) : stored(model.shape.dtype, static_cast<float>(sum));
    }
    if (broken(part, layer, Bug::old_rows) && r >= x.rows / 2)
      std::copy(out.row(0).begin(), out.row(0).end(), out.row(r).begin());
  }
  put(tape, part == "lm_head" ? kLogits : kOutputs, part, layer, "output", out);
  return out;
}

std::vector<std::pair<int, float>> Server::route(const Layer& layer, std::span<const float> logits) const {
  std::vector<std::pair<int, float>> scored;
  for (std::size_t e = 0; e < logits.size(); ++e) {
    const float score = sigmoid(logits[e]);
    const Format f = settings.router_format;
    const float biased =
        settings.subtracts_bias ? stored(f, score + layer.router_bias[e]) : score + layer.router_bias[e];
    scored.emplace_back(static_cast<int>(e), biased);
  }
  std::stable_sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  scored.resize(static_cast<std::size_t>(model.shape.top_k));
  float sum = 0;
  for (auto& [e, weight] : scored) {
    const auto at = static_cast<std::size_t>(e);
    weight =
        settings.subtracts_bias ? stored(settings.router_format, weight - layer.router_bias[at]) : sigmoid(logits[at]);
    sum += weight;
  }
  for (auto& chosen : scored) chosen.second /= sum;
  return scored;
}

Matrix Server::mixture(Tape& tape, int number, const Matrix& x) {
  Layer& layer = model.layers[static_cast<std::size_t>(number)];
  const Matrix logits = through(tape, "router", number, layer.router, x);
  tape.add(kRouting, "router.e_score_correction_bias", name("router", number, "e_score_correction_bias"), Format::f32,
           {model.shape.experts}, layer.router_bias);
  Matrix weights(x.rows, model.shape.top_k);
  Matrix out(x.rows, x.cols);
  Tape silent(Dumped{});
  for (std::int64_t t = 0; t < x.rows; ++t) {
    const auto chosen = route(layer, logits.row(t));
    Matrix token(1, x.cols);
    std::copy(x.row(t).begin(), x.row(t).end(), token.values.begin());
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      Expert& expert = layer.experts[static_cast<std::size_t>(chosen[i].first)];
      weights.at(t, static_cast<std::int64_t>(i)) = chosen[i].second;
      const Matrix gate = through(silent, "gate", number, expert.gate, token);
      Matrix up = through(silent, "up", number, expert.up, token);
      for (std::size_t c = 0; c < up.values.size(); ++c) {
        up.values[c] = stored(model.shape.dtype, gate.values[c] * sigmoid(gate.values[c]) * up.values[c]);
      }
      const Matrix down = through(silent, "down", number, expert.down, up);
      for (std::int64_t c = 0; c < x.cols; ++c) out.at(t, c) += chosen[i].second * down.at(0, c);
    }
    for (float& v : out.row(t)) v = stored(model.shape.dtype, v);
  }
  tape.add(kRouting, "mlp.topk_weights", name("mlp", number, "topk_weights"), Format::f32, {weights.rows, weights.cols},
           weights.values);
  return out;
}

Matrix Server::mlp(Tape& tape, int number, const Matrix& x) {
  if (model.shape.experts > 0) return mixture(tape, number, x);
  Layer& layer = model.layers[static_cast<std::size_t>(number)];
  const Format f = model.shape.dtype;
  Matrix gate;
  if (model.shape.gated()) gate = through(tape, "gate", number, layer.gate, x);
  Matrix up = through(tape, "up", number, layer.up, x);
  const Matrix& into = model.shape.gated() ? gate : up;
  put(tape, kInputs, "act", number, "input", into);
  Matrix act(into.rows, into.cols);
  for (std::size_t i = 0; i < act.values.size(); ++i) {
    const float v = into.values[i];
    float a = stored(f, model.shape.gated() ? v * sigmoid(v) : gelu(v));
    if (settings.activation_clamp) a = std::fmin(std::fmax(a, -*settings.activation_clamp), *settings.activation_clamp);
    act.values[i] = a;
  }
  put(tape, kOutputs, "act", number, "output", act);
  if (model.shape.gated()) {
    for (std::size_t i = 0; i < up.values.size(); ++i) up.values[i] = stored(f, act.values[i] * up.values[i]);
  }
  return through(tape, "down", number, layer.down, model.shape.gated() ? up : act);
}

std::int64_t Server::run(Tape& tape, const std::string& folder, const Prompt& prompt) {
  folder_ = folder;
  tape.enter(folder);
  const Shape& shape = model.shape;
  if (shape.family != Family::vit) tape.add_ids(kTokens, "tokens", "input_ids", prompt.ids);
  Matrix x = prompt.embedded;
  put(tape, kOutputs, "embed", -1, "output", x);
  for (int l = 0; l < shape.layers; ++l) {
    const Layer& layer = model.layers[static_cast<std::size_t>(l)];
    put(tape, kResiduals, "layer", l, "input", x);
    put(tape, kInputs, "attn_norm", l, "input", x);
    Matrix n = normed(layer.attn_norm, x);
    put(tape, kOutputs, "attn_norm", l, "output", n);
    x = added(x, attention(tape, l, n), shape.dtype);
    put(tape, kInputs, "mlp_norm", l, "input", x);
    n = normed(layer.mlp_norm, x);
    put(tape, kOutputs, "mlp_norm", l, "output", n);
    const Matrix out = mlp(tape, l, n);
    put(tape, kOutputs, "mlp", l, "output", out);
    x = added(x, out, shape.dtype);
    put(tape, kResiduals, "layer", l, "output", x);
  }
  length_ += x.rows;
  put(tape, kInputs, "final_norm", -1, "input", x);
  const Matrix n = normed(model.final_norm, x);
  put(tape, kOutputs, "final_norm", -1, "output", n);
  const Matrix logits = through(tape, "lm_head", -1, model.lm_head, n);
  const std::int64_t next = argmax(logits.row(logits.rows - 1));
  tape.add_ids(kLogits, "next_token", "next_token", std::vector{next});
  return next;
}

}  // namespace nanscope::corpus
