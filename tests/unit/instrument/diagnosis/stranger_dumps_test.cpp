/// Healthy dumps of models and servers that do things in their own way, and the fault next to each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/run/mask.h"
#include "instrument/diagnosis/diagnosis.h"
#include "instrument/recompute/kernel_arithmetic.h"
#include "tests/unit/core/dump/memory_dump.h"
#include "tests/unit/instrument/diagnosis/found.h"

namespace nanscope {
namespace {

using testing::classes;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::MemoryDump;
using ::testing::Not;

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kWidth = 16;

using Matrix = std::vector<double>;

Matrix random(std::uint32_t seed, std::size_t count, double size = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0, size);
  Matrix made(count);
  for (double& one : made) one = double{static_cast<float>(normal(engine))};
  return made;
}

/// As bf16 keeps it.
double rounded(double value) {
  return double{decode(Format::bf16, encode(Format::bf16, static_cast<float>(value), Overflow::saturate))};
}

Matrix rounded(Matrix values) {
  for (double& one : values) one = rounded(one);
  return values;
}

Matrix sum(const Matrix& a, const Matrix& b) {
  Matrix made(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) made[i] = double{static_cast<float>(a[i] + b[i])};
  return made;
}

/// x W', with the sums in double.
Matrix product(const Matrix& x, const Matrix& w, std::int64_t rows) {
  const auto inputs = static_cast<std::int64_t>(x.size()) / rows;
  const auto outputs = static_cast<std::int64_t>(w.size()) / inputs;
  Matrix made;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t n = 0; n < outputs; ++n) {
      double all = 0;
      for (std::int64_t k = 0; k < inputs; ++k)
        all += x[static_cast<std::size_t>(r * inputs + k)] * w[static_cast<std::size_t>(n * inputs + k)];
      made.push_back(all);
    }
  }
  return made;
}

/// RMS norm with eps 1e-6 and a weight of ones.
Matrix normed(const Matrix& x) {
  Matrix made;
  for (std::size_t row = 0; row < x.size(); row += kWidth) {
    double squares = 0;
    for (std::size_t c = 0; c < kWidth; ++c) squares += x[row + c] * x[row + c];
    for (std::size_t c = 0; c < kWidth; ++c)
      made.push_back(double{static_cast<float>(x[row + c] / std::sqrt(squares / kWidth + 1e-6))});
  }
  return made;
}

Diagnosis diagnosed(MemoryDump& dump) {
  const auto run = dump.run();
  KernelArithmetic arithmetic;
  auto made = diagnose(*run, arithmetic, {});
  return made ? std::move(*made) : Diagnosis{};
}

/// Two layers of a server whose second norm adds the residual, as vLLM's: (branch, stream) in, (normed, stream) out.
/// `stream_of` makes the stream out of its two terms.
template <class StreamOf>
Diagnosis fused_norms(const StreamOf& stream_of) {
  MemoryDump dump;
  const std::size_t count = kRows * kWidth;
  for (const std::string layer : {"0", "1"}) {
    const std::string at = "model.layers." + layer + '.';
    const std::uint32_t seed = layer == "0" ? 1 : 20;
    const Matrix branch = random(seed, count);
    const Matrix stream = random(seed + 1, count);
    const Matrix out = stream_of(stream, branch);
    dump.add(at + "input_layernorm.weight", "f32", {kWidth}, Matrix(kWidth, 1));
    dump.add(at + "post_attention_layernorm.weight", "f32", {kWidth}, Matrix(kWidth, 1));
    dump.add(at + "input_layernorm.output", "f32", {kRows, kWidth}, normed(stream));
    dump.add(at + "self_attn.o_proj.output", "f32", {kRows, kWidth}, branch);
    dump.add(at + "post_attention_layernorm.input", "f32", {kRows, kWidth}, branch);
    dump.add(at + "post_attention_layernorm.input.1", "f32", {kRows, kWidth}, stream);
    dump.add(at + "post_attention_layernorm.output", "f32", {kRows, kWidth}, normed(out));
    dump.add(at + "post_attention_layernorm.output.1", "f32", {kRows, kWidth}, out);
  }
  return diagnosed(dump);
}

TEST(FusedNorm, AddsItsTwoInputs) {
  EXPECT_THAT(classes(fused_norms([](const Matrix& stream, const Matrix& branch) { return sum(stream, branch); })),
              ElementsAre());
}

TEST(FusedNorm, ThatLeavesTheBranchOutIsAccused) {
  EXPECT_THAT(classes(fused_norms([](const Matrix& stream, const Matrix&) { return stream; })),
              Contains("wrong-result"));
}

/// Products of three layers in bf16, whose weights were dumped in f32.
Diagnosis served_in_bf16(bool weights_rounded, double change = 0) {
  MemoryDump dump;
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".self_attn.q_proj.";
    const auto seed = static_cast<std::uint32_t>(layer);
    const Matrix x = rounded(random(seed + 1, kRows * kWidth));
    const Matrix w = random(seed + 40, kWidth * kWidth, 0.3);
    Matrix out = rounded(product(x, weights_rounded ? rounded(w) : w, kRows));
    if (layer == 1) out[5] += change;
    dump.add(at + "weight", "f32", {kWidth, kWidth}, w);
    dump.add(at + "input", "bf16", {1, kRows, kWidth}, x);
    dump.add(at + "output", "bf16", {1, kRows, kWidth}, out);
  }
  return diagnosed(dump);
}

TEST(ServedInBf16, WeightsMayHaveBeenRoundedWhenTheyWereLoaded) {
  EXPECT_THAT(classes(served_in_bf16(true)), ElementsAre());
  EXPECT_THAT(classes(served_in_bf16(false)), ElementsAre());
}

TEST(ServedInBf16, AWrongElementIsStillAccused) {
  EXPECT_THAT(classes(served_in_bf16(true, 4)), Contains("wrong-result"));
}

/// The input of a second layer beside what the first one gave, with `rows` of it replaced.
Diagnosis between_layers(const std::vector<std::int64_t>& rows, bool by_zeros) {
  MemoryDump dump;
  Matrix stream = random(3, kRows * kWidth);
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + '.';
    const Matrix out = random(static_cast<std::uint32_t>(layer) + 70, kRows * kWidth);
    dump.add(at + "input", "f32", {1, kRows, kWidth}, stream);
    dump.add(at + "mlp.output", "f32", {1, kRows, kWidth},
             random(static_cast<std::uint32_t>(layer) + 90, kRows * kWidth));
    dump.add(at + "output", "f32", {1, kRows, kWidth}, out);
    stream = out;
    const Matrix other = random(static_cast<std::uint32_t>(layer) + 110, kRows * kWidth);
    for (const std::int64_t row : layer == 1 ? rows : std::vector<std::int64_t>{}) {
      for (std::int64_t c = 0; c < kWidth; ++c) {
        const auto i = static_cast<std::size_t>(row * kWidth + c);
        stream[i] = by_zeros ? 0 : stream[i] + other[i];
      }
    }
  }
  return diagnosed(dump);
}

TEST(BetweenLayers, RowsMayHaveBeenAddedTo) { EXPECT_THAT(classes(between_layers({1, 2, 3}, false)), ElementsAre()); }
TEST(BetweenLayers, RowsOfZerosAreAccused) {
  EXPECT_THAT(classes(between_layers({1, 2, 3}, true)), Contains("wrong-result"));
}

/// Products of two layers whose input went through e4m3 under a dumped scale, and whose codes were not dumped. The
/// scale lets through values up to `largest`; the inputs reach about 4.
Diagnosis cast_inputs(double largest) {
  MemoryDump dump;
  const double scale = double{static_cast<float>(largest / 448)};
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".mlp.down_proj.";
    const auto seed = static_cast<std::uint32_t>(layer);
    Matrix x = rounded(random(seed + 5, kRows * kWidth));
    x[17] = 4;
    const Matrix w = rounded(random(seed + 60, kWidth * kWidth, 0.3));
    Matrix cast = x;
    for (double& one : cast)
      one = scale *
            double{decode(Format::e4m3, encode(Format::e4m3, static_cast<float>(one / scale), Overflow::saturate))};
    dump.add(at + "weight", "bf16", {kWidth, kWidth}, w);
    dump.add(at + "input", "bf16", {1, kRows, kWidth}, x);
    dump.add(at + "input_scale", "f32", {1}, {scale});
    dump.add(at + "output", "bf16", {1, kRows, kWidth}, rounded(product(cast, w, kRows)));
  }
  return diagnosed(dump);
}

TEST(CastInput, AScaleThatHoldsTheInputIsHealthy) { EXPECT_THAT(classes(cast_inputs(5)), ElementsAre()); }
TEST(CastInput, AScaleThatClipsItIsNamed) {
  EXPECT_THAT(classes(cast_inputs(2)), ElementsAre("saturation", "saturation"));
}

TEST(Masks, HideByTheWeakestNumberInUse) {
  EXPECT_TRUE(hidden_by_mask(-10000.0 + 37));
  EXPECT_TRUE(hidden_by_mask(-INFINITY));
  EXPECT_FALSE(hidden_by_mask(-400));
  EXPECT_FALSE(hidden_by_mask(NAN));
}

}  // namespace
}  // namespace nanscope
