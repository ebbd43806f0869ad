#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/unit/instrument/diagnosis/dump_graph.h"

/// What ops give, straight from their definitions and in double precision: what a run that is right holds.
namespace nanscope::testing {

/// A matrix of doubles.
struct Numbers {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<double> v;

  Numbers(std::int64_t r, std::int64_t c) : rows(r), columns(c), v(static_cast<std::size_t>(r * c), 0.0) {}
  double& at(std::int64_t r, std::int64_t c) { return v[static_cast<std::size_t>(r * columns + c)]; }
  double at(std::int64_t r, std::int64_t c) const { return v[static_cast<std::size_t>(r * columns + c)]; }
};

inline Fill fill_of(const Numbers& numbers) {
  return [numbers](std::int64_t row, std::int64_t channel) { return static_cast<float>(numbers.at(row, channel)); };
}

/// A tensor as it is stored.
inline Numbers stored_numbers(const DumpGraph& graph, TensorId tensor, std::int64_t rows, std::int64_t columns) {
  Numbers out(rows, columns);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) out.at(r, c) = double{graph.at(tensor, r, c)};
  }
  return out;
}

/// Numbers without a pattern, in (-size, size): the same for the same seed.
inline Fill noise(std::uint32_t seed, double size = 1) {
  return [=](std::int64_t row, std::int64_t channel) {
    std::uint32_t h = seed * 2654435761U + static_cast<std::uint32_t>(row) * 40503U +
                      static_cast<std::uint32_t>(channel) * 2246822519U + 374761393U;
    h ^= h >> 15;
    h *= 2246822519U;
    h ^= h >> 13;
    h *= 3266489917U;
    h ^= h >> 16;
    return static_cast<float>(size * (static_cast<double>(h) / 2147483648.0 - 1));
  };
}

/// x W', with a bias where there is one.
inline Numbers product(const Numbers& x, const Numbers& weight) {
  Numbers out(x.rows, weight.rows);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t n = 0; n < weight.rows; ++n) {
      for (std::int64_t k = 0; k < x.columns; ++k) out.at(t, n) += x.at(t, k) * weight.at(n, k);
    }
  }
  return out;
}

inline Numbers transposed(const Numbers& x) {
  Numbers out(x.columns, x.rows);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < x.columns; ++c) out.at(c, r) = x.at(r, c);
  }
  return out;
}

/// Columns [first, first + count).
inline Numbers columns_of(const Numbers& x, std::int64_t first, std::int64_t count) {
  Numbers out(x.rows, count);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < count; ++c) out.at(r, c) = x.at(r, first + c);
  }
  return out;
}

/// Of the keys that row r may see: those up to `r + ahead`, of all of them where `ahead` is negative enough no.
inline Numbers softmax_of(const Numbers& scores, std::int64_t ahead) {
  Numbers out(scores.rows, scores.columns);
  for (std::int64_t r = 0; r < scores.rows; ++r) {
    const std::int64_t seen = std::min(scores.columns, r + 1 + ahead);
    double largest = -INFINITY;
    for (std::int64_t c = 0; c < seen; ++c) largest = std::max(largest, scores.at(r, c));
    double sum = 0;
    for (std::int64_t c = 0; c < seen; ++c) sum += std::exp(scores.at(r, c) - largest);
    for (std::int64_t c = 0; c < seen; ++c) out.at(r, c) = std::exp(scores.at(r, c) - largest) / sum;
  }
  return out;
}

/// x / sqrt(mean(x^2) + eps) * weight, over groups of `width` channels.
inline Numbers rms_norm(const Numbers& x, const Numbers& weight, std::int64_t width, double eps) {
  Numbers out(x.rows, x.columns);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t begin = 0; begin < x.columns; begin += width) {
      double squares = 0;
      for (std::int64_t c = begin; c < begin + width; ++c) squares += x.at(r, c) * x.at(r, c);
      const double root = std::sqrt(squares / static_cast<double>(width) + eps);
      for (std::int64_t c = begin; c < begin + width; ++c)
        out.at(r, c) = x.at(r, c) / root * weight.at(0, c % weight.columns);
    }
  }
  return out;
}

/// A linear layer of a dump: x, its weight and what comes out, times `wrong`.
struct MadeLinear {
  TensorId x = 0;
  TensorId weight = 0;
  TensorId out = 0;
};

/// The product of a tensor of the graph with a weight of noise, stored in `format`.
inline MadeLinear linear(DumpGraph& g, const std::string& name, TensorId x, std::int64_t tokens, std::int64_t inputs,
                         std::int64_t outputs, std::uint32_t seed, double wrong = 1, Format format = Format::f32) {
  MadeLinear made;
  made.x = x;
  made.weight = g.parameter(name + ".weight", outputs, inputs, noise(seed, 0.5));
  Numbers result = product(stored_numbers(g, x, tokens, inputs), stored_numbers(g, made.weight, outputs, inputs));
  for (double& one : result.v) one *= wrong;
  made.out = g.op(name, OpKind::gemm, {{"x", x}, {"weight", made.weight}},
                  {.tokens = tokens, .channels = outputs, .fill = fill_of(result), .format = format});
  return made;
}

/// Codes of a tensor under one scale, as a cache stores them.
struct MadeStore {
  TensorId scale = 0;
  TensorId codes = 0;
};

/// round(x / scale) in `format`, cut off at its largest where it saturates. `used` is what it divides by.
inline Fill codes_of(const DumpGraph& g, TensorId x, double used, Format format, bool saturates = true) {
  return [&g, x, used, format, saturates](std::int64_t row, std::int64_t channel) {
    const double quotient = double{g.at(x, row, channel)} / used;
    const double largest = double{info(format).max_finite};
    return static_cast<float>(saturates ? std::clamp(quotient, -largest, largest) : quotient);
  };
}

inline MadeStore store(DumpGraph& g, TensorId k, std::int64_t tokens, std::int64_t channels, double scale,
                       Format format = Format::e4m3, bool saturates = true, double used = 0) {
  MadeStore made;
  made.scale = g.parameter("k_scale", 1, 1, constant(static_cast<float>(scale)));
  made.codes = g.op("kv_store", OpKind::kv_store, {{"k", k}, {"k_scale", made.scale}},
                    {.role = "k_codes",
                     .tokens = tokens,
                     .channels = channels,
                     .fill = codes_of(g, k, used != 0 ? used : scale, format, saturates),
                     .format = format});
  return made;
}

}  // namespace nanscope::testing
