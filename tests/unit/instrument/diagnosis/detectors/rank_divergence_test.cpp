#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/reference.h"

namespace nanscope {
namespace {

using testing::classes;
using testing::diagnosis_of;
using testing::DumpGraph;
using ::testing::ElementsAre;
using testing::noise;
using testing::number;
using testing::root_of;

/// Two ranks that share their residual stream and each hold half of a projection. On rank 1, row 2 of what they share
/// is off by `off` from op `from` on.
Diagnosis ranks(float off, const std::string& from) {
  DumpGraph g;
  for (const std::int64_t rank : {0, 1}) {
    g.pass({Span{0, 0, 0, 4, 0, 4}}, 4, 1, rank);
    bool wrong = false;
    const auto shared = [&](const std::string& name, OpKind kind, std::uint32_t seed) {
      wrong = wrong || (rank == 1 && name == from);
      const bool here = wrong;
      g.op(name, kind, {}, {.channels = 8, .fill = [=](auto row, auto channel) {
                              return noise(seed)(row, channel) + (here && row == 2 ? off : 0.0F);
                            }});
    };
    shared("embed", OpKind::embedding, 1);
    shared("attn_norm", OpKind::layer_norm, 2);
    g.op("q_proj", OpKind::gemm, {}, {.channels = 8, .fill = noise(3 + static_cast<std::uint32_t>(rank))});
    shared("attn_residual", OpKind::residual_add, 5);
    shared("mlp_residual", OpKind::residual_add, 6);
  }
  return diagnosis_of(g, false);
}

TEST(RankDivergence, TheFirstThatRanksShareAndHoldDifferently) {
  const Diagnosis found = ranks(0.5F, "attn_residual");
  ASSERT_THAT(classes(found), ElementsAre("rank-divergence"));
  const Fault& fault = found.faults[0];
  EXPECT_EQ(fault.tensor, "p2.attn_residual");
  EXPECT_EQ(number(fault, "other"), "p1.attn_residual");
  EXPECT_EQ(fault.where.rank, 1);
  EXPECT_EQ(fault.where.tokens, (Range{2, 2}));
  EXPECT_FALSE(fault.because.has_value());
}

/// Each rank's part of a sum and the sum; rank `wrong` has one bit of it otherwise.
Diagnosis sums(std::int64_t wrong, std::uint32_t bit) {
  DumpGraph g;
  for (const std::int64_t rank : {0, 1}) {
    g.pass({Span{0, 0, 0, 4, 0, 4}}, 4, 1, rank);
    const TensorId x =
        g.op("o_proj", OpKind::gemm, {}, {.channels = 8, .fill = noise(3 + static_cast<std::uint32_t>(rank))});
    const auto sum = [=](std::int64_t row, std::int64_t channel) {
      const float right = noise(3)(row, channel) + noise(4)(row, channel);
      const bool here = rank == wrong && row == 2 && channel == 5;
      return here ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(right) ^ (1U << bit)) : right;
    };
    const TensorId reduced = g.op("o_proj_all_reduce", OpKind::all_reduce, {{"x", x}}, {.channels = 8, .fill = sum});
    g.op("attn_residual", OpKind::residual_add, {{"a", reduced}, {"b", reduced}},
         {.channels = 8, .fill = [=](auto row, auto channel) { return 2 * sum(row, channel); }});
  }
  return diagnosis_of(g);
}

TEST(RankDivergence, TheRankIsNamedWhoseSumItsPartsDoNotGive) {
  for (const std::int64_t wrong : {0, 1}) {
    const Diagnosis found = sums(wrong, 22);
    ASSERT_THAT(classes(found), ElementsAre("rank-divergence"));
    EXPECT_EQ(found.faults[0].where.rank, wrong);
    EXPECT_EQ(found.faults[0].where.tokens, (Range{2, 2}));
    EXPECT_EQ(found.faults[0].where.channels, (Range{5, 5}));
    EXPECT_THAT(found.faults[0].summary, ::testing::HasSubstr("in bit 22 of [2,5] alone"));
  }
}

TEST(RankDivergence, ShardsDifferByRight) {
  const Diagnosis found = ranks(0, "");
  EXPECT_EQ(found.verdict(), Verdict::clean);
  EXPECT_EQ(testing::check(found, "rank-divergence").state, Checked::excluded);
}

TEST(RankDivergence, RoundingInAnotherOrderIsNone) { EXPECT_EQ(root_of(ranks(1e-7F, "embed")), "clean"); }

TEST(RankDivergence, OfOneRankNothingIsKnown) {
  DumpGraph g;
  g.pass();
  g.source();
  EXPECT_EQ(testing::check(diagnosis_of(g), "rank-divergence").state, Checked::not_in_dump);
}

/// Two passes of a norm, each with a weight of its own: of two checkpoints, or of two ranks.
Diagnosis two_norms(bool ranks) {
  DumpGraph g;
  const auto norm = [&](std::uint32_t seed) { return g.parameter("attn_norm.weight", 1, 8, noise(seed)); };
  const std::vector<TensorId> weights{norm(1), norm(2)};
  for (const std::int64_t pass : {0, 1}) {
    g.pass({Span{0, 0, 0, 4, 0, 4}}, 4, 1, ranks ? pass : 0);
    const TensorId x = g.source({.channels = 8, .fill = noise(3)});
    g.op("attn_norm", OpKind::layer_norm, {{"x", x}, {"weight", weights[static_cast<std::size_t>(pass)]}},
         {.channels = 8});
  }
  return diagnosis_of(g, false);
}

TEST(RankDivergence, WeightsOfTwoCheckpointsAreNotOfTwoRanks) {
  EXPECT_EQ(testing::fault(two_norms(false), "rank-divergence").fault_class, "");
  EXPECT_EQ(testing::fault(two_norms(true), "rank-divergence").tensor, "p0.attn_norm.weight.weight");
}

}  // namespace
}  // namespace nanscope
