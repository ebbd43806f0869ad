/// The loops of one instruction set, NANSCOPE_ISA. Nothing here may be shared with code that runs on every machine, so
/// that all is forced inline or local.
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "instrument/recompute/element_loops.h"

#define NANSCOPE_LOOP static inline __attribute__((always_inline))

namespace nanscope::NANSCOPE_ISA {
namespace {

#if defined(__AVX512F__)
constexpr std::int64_t kWidth = 8;
#elif defined(__AVX2__)
constexpr std::int64_t kWidth = 4;
#else
constexpr std::int64_t kWidth = 2;
#endif
constexpr std::int64_t kLanes = 8;
constexpr std::int64_t kParts = kLanes / kWidth;

typedef double D __attribute__((vector_size(kWidth * 8)));  // NOLINT: as the compilers' manuals write it
#if !defined(__AVX2__)
typedef float F __attribute__((vector_size(kWidth * 4)));  // NOLINT
#endif
typedef std::int64_t M __attribute__((vector_size(kWidth * 8)));  // NOLINT

NANSCOPE_LOOP D wide(const float* from) {
#if defined(__AVX512F__)  // g++ 12 makes several instructions of a conversion of vectors
  return _mm512_cvtps_pd(_mm256_loadu_ps(from));
#elif defined(__AVX2__)
  return _mm256_cvtps_pd(_mm_loadu_ps(from));
#else
  F value;
  std::memcpy(&value, from, sizeof(value));
  return __builtin_convertvector(value, D);
#endif
}
NANSCOPE_LOOP D load(const double* from) {
  D value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
NANSCOPE_LOOP void store(double* to, const D& value) { std::memcpy(to, &value, sizeof(value)); }
NANSCOPE_LOOP D splat(double value) { return value - D{}; }  // keeps -0
NANSCOPE_LOOP D magnitude(const D& value) {
  return __builtin_bit_cast(D, __builtin_bit_cast(M, value) & 0x7fffffffffffffff);
}
NANSCOPE_LOOP D pick(const M& mask, const D& yes, const D& no) { return mask ? yes : no; }
NANSCOPE_LOOP D least(const D& a, const D& b) { return pick(b < a, b, a); }
NANSCOPE_LOOP D most(const D& a, const D& b) { return pick(a < b, b, a); }

constexpr double kLargest = __DBL_MAX__;

struct Judged {
  M elements[kParts] = {};
  M explained[kParts] = {};
  M terms[kParts] = {};
  D largest[kParts] = {};
  M measured[kParts] = {};
  M measured_explained[kParts] = {};
  D measured_squares[kParts] = {};
};

/// kLanes elements.
NANSCOPE_LOOP void judge(const RowPair& row, const float* actual, const float* expected, const float* bound,
                         const float* deviation, const RowTerms& terms, std::int64_t column, Judged& into) {
  for (int part = 0; part < kParts; ++part) {
    const std::int64_t at = column + part * kWidth;
    const D value = wide(actual + part * kWidth);
    const D should = wide(expected + part * kWidth);
    const D within = wide(bound + part * kWidth);
    const M judged = (within >= D{}) & (within <= kLargest) & (magnitude(value) <= kLargest) &
                     (magnitude(should) <= kLargest) & ~(value <= row.hidden);
    const D held = pick(should < row.lowest, splat(row.lowest), pick(should > row.largest, splat(row.largest), should));
    const D off = magnitude(value - held);
    const D ratio = pick(judged & (off != D{}), off / within, D{});
    const D limit = row.farthest * most(within, magnitude(value));
    const D near = least(ratio, splat(row.farthest));
    const D bounds = pick(judged, within, D{});
    const D distance = pick(judged, least(magnitude(value - should), limit), D{});
    store(terms.bounds + at, bounds);
    store(terms.distance + at, distance);
    store(terms.squares + at, near * near);
    into.elements[part] -= judged;
    into.explained[part] -= judged & (ratio <= 1.0);
    into.terms[part] |= (bounds != D{}) | (distance != D{}) | (near != D{});
    into.largest[part] = most(into.largest[part], ratio);
    if (deviation == nullptr) continue;
    const D unit = wide(deviation + part * kWidth);
    const M measured = judged & (unit > D{});
    const D error = pick(measured, (value - held) / unit, D{});
    into.measured[part] -= measured;
    into.measured_explained[part] -= measured & (ratio <= 1.0);
    into.measured_squares[part] += error * error;
  }
}

void compare(const RowPair& row, const RowTerms& terms, RowJudged& into) {
  static_assert(kColumnsAtOnce == kLanes);
  Judged all;
  std::int64_t column = 0;
  for (; column + kLanes <= row.columns; column += kLanes)
    judge(row, row.actual + column, row.expected + column, row.bound + column,
          row.deviation != nullptr ? row.deviation + column : nullptr, terms, column, all);
  if (column < row.columns) {
    float actual[kLanes] = {};
    float expected[kLanes] = {};
    float bound[kLanes];
    float deviation[kLanes] = {};
    for (int i = 0; i < kLanes; ++i) {
      const bool there = column + i < row.columns;
      actual[i] = there ? row.actual[column + i] : 0.0F;
      expected[i] = there ? row.expected[column + i] : 0.0F;
      bound[i] = there ? row.bound[column + i] : -1.0F;  // is not judged
      if (there && row.deviation != nullptr) deviation[i] = row.deviation[column + i];
    }
    judge(row, actual, expected, bound, row.deviation != nullptr ? deviation : nullptr, terms, column, all);
  }
  into = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    into.elements += all.elements[lane / kWidth][lane % kWidth];
    into.explained += all.explained[lane / kWidth][lane % kWidth];
    into.terms |= all.terms[lane / kWidth][lane % kWidth] != 0;
    const double one = all.largest[lane / kWidth][lane % kWidth];
    into.largest = one > into.largest ? one : into.largest;
    into.measured += all.measured[lane / kWidth][lane % kWidth];
    into.measured_explained += all.measured_explained[lane / kWidth][lane % kWidth];
    into.measured_squares += all.measured_squares[lane / kWidth][lane % kWidth];
  }
}

/// a * b + c, where a * b is exact, as of two floats: no rounding depends on whether it is fused with the sum.
NANSCOPE_LOOP D add_exact(const D& a, const D& b, const D& c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_pd(a, b, c);
#else
  return a * b + c;
#endif
}

constexpr int kKeyVectors = kWidth == 4 ? 4 : 2;  // as many as the registers hold
static_assert(kKeysAtOnce % (kKeyVectors * kWidth) == 0);

template <int kRows>
NANSCOPE_LOOP void dot_block(const float* x, const TurnedKeys& keys, std::int64_t key, double* sums) {
  D lanes[kRows][4][kKeyVectors] = {};
  const float* from = keys.numbers + key;
  const auto step = [&](std::int64_t i, int lane) __attribute__((always_inline)) {
    for (int v = 0; v < kKeyVectors; ++v) {
      const D channel = wide(from + i * keys.stride + v * kWidth);
      for (int row = 0; row < kRows; ++row) {
        const D factor = splat(static_cast<double>(x[row * keys.width + i]));
        lanes[row][lane][v] = add_exact(factor, channel, lanes[row][lane][v]);
      }
    }
  };
  std::int64_t i = 0;
  for (; i + 4 <= keys.width; i += 4) {
    for (int lane = 0; lane < 4; ++lane) step(i + lane, lane);
  }
  for (; i < keys.width; ++i) step(i, 0);
  for (int row = 0; row < kRows; ++row) {
    const auto& of = lanes[row];
    for (int v = 0; v < kKeyVectors; ++v)
      store(sums + row * keys.stride + key + v * kWidth, (of[0][v] + of[1][v]) + (of[2][v] + of[3][v]));
  }
}

void dots(const float* x, std::int64_t count, const TurnedKeys& keys, double* sums) {
  constexpr int kRows = kWidth == 8 ? 2 : 1;
  for (std::int64_t key = 0; key < keys.stride; key += kKeyVectors * kWidth) {
    std::int64_t row = 0;
    for (; row + kRows <= count; row += kRows)
      dot_block<kRows>(x + row * keys.width, keys, key, sums + row * keys.stride);
    for (; row < count; ++row) dot_block<1>(x + row * keys.width, keys, key, sums + row * keys.stride);
  }
}

/// Channels that mix() holds in registers.
constexpr std::int64_t kTile = 16;
constexpr std::int64_t kTileVectors = kTile / kWidth;

/// A key without weight and slack adds nothing, whatever its row holds.
NANSCOPE_LOOP bool adds(const WeightedRows& rows, std::int64_t key) {
  return rows.weights[key] != 0 || rows.slacks[key] != 0;
}

/// Calls visit(key, channel, number) for the channels from `first` on, which fill no tile.
template <class Visit>
NANSCOPE_LOOP void each_of_the_rest(const WeightedRows& rows, std::int64_t first, const Visit& visit) {
  for (std::int64_t key = 0; first < rows.width && key < rows.keys; ++key) {
    for (std::int64_t c = first; adds(rows, key) && c < rows.width; ++c)
      visit(key, c, static_cast<double>(rows.rows[key * rows.stride + c]));
  }
}

NANSCOPE_LOOP void mix_tile(const WeightedRows& rows, const MixedRow& into, std::int64_t first) {
  D value[kTileVectors];
  D size[kTileVectors];
  D error[kTileVectors];
  for (int v = 0; v < kTileVectors; ++v) {
    value[v] = load(into.value + first + v * kWidth);
    size[v] = load(into.squares + first + v * kWidth);
    error[v] = load(into.error + first + v * kWidth);
  }
  for (std::int64_t key = 0; key < rows.keys; ++key) {
    if (!adds(rows, key)) continue;
    const double weight = rows.weights[key];
    const std::int64_t at = key * rows.stride + first;
    for (int v = 0; v < kTileVectors; ++v) {
      const D product = weight * wide(rows.rows + at + v * kWidth);
      value[v] += product;
      size[v] += product * product;
    }
    if (rows.errors == nullptr) continue;
    for (int v = 0; v < kTileVectors; ++v) error[v] += __builtin_fabs(weight) * wide(rows.errors + at + v * kWidth);
  }
  for (int v = 0; v < kTileVectors; ++v) {
    store(into.value + first + v * kWidth, value[v]);
    store(into.squares + first + v * kWidth, size[v]);
    store(into.error + first + v * kWidth, error[v]);
  }
}

void mix(const WeightedRows& rows, const MixedRow& into) {
  std::int64_t first = 0;
  for (; first + kTile <= rows.width; first += kTile) mix_tile(rows, into, first);
  each_of_the_rest(
      rows, first, [&](std::int64_t key, std::int64_t c, double number) __attribute__((always_inline)) {
        const double product = rows.weights[key] * number;
        into.value[c] += product;
        into.squares[c] += product * product;
        if (rows.errors != nullptr)
          into.error[c] += __builtin_fabs(rows.weights[key]) * static_cast<double>(rows.errors[key * rows.stride + c]);
      });
}

NANSCOPE_LOOP void spread_tile(const WeightedRows& rows, const MixedRow& into, std::int64_t first) {
  D center[kTileVectors];
  D error[kTileVectors];
  D variance[kTileVectors];
  for (int v = 0; v < kTileVectors; ++v) {
    variance[v] = load(into.variance + first + v * kWidth);
    center[v] = into.value != nullptr ? load(into.value + first + v * kWidth) : D{};
    error[v] = load(into.error + first + v * kWidth);
  }
  for (std::int64_t key = 0; key < rows.keys; ++key) {
    if (!adds(rows, key)) continue;
    const double slack = rows.slacks[key];
    const double deviation = rows.deviations[key];
    const float* row = rows.rows + key * rows.stride + first;
    for (int v = 0; v < kTileVectors; ++v) {
      const D apart = wide(row + v * kWidth) - center[v];
      const D off = deviation * apart;
      error[v] += slack * magnitude(apart);
      variance[v] += off * off;
    }
  }
  for (int v = 0; v < kTileVectors; ++v) {
    store(into.error + first + v * kWidth, error[v]);
    store(into.variance + first + v * kWidth, variance[v]);
  }
}

void spread(const WeightedRows& rows, const MixedRow& into) {
  std::int64_t first = 0;
  for (; first + kTile <= rows.width; first += kTile) spread_tile(rows, into, first);
  each_of_the_rest(
      rows, first, [&](std::int64_t key, std::int64_t c, double number) __attribute__((always_inline)) {
        const double apart = number - (into.value != nullptr ? into.value[c] : 0.0);
        into.error[c] += rows.slacks[key] * __builtin_fabs(apart);
        const double off = rows.deviations[key] * apart;
        into.variance[c] += off * off;
      });
}

}  // namespace

extern const ElementLoops kElementLoops;
const ElementLoops kElementLoops = {.compare = compare, .dots = dots, .mix = mix, .spread = spread};

}  // namespace nanscope::NANSCOPE_ISA
