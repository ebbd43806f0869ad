#include "instrument/spectral/interaction.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/instrument/spectral/draw.h"

namespace nanscope::interaction_test {
namespace {

struct Row {
  const char* name;
  std::int64_t width, heads, kv_heads, head_dim;
  std::uint64_t seed;
  float scale;
  double layer, once, five, twenty, head, naive;
  std::size_t best;
  double trace, spread;
};
/// oracle.py, by numpy's SVD.
constexpr Row kRows[] = {
    {"one head", 8, 1, 1, 4, 1, 1, 3.88806029129, 3.79108781473, 3.88801687188, 3.88806029129, 3.88806029129,
     4.44010753334, 0, 2.79096961992, 5.51611801475},
    {"heads of their own", 16, 4, 4, 4, 2, 1, 9.458761093, 8.94419673207, 9.4529298008, 9.45875814049, 7.67740705091,
     18.2464121948, 0, 3.33145422094, 12.4437786268},
    {"four queries a key", 32, 8, 2, 8, 4, 1, 40.3288955468, 32.4323862176, 40.1446211669, 40.3245318544, 16.7574463943,
     69.9171574262, 2, 8.22325058511, 32.5308120701},
    {"the same times 4", 32, 8, 2, 8, 4, 4, 645.262328748, 518.918179481, 642.313938671, 645.19250967, 268.119142309,
     1118.67451882, 2, 131.572009362, 520.492993121},
    {"kept apart 1", 48, 6, 3, 16, 101, 1, 56.1638562089, 41.7091334642, 50.8315040638, 56.0906722083, 29.202284604,
     100.635531312, 5, -14.001712225, 65.9528204228},
    {"kept apart 2", 24, 3, 1, 6, 102, 1, 25.2866924925, 17.788319904, 25.285491622, 25.2866924925, 15.4357799508,
     36.2662671733, 0, 2.09178989735, 20.4553882426},
    {"kept apart 3", 64, 4, 4, 16, 103, 0.125F, 0.812146940318, 0.552592488732, 0.736715734139, 0.774026316564,
     0.583428747346, 1.28964363911, 3, 0.161926120833, 1.39939057569},
};

struct Drawn {
  QueryKeyWeights weights;
  std::vector<double> start;
};

Drawn draw(const Row& row) {
  Draw values(row.seed);
  Drawn drawn{{row.width, row.heads, row.kv_heads, row.head_dim, {}, {}, {}, {}}, {}};
  drawn.weights.q = values.transposed(row.width, row.heads * row.head_dim, row.scale);
  drawn.weights.k = values.transposed(row.width, row.kv_heads * row.head_dim, row.scale);
  for (std::int64_t i = 0; i < row.width; ++i) drawn.start.push_back(double{values.next()});
  return drawn;
}

template <class Scalar>
std::vector<double> iterations(const QueryKeyWeights& weights, const std::vector<double>& start, int count) {
  const std::vector<Scalar> first(start.begin(), start.end());
  InteractionIteration<Scalar> iteration(weights, first, 1);
  std::vector<double> norms;
  for (int i = 0; i < count; ++i) norms.push_back(iteration.step());
  return norms;
}

class Interaction : public ::testing::TestWithParam<Row> {};

TEST_P(Interaction, NormsOfHeadsAreExact) {
  const Row& row = GetParam();
  const auto norms = head_norms(draw(row).weights, {}, 2);
  ASSERT_TRUE(norms);
  std::size_t best = 0;
  for (std::size_t i = 0; i < norms->size(); ++i) {
    if ((*norms)[i].interaction > (*norms)[best].interaction) best = i;
  }
  EXPECT_EQ(best, row.best);
  EXPECT_NEAR((*norms)[best].interaction, row.head, 1e-10 * row.head);
  EXPECT_NEAR((*norms)[best].trace, row.trace, 1e-10 * row.head);
  EXPECT_NEAR((*norms)[best].spread, row.spread, 1e-10 * row.spread);
}

TEST_P(Interaction, IterationInDoubleIsNumpys) {
  const Row& row = GetParam();
  const Drawn drawn = draw(row);
  const std::vector<double> norms = iterations<double>(drawn.weights, drawn.start, 600);
  EXPECT_NEAR(norms[0], row.once, 1e-10 * row.layer);
  EXPECT_NEAR(norms[4], row.five, 1e-10 * row.layer);
  EXPECT_NEAR(norms[19], row.twenty, 1e-10 * row.layer);
  EXPECT_NEAR(norms.back(), row.layer, 1e-10 * row.layer);
  EXPECT_NEAR(layer_norm_of(drawn.weights, 1), row.layer, 1e-6 * row.layer);
  EXPECT_NEAR(naive_layer_norm(drawn.weights, 1), row.naive, 1e-6 * row.naive);
}

TEST_P(Interaction, IterationInFloatIsWithin1e5) {
  const Row& row = GetParam();
  const Drawn drawn = draw(row);
  const std::vector<double> norms = iterations<float>(drawn.weights, drawn.start, 20);
  EXPECT_NEAR(norms[0], row.once, 1e-5 * row.layer);
  EXPECT_NEAR(norms[4], row.five, 1e-5 * row.layer);
  EXPECT_NEAR(norms[19], row.twenty, 1e-5 * row.layer);
}

INSTANTIATE_TEST_SUITE_P(Vectors, Interaction, ::testing::ValuesIn(kRows));

TEST(InteractionNorm, WeightsTimesFourAreSixteenTimesTheNormToTheLastBit) {
  Drawn once = draw(kRows[2]);
  Drawn four = draw(kRows[3]);
  EXPECT_EQ(16 * head_norms(once.weights, {}, 1)->at(3).interaction,
            head_norms(four.weights, {}, 1)->at(3).interaction);
  EXPECT_EQ(16 * iterations<double>(once.weights, once.start, 3).back(),
            iterations<double>(four.weights, four.start, 3).back());
}

TEST(InteractionNorm, HeadsThatCancelHaveNoNormSideBySide) {
  Draw values(7);
  QueryKeyWeights weights{16, 2, 1, 4, {}, {}, {}, {}};
  weights.q = values.transposed(16, 4);
  weights.k = values.transposed(16, 4);
  for (std::size_t i = 0; i < 64; ++i) weights.q.push_back(-weights.q[i]);
  const auto norms = head_norms(weights, {}, 1);
  ASSERT_TRUE(norms);
  EXPECT_NEAR(norms->at(0).interaction, 6.70816292812, 1e-9);
  EXPECT_NEAR(norms->at(1).interaction, 6.70816292812, 1e-9);
  EXPECT_EQ(iterations<double>(weights, cold_start(16), 5).back(), 0);
}

/// A = 1 a', B = 1 b', a orthogonal to b: nothing at position 0, and norm(a) norm(b) d once a quarter turn made b of a.
TEST(InteractionNorm, RotationCanMakeSomethingOfNothing) {
  QueryKeyWeights weights{3, 1, 1, 2, {1, 1, 1, 0, 0, 0}, {0, 0, 0, 1, 1, 1}, {}, {}};
  const auto plain = head_norms(weights, {}, 1);
  const auto turned = head_norms(weights, {{1.5707963267948966F}, {1}}, 1);
  ASSERT_TRUE(plain && turned);
  EXPECT_NEAR(plain->at(0).interaction, 0, 1e-12);
  EXPECT_NEAR(turned->at(0).rotated, 3, 1e-9);
}

TEST(InteractionNorm, BiasesStandApart) {
  // q = (x0, 0) + (3, 4), k = (0, x1) + (0, 2): W_Q b_k = 0, W_K b_q = (0, 4), b_q . b_k = 8.
  QueryKeyWeights weights{2, 1, 1, 2, {1, 0, 0, 0}, {0, 0, 0, 1}, {3, 4}, {0, 2}};
  const auto norms = head_norms(weights, {}, 1);
  ASSERT_TRUE(norms);
  EXPECT_EQ(norms->at(0).query_bias, 5);
  EXPECT_EQ(norms->at(0).key_bias, 2);
  EXPECT_EQ(norms->at(0).bias_terms, 4);
  EXPECT_EQ(norms->at(0).bias_product, 8);
}

}  // namespace
}  // namespace nanscope::interaction_test
