#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/corpus/server.h"

/// Attention over a cache: projections, rotary positions, casts, masks, softmax.
namespace nanscope::corpus {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void rotate(Matrix& x, int head_width, std::int64_t start, Format format) {
  const int half = head_width / 2;
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t head = 0; head < x.cols; head += head_width) {
      for (int i = 0; i < half; ++i) {
        const double angle = static_cast<double>(start + t) / std::pow(10000.0, static_cast<double>(i) / half);
        const auto cosine = static_cast<float>(std::cos(angle));
        const auto sine = static_cast<float>(std::sin(angle));
        float& a = x.at(t, head + i);
        float& b = x.at(t, head + half + i);
        const float turned = stored(format, a * cosine - b * sine);
        b = stored(format, a * sine + b * cosine);
        a = turned;
      }
    }
  }
}

Matrix beside(const Matrix& a, const Matrix& b, const Matrix& c) {
  Matrix out(a.rows, a.cols + b.cols + c.cols);
  for (std::int64_t r = 0; r < a.rows; ++r) {
    auto to = out.row(r).begin();
    for (const Matrix* part : {&a, &b, &c}) to = std::copy(part->row(r).begin(), part->row(r).end(), to);
  }
  return out;
}

std::string_view dtype_name(Format format) {
  switch (format) {
    case Format::e5m2:
    case Format::e5m2fnuz:
      return "F8_E5M2";
    case Format::int8:
      return "I8";
    case Format::f16:
      return "F16";
    case Format::bf16:
      return "BF16";
    case Format::f32:
      return "F32";
    default:
      return "F8_E4M3";
  }
}

}  // namespace

void Server::fill_cache(std::span<const std::byte> bytes) {
  const Format format = settings.kv_scales == KvScales::none ? model.shape.dtype : settings.kv_cast.format;
  const std::size_t width = info(format).storage_bytes();
  std::size_t at = 0;
  const auto next = [&] {
    std::uint32_t code = 0;
    for (std::size_t i = 0; i < width; ++i) code |= static_cast<std::uint32_t>(bytes[at++ % bytes.size()]) << (8 * i);
    return code;
  };
  const auto count = static_cast<std::size_t>(settings.slots) * static_cast<std::size_t>(model.shape.kv_width());
  for (std::vector<Side>* sides : {&keys_, &values_}) {
    for (Side& side : *sides) {
      side.codes.resize(count);
      std::generate(side.codes.begin(), side.codes.end(), next);
    }
  }
}

void Server::project(Tape& tape, int number, const Matrix& x, Matrix& q, Matrix& k, Matrix& v) {
  Layer& layer = model.layers[static_cast<std::size_t>(number)];
  if (!model.shape.fused_qkv()) {
    q = through(tape, "q", number, layer.q, x);
    k = through(tape, "k", number, layer.k, x);
    v = through(tape, "v", number, layer.v, x);
  } else {
    Tape silent(Dumped{});
    put(tape, kInputs, "qkv", number, "input", x);
    const Matrix in = layer.q.input ? cast_input(tape, "qkv", number, layer.q, x) : x;
    q = through(silent, "qkv", number, layer.q, x);
    k = through(silent, "qkv", number, layer.k, x);
    v = through(silent, "qkv", number, layer.v, x);
    put(tape, kOutputs, "qkv", number, "output", beside(q, k, v));
  }
  if (model.shape.rotary()) {
    rotate(q, model.shape.head_width, length_, model.shape.dtype);
    rotate(k, model.shape.head_width, length_, model.shape.dtype);
  }
  const auto heads = [&](std::string_view what, const Matrix& m) {
    tape.add(kHeads, "attn." + std::string(what), name("attn", number, what), model.shape.dtype,
             {m.rows, m.cols / model.shape.head_width, model.shape.head_width}, m.values);
  };
  heads("q", q);
  heads("k", k);
  heads("v", v);
}

void Server::store(Tape& tape, int layer, bool key, const Matrix& rows) {
  Side& side = (key ? keys_ : values_)[static_cast<std::size_t>(layer)];
  const std::string letter = key ? "k" : "v";
  Quantized q;
  if (settings.kv_scales == KvScales::none) {
    for (const float v : rows.values) q.codes.push_back(encode(model.shape.dtype, v, Overflow::overflow));
  } else {
    Cast cast = settings.kv_cast;
    cast.divisor = key ? settings.k_divisor : settings.v_divisor;
    if (settings.kv_scales == KvScales::fixed) cast.given = key ? settings.k_scale : settings.v_scale;
    if (settings.kv_scales == KvScales::locked && side.calibrated) cast.given = side.scale;
    q = quantize(rows, cast);
    side.scale = q.scales.front();
    side.calibrated = true;
    if (cast.sharing == Sharing::row) {
      side.row_scales.resize(static_cast<std::size_t>(length_), 0.0F);
      side.row_scales.insert(side.row_scales.end(), q.scales.begin(), q.scales.end());
    }
    const std::string scale = name("attn", layer, letter + "_scale");
    std::vector<std::int64_t> shape = q.scale_shape();
    if (q.scales.size() == 1 && !model.shape.gated()) shape.clear();
    tape.add(kScales, "attn." + letter + "_scale", scale, Format::f32, shape, q.scales);
    const std::string codes = name("attn", layer, letter + "_cache");
    if (q.clipped > 0)
      clips.push_back({below(folder_, codes), below(folder_, scale), q.clipped, rows.rows * rows.cols});
  }
  const auto begin = static_cast<std::size_t>(length_ * rows.cols);
  const auto slots = static_cast<std::size_t>(settings.slots) * static_cast<std::size_t>(rows.cols);
  side.codes.resize(std::max({side.codes.size(), begin + q.codes.size(), slots}));
  std::copy(q.codes.begin(), q.codes.end(), side.codes.begin() + static_cast<std::ptrdiff_t>(begin));
}

Matrix Server::load(Tape& tape, int layer, bool key, std::int64_t keys) const {
  const Side& side = (key ? keys_ : values_)[static_cast<std::size_t>(layer)];
  const std::string letter = key ? "k" : "v";
  const Shape& shape = model.shape;
  const bool scaled = settings.kv_scales != KvScales::none;
  const Format written = scaled ? settings.kv_cast.format : shape.dtype;
  const std::vector<std::int64_t> dims = {keys, shape.kv_heads, shape.head_width};
  const auto count = static_cast<std::size_t>(keys * shape.kv_width());
  tape.add_codes(kCodes, "attn." + letter + "_cache", name("attn", layer, letter + "_cache"),
                 dtype_name(settings.kv_labelled.value_or(written)), dims, std::span(side.codes).first(count));
  Matrix out(keys, shape.kv_width());
  const int power = key ? settings.k_power : settings.v_power;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t row = i / static_cast<std::size_t>(shape.kv_width());
    const float scale = row < side.row_scales.size() ? side.row_scales[row] : side.scale;
    const float value = decode(settings.kv_read_as.value_or(written), side.codes[i]);
    out.values[i] = scaled ? stored(shape.dtype, value * applied(scale, power)) : value;
  }
  if (scaled) {
    tape.add(kRead, "attn." + letter + "_read", name("attn", layer, letter + "_dequant"), shape.dtype, dims,
             out.values);
  }
  return out;
}

bool Server::visible(std::int64_t query, std::int64_t key) const {
  if (key < settings.padding) return false;
  return !settings.causal || key <= query + settings.sees_ahead;
}

void Server::cast_scores(Tape& tape, int layer, Matrix& raw) {
  std::vector<float>& history = score_history[static_cast<std::size_t>(layer)];
  Cast cast = *settings.scores;
  const std::span<const float> recent = std::span<const float>(history).last(16);
  cast.given =
      *std::max_element(recent.begin(), recent.end()) / (settings.history_margin * info(cast.format).max_finite);
  const Quantized q = quantize(raw, cast);
  tape.add(kScales, "attn.amax_history", name("attn", layer, "amax_history"), Format::f32, {16}, recent);
  tape.add(kScales, "attn.score_scale", name("attn", layer, "score_scale"), Format::f32, {1}, q.scales);
  const std::int64_t heads = model.shape.heads;
  tape.add_codes(kCodes, "attn.scores_codes", name("attn", layer, "scores_codes"), dtype_name(cast.format),
                 {heads, raw.rows / heads, raw.cols}, q.codes);
  if (q.clipped > 0) {
    clips.push_back({below(folder_, name("attn", layer, "scores_codes")),
                     below(folder_, name("attn", layer, "score_scale")), q.clipped, raw.rows * raw.cols});
  }
  history.push_back(absmax(raw.values));
  raw = dequantize(q, cast.format, 1);
}

Matrix Server::scores(Tape& tape, int layer, const Matrix& q, const Attention& a) {
  const Shape& shape = model.shape;
  Matrix out(shape.heads * q.rows, a.keys);
  const double root = 1 / std::sqrt(static_cast<double>(shape.head_width));
  for (std::int64_t row = 0; row < out.rows; ++row) {
    const std::int64_t head = row / q.rows;
    const std::int64_t kv = head / (shape.heads / shape.kv_heads);
    for (std::int64_t s = 0; s < a.keys; ++s) {
      double sum = 0;
      for (int c = 0; c < shape.head_width; ++c) {
        sum += double{q.at(row % q.rows, head * shape.head_width + c)} * double{a.k.at(s, kv * shape.head_width + c)};
      }
      out.at(row, s) = static_cast<float>(sum * root);
    }
  }
  const std::vector<std::int64_t> dims = {shape.heads, q.rows, a.keys};
  if (settings.scores) {
    tape.add(kScores, "attn.scores", name("attn", layer, "scores"), Format::f32, dims, out.values);
    cast_scores(tape, layer, out);
  }
  Matrix mask(q.rows, a.keys);
  for (std::int64_t row = 0; row < out.rows; ++row) {
    const std::int64_t t = row % q.rows;
    for (std::int64_t s = 0; s < a.keys; ++s) {
      if (visible(a.start + t, s)) continue;
      mask.at(t, s) = -kInfinity;
      out.at(row, s) = settings.additive_mask ? out.at(row, s) - kInfinity : -kInfinity;
    }
  }
  tape.add(kMasks, "attn.mask", name("attn", layer, "attn_mask"), Format::f32, {q.rows, a.keys}, mask.values);
  if (!settings.scores) tape.add(kScores, "attn.scores", name("attn", layer, "scores"), Format::f32, dims, out.values);
  return out;
}

Matrix Server::softmax(const Matrix& raw) const {
  Matrix out(raw.rows, raw.cols);
  for (std::int64_t r = 0; r < raw.rows; ++r) {
    const auto row = raw.row(r);
    float largest = -kInfinity;
    for (const float v : row) {
      if (v > largest) largest = v;
    }
    if (largest == -kInfinity && settings.zeroes_empty_rows) continue;
    if (settings.naive_softmax) largest = 0;
    float sum = 0;
    for (std::int64_t c = 0; c < raw.cols; ++c) {
      out.at(r, c) = std::exp(raw.at(r, c) - largest);
      sum += out.at(r, c);
    }
    for (float& v : out.row(r)) v = stored(model.shape.dtype, v / sum);
  }
  return out;
}

Matrix Server::weigh(const Matrix& probs, const Attention& a, std::int64_t tokens) const {
  const Shape& shape = model.shape;
  Matrix out(tokens, shape.q_width());
  for (std::int64_t row = 0; row < probs.rows; ++row) {
    const std::int64_t head = row / tokens;
    const std::int64_t t = row % tokens;
    const std::int64_t kv = head / (shape.heads / shape.kv_heads);
    for (int c = 0; c < shape.head_width; ++c) {
      double sum = 0;
      for (std::int64_t s = 0; s < a.keys; ++s) {
        if (!settings.reads_masked && !visible(a.start + t, s)) continue;
        sum += double{probs.at(row, s)} * double{a.v.at(s, kv * shape.head_width + c)};
      }
      out.at(t, head * shape.head_width + c) = stored(shape.dtype, static_cast<float>(sum));
    }
  }
  return out;
}

Matrix Server::attention(Tape& tape, int layer, const Matrix& x) {
  const Shape& shape = model.shape;
  Matrix q;
  Attention a;
  project(tape, layer, x, q, a.k, a.v);
  a.keys = x.rows;
  if (settings.cached) {
    a.start = length_;
    a.keys = settings.slots > 0 ? settings.slots : length_ + x.rows;
    store(tape, layer, true, a.k);
    store(tape, layer, false, a.v);
    a.k = load(tape, layer, true, a.keys);
    a.v = load(tape, layer, false, a.keys);
    tape.add_ids(kMasks, "attn.seq_lens", name("attn", layer, "seq_lens"), std::vector{length_ + x.rows});
  }
  const Matrix raw = scores(tape, layer, q, a);
  const Matrix probs = softmax(raw);
  tape.add(kScores, "attn.probs", name("attn", layer, "probs"), shape.dtype, {shape.heads, q.rows, a.keys},
           probs.values);
  const Matrix mixed = weigh(probs, a, q.rows);
  put(tape, kOutputs, "attn", layer, "output", mixed);
  return through(tape, "o", layer, model.layers[static_cast<std::size_t>(layer)].o, mixed);
}

}  // namespace nanscope::corpus
