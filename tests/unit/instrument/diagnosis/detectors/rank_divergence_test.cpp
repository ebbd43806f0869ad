#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "core/run/recording_view.h"
#include "instrument/diagnosis/births.h"
#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"
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

/// What a shared expert without a gate adds to, before the sum over ranks.
TEST(RankDivergence, PartsOfASumDifferByRightWhateverMakesThem) {
  DumpGraph g;
  for (const std::int64_t rank : {0, 1}) {
    g.pass({Span{0, 0, 0, 4, 0, 4}}, 4, 1, rank);
    g.op("shared_add", OpKind::residual_add, {},
         {.role = "partial", .channels = 8, .fill = noise(3 + static_cast<std::uint32_t>(rank))});
    g.op("mlp_residual", OpKind::residual_add, {}, {.channels = 8, .fill = noise(6)});
  }
  EXPECT_EQ(root_of(diagnosis_of(g, false)), "clean");
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
  EXPECT_TRUE(found.healthy());
  EXPECT_EQ(testing::check(found, "rank-divergence").state, Checked::excluded);
}

TEST(RankDivergence, RoundingInAnotherOrderIsNone) { EXPECT_EQ(root_of(ranks(1e-7F, "embed")), "clean"); }

TEST(RankDivergence, OfOneRankNothingIsKnown) {
  DumpGraph g;
  g.pass();
  g.source();
  EXPECT_EQ(testing::check(diagnosis_of(g), "rank-divergence").state, Checked::not_in_dump);
}

/// A training step of `ranks` ranks: what each has of a weight's gradient, the sum, and the optimizer's step with it.
/// Rank `own` steps with its own; with NaN, that of rank 0's gradient has one element so.
testing::RunBuilder training(std::int64_t ranks, std::int64_t own, bool nan = false) {
  testing::RunBuilder b;
  std::vector<std::int64_t> parts;
  const auto step = [&](std::int64_t request, StepKind kind, std::int64_t rank, std::int64_t rows) {
    b.step(request, kind == StepKind::optimizer ? 2 : 1, 0, rows);
    b.run.step_rows.back().kind = kind;
    b.run.step_rows.back().rank = rank;
  };
  const auto of_weight = [&](const std::string& role, const testing::Fill& fill) {
    const std::int64_t id = b.output(role, {4, 8, 0, 1}, fill);
    b.run.tensor_rows.back().axis = Axis::none;
    return id;
  };
  const auto part = [nan](std::int64_t rank) {
    return [=](std::int64_t row, std::int64_t channel) {
      return nan && rank == 0 && row == 1 && channel == 3 ? testing::kNan
                                                          : noise(7 + static_cast<std::uint32_t>(rank))(row, channel);
    };
  };
  for (std::int64_t rank = 0; rank < ranks; ++rank) b.request(rank, {5, 6, 7});
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    step(rank, StepKind::backward, rank, 3);
    b.op(0, "q_proj_grad", "gemm_gradient", {});
    parts.push_back(of_weight("dweight", part(rank)));
  }
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    step(0, StepKind::optimizer, rank, 0);
    b.op(0, "q_proj_weight_all_reduce", "all_reduce", {{"x", parts[static_cast<std::size_t>(rank)]}},
         "{\"ranks\": " + std::to_string(ranks) + ", \"order\": \"rank\"}");
    const std::int64_t sum = of_weight("out", [=](std::int64_t row, std::int64_t channel) {
      float total = 0;
      for (std::int64_t one = 0; one < ranks; ++one) {
        if (rank != own || one == own) total += part(one)(row, channel);
      }
      return total;
    });
    b.op(0, "q_proj_weight_adamw", "adamw", {{"gradient", sum}, {"weight", 0, "layers.0.q_proj.weight"}});
    of_weight("weight", [=](auto row, auto channel) {
      const bool bad = nan && row == 1 && channel == 3;
      return bad ? testing::kNan : noise(9)(row, channel) + (rank == own ? 0.1F : 0.0F);
    });
  }
  return b;
}

Diagnosis trained(std::int64_t ranks, std::int64_t own) {
  testing::RunBuilder b = training(ranks, own);
  return diagnosis_of(b, true);
}

TEST(RankDivergence, OfAGradientThatOneRankDidNotSum) {
  const Diagnosis two = trained(2, 1);
  ASSERT_THAT(classes(two), ElementsAre("rank-divergence"));
  const Fault& fault = two.faults[0];
  EXPECT_EQ(fault.where.rank, 1);
  EXPECT_EQ(fault.where.op, "q_proj_weight_all_reduce");
  EXPECT_EQ(number(fault, "rows"), "4");
  EXPECT_EQ(number(fault, "weight"), "layers.0.q_proj.weight");
  EXPECT_EQ(number(fault, "explained_by"), "the part of rank 0 left out");
  EXPECT_THAT(fault.fix, ::testing::HasSubstr("wait for the sums of all gradients"));

  const Diagnosis four = trained(4, 0);
  ASSERT_THAT(classes(four), ElementsAre("rank-divergence"));
  EXPECT_EQ(four.faults[0].where.rank, 0);
  EXPECT_EQ(number(four.faults[0], "explained_by"), "the part of rank 0 alone");
}

TEST(RankDivergence, OfGradientsThatAreSummedAlikeIsNone) {
  const Diagnosis found = trained(4, -1);
  EXPECT_TRUE(found.healthy());
  EXPECT_EQ(testing::check(found, "rank-divergence").state, Checked::excluded);
  EXPECT_THAT(testing::check(found, "rank-divergence").text,
              ::testing::HasSubstr("6 tensors that ranks share are the same"));
}

TEST(RankDivergence, ANanOfOneRanksGradientIsNotBornInAnothersSum) {
  testing::RunBuilder b = training(2, -1, true);
  RecordingView run(b.run, b.tensors);
  Facts facts(run);
  std::vector<std::string> born;
  for (const Birth& birth : births_of(facts).all) born.push_back(run.op(birth.op)->name);
  EXPECT_THAT(born, ElementsAre("q_proj_grad"));
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
