/// Dumps of models whose layers rotate queries and keys in ways of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/instrument/diagnosis/stranger_rig.h"

namespace nanscope::stranger_rotations_test {
namespace {

using testing::classes;
using ::testing::Contains;
using testing::diagnosis_of;
using ::testing::ElementsAre;
using testing::kRows;
using testing::kWidth;
using testing::Matrix;
using testing::MemoryDump;
using testing::product;
using testing::random;

struct Angles {
  Matrix cos;
  Matrix sin;
};

/// Of a head of kWidth channels, in halves.
Angles angles(double base = 10000) {
  Angles made;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      const double angle = static_cast<double>(row) * std::pow(base, -2.0 * static_cast<double>(c % 8) / kWidth);
      made.cos.push_back(double{static_cast<float>(std::cos(angle))});
      made.sin.push_back(double{static_cast<float>(std::sin(angle))});
    }
  }
  return made;
}

Matrix rotated(const Matrix& x, const Angles& by) {
  Matrix made(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool low = i % kWidth < kWidth / 2;
    const double partner = low ? -x[i + kWidth / 2] : x[i - kWidth / 2];
    made[i] = double{static_cast<float>(x[i] * by.cos[i] + partner * by.sin[i])};
  }
  return made;
}

/// Queries, keys and scores of four layers. Layer `unrotated` rotates nothing, layer `other` has scores of no way,
/// layer `gated` has a module that no other layer has.
Diagnosis rotations(std::int64_t unrotated, std::int64_t other, std::int64_t gated = -1) {
  MemoryDump dump;
  const Angles by = angles();
  dump.add("positions", "i64", {1, kRows}, {0, 1, 2, 3, 4, 5});
  dump.add("cos", "f32", {1, kRows, kWidth}, by.cos);
  dump.add("sin", "f32", {1, kRows, kWidth}, by.sin);
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".self_attn.";
    const auto seed = static_cast<std::uint32_t>(2 * layer + 300);
    const Matrix q = random(seed, kRows * kWidth);
    const Matrix k = random(seed + 1, kRows * kWidth);
    const bool plain = layer == unrotated;
    Matrix scores = product(plain ? q : rotated(q, by), plain ? k : rotated(k, by), kRows);
    if (layer == other) scores = random(399, scores.size(), 4);
    for (double& one : scores) one /= 4;
    dump.add(at + "q_proj.output", "f32", {1, kRows, kWidth}, q);
    dump.add(at + "k_proj.output", "f32", {1, kRows, kWidth}, k);
    dump.add(at + "scores", "f32", {1, 1, kRows, kRows}, scores);
    if (layer == gated) dump.add(at + "output_gate.output", "f32", {1, kRows, 4}, random(400, kRows * 4));
  }
  return diagnosis_of(dump);
}

TEST(LayersApart, MayNotRotateAndAreNoted) {
  const Diagnosis plain = rotations(-1, -1);
  EXPECT_THAT(classes(plain), ElementsAre());
  EXPECT_TRUE(plain.notes.empty());
  const Diagnosis apart = rotations(3, -1);
  EXPECT_THAT(classes(apart), ElementsAre());
  ASSERT_EQ(apart.notes.size(), 1U);
  EXPECT_THAT(apart.notes[0].text, ::testing::HasSubstr("attention of layer 3 comes out in another way"));
}

/// Layers of other modules compute attention in a way of their own, as those of linear attention do.
TEST(LayersApart, OfOtherModulesAreNotCompared) { EXPECT_THAT(classes(rotations(-1, 3, 3)), ElementsAre()); }
TEST(LayersApart, ThatComeOutInNoWayAreAccused) { EXPECT_THAT(classes(rotations(-1, 3)), Contains("wrong-result")); }

/// Probabilities of four layers by modules' outputs alone. The rotary module ran twice: layer `local` uses its tables
/// of a smaller base.
Diagnosis two_tables(std::int64_t local, bool wrong = false) {
  MemoryDump dump;
  const Angles global = angles();
  const Angles narrow = angles(500);
  const std::vector<std::int64_t> shape = {1, kRows, kWidth};
  dump.add("positions", "i64", {1, kRows}, {0, 1, 2, 3, 4, 5});
  dump.add("model.rotary_emb.output", "f32", shape, narrow.cos);
  dump.add("model.rotary_emb.output.1", "f32", shape, narrow.sin);
  dump.add("model.rotary_emb.output_again2", "f32", shape, global.cos);
  dump.add("model.rotary_emb.output_again2.1", "f32", shape, global.sin);
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".self_attn.";
    const auto seed = static_cast<std::uint32_t>(2 * layer + 300);
    const Matrix q = random(seed, kRows * kWidth);
    const Matrix k = random(seed + 1, kRows * kWidth);
    const Angles& by = layer == local ? narrow : global;
    Matrix scores = product(rotated(q, by), rotated(k, by), kRows);
    if (wrong && layer == 1) scores = random(398, scores.size(), 4);
    for (double& one : scores) one /= 4;
    dump.add(at + "q_proj.output", "f32", shape, q);
    dump.add(at + "k_proj.output", "f32", shape, k);
    dump.add(at + "scores", "f32", {1, 1, kRows, kRows}, scores);
  }
  return diagnosis_of(dump);
}

/// Gemma 3 has two kinds of layers, and nothing says of which kind one is where its inputs were not dumped.
TEST(TwoRotaryTables, MayBeUsedByDifferentLayers) {
  EXPECT_THAT(classes(two_tables(-1)), ElementsAre());
  EXPECT_THAT(classes(two_tables(2)), ElementsAre());
}
TEST(TwoRotaryTables, DoNotExcuseOtherScores) { EXPECT_THAT(classes(two_tables(-1, true)), Contains("wrong-result")); }

}  // namespace
}  // namespace nanscope::stranger_rotations_test
