#pragma once
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/core/run/graph.h"

/// Runs of attention made by hand.
namespace nanscope::testing {

/// As policies_oracle.py has them: splitmix64 and Box-Muller, to multiples of 2^-10.
inline double grid_normal(std::uint64_t element) {
  const auto mixed = [](std::uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  };
  const double u = (static_cast<double>(mixed(2 * element) >> 11U) + 1) * 0x1p-53;
  const double v = static_cast<double>(mixed(2 * element + 1) >> 11U) * 0x1p-53;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

inline double on_grid(double value) { return std::nearbyint(value * 1024) / 1024; }

struct Shape {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t width = 128;
};

/// Attention of one layer in the last pass of a graph, as a dump of q, k and v gives it. `at` may say which keys are
/// seen.
inline TensorId add_attention(DumpGraph& graph, std::int64_t rows, const Shape& shape, const Fill& q, const Fill& k,
                              const Fill& v, MixAttributes at = {}) {
  const auto source = [&](const std::string& role, std::int64_t heads, const Fill& fill) {
    return graph.op(role + "_proj", OpKind::gemm, {},
                    {role, rows, heads * shape.width, fill, Format::f32, Axis::rows, heads});
  };
  const TensorId queries = source("q", shape.heads, q);
  const TensorId keys = source("k", shape.kv_heads, k);
  const TensorId values = source("v", shape.kv_heads, v);
  graph.unknown("attention", OpKind::attention, {{"q", queries}, {"k", keys}, {"v", values}}, std::move(at));
  return keys;
}

}  // namespace nanscope::testing
