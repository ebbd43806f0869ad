/// Dumps of models whose layers do things in another order than Llama's, and of modules that stand in another order
/// than they ran.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "instrument/diagnosis/diagnosis.h"
#include "instrument/recompute/kernel_arithmetic.h"
#include "tests/unit/core/dump/memory_dump.h"
#include "tests/unit/instrument/diagnosis/found.h"

namespace nanscope::stranger_layers_test {
namespace {

using testing::classes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MemoryDump;

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

Diagnosis diagnosed(MemoryDump& dump) {
  const auto run = dump.run();
  KernelArithmetic arithmetic;
  auto made = diagnose(*run, arithmetic, {});
  return made ? std::move(*made) : Diagnosis{};
}

/// Rows less their mean, by their standard deviation.
Matrix layer_norm(const Matrix& x) {
  Matrix made(x.size());
  for (std::int64_t row = 0; row < std::ssize(x) / kWidth; ++row) {
    const auto at = static_cast<std::size_t>(row * kWidth);
    double mean = 0;
    double squares = 0;
    for (std::size_t c = 0; c < kWidth; ++c) mean += x[at + c] / kWidth;
    for (std::size_t c = 0; c < kWidth; ++c) squares += (x[at + c] - mean) * (x[at + c] - mean) / kWidth;
    for (std::size_t c = 0; c < kWidth; ++c)
      made[at + c] = double{static_cast<float>((x[at + c] - mean) / std::sqrt(squares + 1e-12))};
  }
  return made;
}

Matrix sum_of(const Matrix& a, const Matrix& b) {
  Matrix made(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) made[i] = double{static_cast<float>(a[i] + b[i])};
  return made;
}

/// GTE's layers: norms of the sums behind both branches, under the names that Gemma has for norms of the branches. In
/// the second layer, `wrong` adds the residual twice.
Diagnosis norms_of_sums(bool wrong) {
  MemoryDump dump;
  const std::vector<std::int64_t> shape = {1, kRows, kWidth};
  Matrix x = random(1, kRows * kWidth);
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    const std::string at = "gte.layers." + std::to_string(layer) + ".";
    const auto add = [&](const std::string& name, const Matrix& values) { dump.add(at + name, "f32", shape, values); };
    const auto seed = static_cast<std::uint32_t>(10 * layer + 2);
    const Matrix attention = random(seed, x.size());
    const Matrix branch = random(seed + 1, x.size());
    add("input", x);
    add("self_attn.o_proj.output", attention);
    add("self_attn.output", attention);
    const Matrix sum = sum_of(sum_of(x, attention), wrong && layer == 1 ? x : Matrix(x.size()));
    add("post_attention_layernorm.input", sum);
    const Matrix middle = layer_norm(sum);
    add("post_attention_layernorm.output", middle);
    add("mlp.input", middle);
    add("mlp.output", branch);
    add("post_mlp_layernorm.input", sum_of(middle, branch));
    x = layer_norm(sum_of(middle, branch));
    add("post_mlp_layernorm.output", x);
    add("output", x);
  }
  return diagnosed(dump);
}

TEST(NormsOfSums, AreToldFromNormsOfBranchesByWhatTheyWereGiven) {
  EXPECT_THAT(classes(norms_of_sums(false)), ElementsAre());
  const Diagnosis found = norms_of_sums(true);
  ASSERT_THAT(classes(found), ElementsAre("wrong-result"));
  EXPECT_THAT(found.faults[0].tensor, HasSubstr("layers.1.post_attention_layernorm.input"));
}

/// OLMo Hybrid: a layer with norms before both branches, and layers with norms behind them.
TEST(NormsOfSums, StandBeforeTheBranchesInSomeLayers) {
  MemoryDump dump;
  const std::vector<std::int64_t> shape = {1, kRows, kWidth};
  Matrix x = random(1, kRows * kWidth);
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    const auto add = [&](const std::string& name, const Matrix& values) { dump.add(at + name, "f32", shape, values); };
    const auto seed = static_cast<std::uint32_t>(10 * layer + 2);
    const Matrix attention = random(seed, x.size());
    const Matrix branch = random(seed + 1, x.size());
    add("input", x);
    const std::string mixer = layer == 0 ? "linear_attn" : "self_attn";
    if (layer == 0) {
      add("input_layernorm.input", x);
      add("input_layernorm.output", layer_norm(x));
    }
    add(mixer + ".input", layer == 0 ? layer_norm(x) : x);
    add(mixer + ".o_proj.output", attention);
    add(mixer + ".output", attention);
    const Matrix middle = sum_of(x, layer == 0 ? attention : layer_norm(attention));
    add("post_attention_layernorm.input", layer == 0 ? middle : attention);
    add("post_attention_layernorm.output", layer_norm(layer == 0 ? middle : attention));
    add("mlp.input", layer == 0 ? layer_norm(middle) : middle);
    add("mlp.output", branch);
    if (layer > 0) {
      add("post_feedforward_layernorm.input", branch);
      add("post_feedforward_layernorm.output", layer_norm(branch));
    }
    x = sum_of(middle, layer == 0 ? branch : layer_norm(branch));
    add("output", x);
  }
  EXPECT_THAT(classes(diagnosed(dump)), ElementsAre());
}

/// Nemotron-H: a layer that is a mixture and nothing else, whose module has the name that its attention has elsewhere.
TEST(MixtureAlone, IsNotAddedToWhatItIsPartOf) {
  MemoryDump dump;
  const std::vector<std::int64_t> shape = {kRows, kWidth};
  const Matrix x = random(1, kRows * kWidth);
  const Matrix routed = random(2, x.size());
  const Matrix out = random(3, x.size());
  const std::string at = "model.layers.0.";
  dump.add(at + "input", "f32", shape, x);
  dump.add(at + "norm.input", "f32", shape, x);
  dump.add(at + "norm.output", "f32", shape, layer_norm(x));
  dump.add(at + "mixer.input", "f32", shape, layer_norm(x));
  dump.add(at + "mixer.gate.output", "f32", {kRows, 4}, random(4, kRows * 4));
  dump.add(at + "mixer.experts.output", "f32", shape, routed);
  dump.add(at + "mixer.output", "f32", shape, out);
  dump.add(at + "output", "f32", shape, sum_of(x, out));
  EXPECT_THAT(classes(diagnosed(dump)), ElementsAre());
}

/// The module that leaves f16 stands behind those that read it, by its name; what they were given is what it put out.
TEST(UnknownModules, ThatReadMayStandBeforeTheOneThatMakes) {
  MemoryDump dump;
  const std::vector<std::int64_t> shape = {kRows, kWidth};
  const Matrix given = random(1, kRows * kWidth);
  Matrix left(given.size());
  Matrix then(given.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    left[i] = i % 7 == 0 ? std::numeric_limits<double>::infinity() : given[i] * 3e4;
    then[i] = i / kWidth % 2 == 0 ? std::numeric_limits<double>::quiet_NaN() : given[i];
  }
  dump.add("embedder.input", "f16", shape, left);
  dump.add("embedder.other.input", "f16", shape, left);
  dump.add("embedder.other.output", "f16", shape, then);
  dump.add("embedder.output", "f16", shape, then);
  dump.add("standardize.input", "f16", shape, given);
  dump.add("standardize.output", "f16", shape, left);
  const Diagnosis found = diagnosed(dump);
  ASSERT_THAT(classes(found), ElementsAre("f16-overflow"));
  EXPECT_EQ(found.faults[0].tensor, "standardize.output");
}

}  // namespace
}  // namespace nanscope::stranger_layers_test
