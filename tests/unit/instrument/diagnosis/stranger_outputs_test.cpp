/// Healthy dumps of modules' outputs alone: what modules were given has to be found out, and the fault next to each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/unit/instrument/diagnosis/stranger_rig.h"

namespace nanscope::stranger_outputs_test {
namespace {

using testing::classes;
using ::testing::Contains;
using testing::diagnosis_of;
using ::testing::ElementsAre;
using testing::kRows;
using testing::kWidth;
using testing::Matrix;
using testing::MemoryDump;
using testing::random;
using testing::sum;

/// Four layers whose stream begins behind the norm `name`. `wrong`: what the first layer's output is off by.
Diagnosis streams(const std::string& name, const std::string& layers, double wrong) {
  MemoryDump dump;
  const std::vector<std::int64_t> shape = {1, kRows, kWidth};
  dump.add("model.embed_tokens.output", "f32", shape, random(1, kRows * kWidth));
  Matrix x = random(2, kRows * kWidth);
  dump.add(name + ".output", "f32", shape, x);
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    const std::string at = layers + "." + std::to_string(layer) + ".";
    const auto seed = static_cast<std::uint32_t>(2 * layer + 3);
    const Matrix attention = random(seed, x.size());
    const Matrix mlp = random(seed + 1, x.size());
    dump.add(at + "self_attn.o_proj.output", "f32", shape, attention);
    dump.add(at + "mlp.down_proj.output", "f32", shape, mlp);
    x = sum(sum(x, attention), mlp);
    if (layer == 0) x[20] += wrong;
    dump.add(at + "output", "f32", shape, x);
  }
  return diagnosis_of(dump);
}

/// ModernBERT, BART, and RWKV, whose norm is the first layer's.
TEST(FirstStream, BeginsBehindANormOfTheEmbedding) {
  for (const std::string name : {"model.embeddings.norm", "model.layernorm_embedding", "model.layers.0.pre_ln"})
    EXPECT_THAT(classes(streams(name, "model.layers", 0)), ElementsAre()) << name;
  EXPECT_THAT(classes(streams("model.embeddings.norm", "model.layers", 1)), Contains("wrong-result"));
}

/// Probabilities of four layers of an encoder; `window`: how far a key may be, of layer 2 `other`.
Diagnosis windows(std::int64_t window, std::int64_t other) {
  MemoryDump dump;
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    const std::string at = "encoder.layer." + std::to_string(layer) + ".attention.self.";
    const Matrix scores = random(static_cast<std::uint32_t>(30 + layer), kRows * kRows, 2);
    Matrix probs(scores.size());
    for (std::int64_t row = 0; row < kRows; ++row) {
      double all = 0;
      const auto cell = [&](std::int64_t key) { return static_cast<std::size_t>(row * kRows + key); };
      const auto seen = [&](std::int64_t key) { return std::abs(row - key) <= (layer == 2 ? other : window); };
      for (std::int64_t key = 0; key < kRows; ++key) all += seen(key) ? std::exp(scores[cell(key)]) : 0;
      for (std::int64_t key = 0; key < kRows; ++key)
        probs[cell(key)] = seen(key) ? double{static_cast<float>(std::exp(scores[cell(key)]) / all)} : 0;
    }
    dump.add(at + "scores", "f32", {1, 1, kRows, kRows}, scores);
    dump.add(at + "probs", "f32", {1, 1, kRows, kRows}, probs);
  }
  return diagnosis_of(dump);
}

TEST(WindowOnBothSides, OfAnEncoderIsRead) { EXPECT_THAT(classes(windows(2, 2)), ElementsAre()); }
TEST(WindowOnBothSides, OfOneLayerIsAWayOfItsOwn) { EXPECT_THAT(classes(windows(kRows, 2)), ElementsAre()); }

}  // namespace
}  // namespace nanscope::stranger_outputs_test
