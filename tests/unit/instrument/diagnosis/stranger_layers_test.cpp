/// Dumps of models whose layers do things in another order than Llama's, and of modules that stand in another order
/// than they ran.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/instrument/diagnosis/stranger_rig.h"

namespace nanscope::stranger_layers_test {
namespace {

using testing::classes;
using testing::diagnosis_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kRows;
using testing::kWidth;
using testing::Matrix;
using testing::MemoryDump;
using testing::random;

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
    const Matrix sum = testing::sum(testing::sum(x, attention), wrong && layer == 1 ? x : Matrix(x.size()));
    add("post_attention_layernorm.input", sum);
    const Matrix middle = layer_norm(sum);
    add("post_attention_layernorm.output", middle);
    add("mlp.input", middle);
    add("mlp.output", branch);
    add("post_mlp_layernorm.input", testing::sum(middle, branch));
    x = layer_norm(testing::sum(middle, branch));
    add("post_mlp_layernorm.output", x);
    add("output", x);
  }
  return diagnosis_of(dump);
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
    const Matrix middle = testing::sum(x, layer == 0 ? attention : layer_norm(attention));
    add("post_attention_layernorm.input", layer == 0 ? middle : attention);
    add("post_attention_layernorm.output", layer_norm(layer == 0 ? middle : attention));
    add("mlp.input", layer == 0 ? layer_norm(middle) : middle);
    add("mlp.output", branch);
    if (layer > 0) {
      add("post_feedforward_layernorm.input", branch);
      add("post_feedforward_layernorm.output", layer_norm(branch));
    }
    x = testing::sum(middle, layer == 0 ? branch : layer_norm(branch));
    add("output", x);
  }
  EXPECT_THAT(classes(diagnosis_of(dump)), ElementsAre());
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
  dump.add(at + "output", "f32", shape, testing::sum(x, out));
  EXPECT_THAT(classes(diagnosis_of(dump)), ElementsAre());
}

/// Of a head of kWidth channels in halves, by a base.
Matrix rotated(const Matrix& x, double base, std::int64_t first) {
  Matrix made(x.size());
  for (std::int64_t row = 0; row < std::ssize(x) / kWidth; ++row) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      const bool low = c < kWidth / 2;
      const auto at = static_cast<std::size_t>(row * kWidth + c);
      const auto other = static_cast<std::size_t>(row * kWidth + (low ? c + kWidth / 2 : c - kWidth / 2));
      const double angle =
          static_cast<double>(first + row) * std::pow(base, -2.0 * static_cast<double>(c % 8) / kWidth);
      made[at] = x[at] * std::cos(angle) + (low ? -x[other] : x[other]) * std::sin(angle);
    }
  }
  return made;
}

/// Causal attention of one head over the rows of two steps; the second one's row is off in a quarter of its channels
/// where `wrong` says so. Neither what was rotated nor the angles were dumped.
Diagnosis attention(double base, bool wrong) {
  MemoryDump dump;
  constexpr std::int64_t kAll = 40;
  const std::size_t all = kAll * kWidth;
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    const auto seed = static_cast<std::uint32_t>(20 * layer + 1);
    const Matrix q = random(seed, all, 2);
    const Matrix k = random(seed + 1, all, 2);
    const Matrix v = random(seed + 2, all);
    const Matrix turned = rotated(q, base, 0);
    const Matrix keys = rotated(k, base, 0);
    Matrix out(all);
    for (std::size_t row = 0; row < kAll; ++row) {
      Matrix weights(row + 1);
      double sum = 0;
      for (std::size_t key = 0; key <= row; ++key) {
        double score = 0;
        for (std::size_t c = 0; c < kWidth; ++c) score += turned[row * kWidth + c] * keys[key * kWidth + c] / 4;
        sum += weights[key] = std::exp(score);
      }
      for (std::size_t i = 0; i < (row + 1) * kWidth; ++i)
        out[row * kWidth + i % kWidth] += weights[i / kWidth] / sum * v[i];
    }
    if (wrong && layer == 1) {
      for (std::size_t c = 0; c < kWidth / 4; ++c) out[all - kWidth + c] = -out[all - kWidth + c] - 1;
    }
    for (std::int64_t step = 0; step < 2; ++step) {
      const std::int64_t rows = step == 0 ? kAll - 1 : 1;
      const auto part = [&](const Matrix& whole) {
        const auto begin = whole.begin() + (step == 0 ? 0 : (kAll - 1) * kWidth);
        return Matrix(begin, begin + rows * kWidth);
      };
      const std::string in = "step_" + std::to_string(step) + "/";
      if (layer == 0) dump.add(in + "past_length", "i64", {1}, {step == 0 ? 0.0 : kAll - 1.0});
      if (layer == 0) dump.add(in + "input_ids", "i64", {1, rows}, Matrix(static_cast<std::size_t>(rows), 3));
      const std::string at = in + "model.layers." + std::to_string(layer) + ".self_attn.";
      const std::vector<std::int64_t> shape = {1, rows, kWidth};
      dump.add(at + "q_proj.output", "f32", shape, part(q));
      dump.add(at + "k_proj.output", "f32", shape, part(k));
      dump.add(at + "v_proj.output", "f32", shape, part(v));
      dump.add(at + "o_proj.input", "f32", shape, part(out));
    }
  }
  return diagnosis_of(dump);
}

TEST(SearchedBase, ThatIsUnusualIsNoFault) {
  EXPECT_THAT(classes(attention(10000, false)), ElementsAre());
  EXPECT_THAT(classes(attention(11158840, false)), ElementsAre());
  EXPECT_THAT(classes(attention(10000, true)), ElementsAre("wrong-result"));
}

/// A tower's output leaves f16 in a module that stands behind those that read it, by its name: what the next norm was
/// given is what it put out.
TEST(UnknownModules, ThatReadMayStandBeforeTheOneThatMakes) {
  MemoryDump dump;
  const std::vector<std::int64_t> shape = {2, kRows, kWidth};
  const Matrix given = random(1, 2 * kRows * kWidth);
  Matrix left(given.size());
  for (std::size_t i = 0; i < given.size(); ++i)
    left[i] = i % 7 == 0 ? std::numeric_limits<double>::infinity() : given[i] * 2e4;
  dump.add("vision_tower.post_layernorm.output", "f16", shape, given);
  dump.add("embed_vision.embedding_pre_projection_norm.input", "f16", shape, left);
  dump.add("standardize.input", "f16", shape, given);
  dump.add("standardize.output", "f16", shape, left);
  const Diagnosis found = diagnosis_of(dump);
  ASSERT_THAT(classes(found), ElementsAre("f16-overflow"));
  EXPECT_EQ(found.faults[0].tensor, "standardize.output");
}

}  // namespace
}  // namespace nanscope::stranger_layers_test
