#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/reference.h"

namespace nanscope {
namespace {

using testing::classes;
using testing::diagnosis_of;
using testing::DumpGraph;
using ::testing::ElementsAre;
using testing::Fill;
using ::testing::HasSubstr;
using testing::noise;
using testing::number;
using testing::root_of;

/// Three layers of a projection of six tokens to 32 channels; layer 1's output is `changed` of the right one, on each
/// rank.
Diagnosis projections(const std::function<float(const testing::Numbers&, std::int64_t, std::int64_t)>& changed,
                      Format format = Format::bf16, std::int64_t ranks = 1) {
  DumpGraph g;
  TensorId x = 0;
  for (std::int64_t at = 0; at < 3 * ranks; ++at) {
    const std::int64_t layer = at % 3;
    g.layer = layer;
    if (layer == 0) {
      g.pass({Span{0, 0, 0, 6, 0, 6}}, 6, 1, at / 3);
      x = g.source({.tokens = 6, .channels = 32, .fill = noise(1), .format = format});
    }
    const TensorId w = g.parameter("o_proj.weight", 32, 32, noise(30 + static_cast<std::uint32_t>(layer), 0.5));
    const testing::Numbers right =
        testing::product(testing::stored_numbers(g, x, 6, 32), testing::stored_numbers(g, w, 32, 32));
    g.op("o_proj", OpKind::gemm, {{"x", x}, {"weight", w}},
         {.tokens = 6,
          .channels = 32,
          .fill =
              layer == 1 ? Fill([&, right](auto r, auto c) { return changed(right, r, c); }) : testing::fill_of(right),
          .format = format});
  }
  return diagnosis_of(g);
}

float right_at(const testing::Numbers& right, std::int64_t row, std::int64_t channel) {
  return static_cast<float>(right.at(row, channel));
}

TEST(WrongResult, AnOutputThatRoundingAloneLeavesIsClean) {
  EXPECT_EQ(root_of(projections(right_at)), "clean");
  EXPECT_EQ(root_of(projections(right_at, Format::f32)), "clean");
  EXPECT_EQ(root_of(projections(right_at, Format::f16)), "clean");
}

TEST(WrongResult, OnEachRankIsOneFault) {
  const auto zeros = [](const auto& right, auto row, auto channel) {
    return channel >= 24 ? 0.0F : right_at(right, row, channel);
  };
  const Diagnosis found = projections(zeros, Format::bf16, 2);
  ASSERT_THAT(classes(found), ElementsAre("wrong-result"));
  EXPECT_EQ(found.faults[0].where.rank, 0);
  EXPECT_EQ(number(found.faults[0], "more_ranks"), "1");
}

TEST(WrongResult, ColumnsOfZerosAreTold) {
  const Diagnosis found = projections(
      [](const auto& right, auto row, auto channel) { return channel >= 24 ? 0.0F : right_at(right, row, channel); });
  ASSERT_THAT(classes(found), ElementsAre("wrong-result"));
  const Fault& fault = found.faults[0];
  EXPECT_EQ(fault.tensor, "p1.o_proj1");
  EXPECT_EQ(fault.where.layer, 1);
  EXPECT_EQ(fault.where.channels, (Range{24, 31}));
  EXPECT_EQ(number(fault, "region"), "columns 24 to 31 of every row");
  EXPECT_EQ(number(fault, "holds"), "zeros");
  EXPECT_FALSE(fault.breaks);
  EXPECT_FALSE(fault.because.has_value());
}

TEST(WrongResult, ARowThatIsAnotherRows) {
  const Diagnosis found = projections(
      [](const auto& right, auto row, auto channel) { return right_at(right, row == 4 ? 1 : row, channel); });
  ASSERT_THAT(classes(found), ElementsAre("wrong-result"));
  EXPECT_EQ(found.faults[0].where.tokens, (Range{4, 4}));
  EXPECT_EQ(number(found.faults[0], "holds"), "what row 1 holds");
}

TEST(WrongResult, RowsApartAreToldApart) {
  const Diagnosis found = projections([](const auto& right, auto row, auto channel) {
    return row == 0 || row == 2 || row == 3 ? 0.0F : right_at(right, row, channel);
  });
  ASSERT_THAT(classes(found), ElementsAre("wrong-result"));
  EXPECT_EQ(number(found.faults[0], "region"), "rows 0, 2 to 3");
  EXPECT_EQ(number(found.faults[0], "wrong_rows"), "0, 2 to 3");
  EXPECT_EQ(found.faults[0].where.tokens, (Range{0, 3}));
}

/// All rows but the first, which a softmax or a shift leaves as it is.
TEST(WrongResult, AllRowsButOneAreNotAll) {
  const Diagnosis found = projections([](const auto& right, auto row, auto channel) {
    return right_at(right, row, channel) * (row > 0 ? 2.0F : 1.0F);
  });
  ASSERT_THAT(classes(found), ElementsAre("wrong-result"));
  EXPECT_EQ(number(found.faults[0], "region"), "rows 1 to 5");
}

TEST(WrongResult, ATileOfKThatIsInNoSumIsTold) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source({.channels = 64, .fill = noise(1)});
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    g.layer = layer;
    const TensorId w = g.parameter("o_proj.weight", 16, 64, noise(30 + static_cast<std::uint32_t>(layer), 0.5));
    testing::Numbers rows = testing::stored_numbers(g, x, 4, 64);
    for (std::int64_t r = 0; layer == 1 && r < 4; ++r) {
      for (std::int64_t k = 48; k < 56; ++k) rows.at(r, k) = 0;
    }
    g.op("o_proj", OpKind::gemm, {{"x", x}, {"weight", w}},
         {.channels = 16, .fill = testing::fill_of(testing::product(rows, testing::stored_numbers(g, w, 16, 64)))});
  }
  const Diagnosis found = diagnosis_of(g);
  ASSERT_THAT(classes(found), ElementsAre("wrong-result"));
  EXPECT_EQ(number(found.faults[0], "explained_by"), "k 48 to 55 left out of the sums");
  EXPECT_EQ(number(found.faults[0], "region"), "all of it");
}

TEST(WrongResult, WhatGoesOnWithAWrongResultIsRight) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source({.channels = 16, .fill = noise(1)});
  const auto up = testing::linear(g, "up_proj", x, 4, 16, 16, 2, 3);
  const auto down = testing::linear(g, "down_proj", up.out, 4, 16, 16, 5);
  static_cast<void>(down);
  g.layer = 1;
  testing::linear(g, "up_proj", x, 4, 16, 16, 7);
  const Diagnosis found = diagnosis_of(g);
  ASSERT_THAT(classes(found), ElementsAre("wrong-result"));
  EXPECT_EQ(found.faults[0].tensor, "p1.up_proj");
}

TEST(WrongResult, ALayerWithAnotherLayersWeightSaysWhose) {
  DumpGraph g;
  g.pass();
  const TensorId x = g.source({.channels = 16, .fill = noise(1)});
  std::vector<TensorId> weights;
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    g.layer = layer;
    weights.push_back(g.parameter("o_proj.weight", 16, 16, noise(30 + static_cast<std::uint32_t>(layer), 0.5)));
  }
  for (std::size_t layer = 0; layer < 3; ++layer) {
    g.layer = static_cast<std::int64_t>(layer);
    const TensorId used = weights[layer == 2 ? 0 : layer];
    g.op("o_proj", OpKind::gemm, {{"x", x}, {"weight", weights[layer]}},
         {.channels = 16,
          .fill = testing::fill_of(
              testing::product(testing::stored_numbers(g, x, 4, 16), testing::stored_numbers(g, used, 16, 16)))});
  }
  const Diagnosis found = diagnosis_of(g);
  ASSERT_THAT(classes(found), ElementsAre("wrong-result"));
  EXPECT_THAT(number(found.faults[0], "explained_by"), HasSubstr("p1.o_proj.weight.weight"));
}

/// Norms of queries, over each of two heads of 16 channels, on (tokens, heads, width).
Diagnosis head_norms(float wrong) {
  DumpGraph g;
  g.pass();
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    g.layer = layer;
    const TensorId x = g.op("q_proj", OpKind::dumped, {},
                            {.channels = 32, .fill = noise(40 + static_cast<std::uint32_t>(layer), 3), .heads = 2});
    const TensorId w =
        g.parameter("q_norm.weight", 1, 16, [](auto, auto c) { return 0.5F + 0.1F * static_cast<float>(c); });
    testing::Numbers right =
        testing::rms_norm(testing::stored_numbers(g, x, 4, 32), testing::stored_numbers(g, w, 1, 16), 16, 1e-6);
    if (layer == 1) {
      for (std::int64_t c = 16; c < 32; ++c) right.at(2, c) *= double{wrong};
    }
    g.op("q_norm", OpKind::layer_norm, {{"x", x}, {"weight", w}},
         {.channels = 32, .fill = testing::fill_of(right), .heads = 2});
  }
  return diagnosis_of(g);
}

TEST(WrongResult, OfANormOfHeads) {
  const Diagnosis found = head_norms(1.5F);
  ASSERT_THAT(classes(found), ElementsAre("wrong-result"));
  EXPECT_EQ(found.faults[0].tensor, "p1.q_norm1");
  EXPECT_EQ(found.faults[0].where.tokens, (Range{2, 2}));
  EXPECT_EQ(found.faults[0].where.channels, (Range{16, 31}));
  EXPECT_EQ(root_of(head_norms(1)), "clean");
}

TEST(WrongResult, BesideNaNThatIsBornThereIsTheSameFault) {
  const Diagnosis found = projections([](const auto& right, auto row, auto channel) {
    return row == 1 ? testing::kNan : row == 2 ? 0.0F : right_at(right, row, channel);
  });
  EXPECT_THAT(classes(found), ElementsAre("invalid-op"));
}

/// Another projection comes out: what the only one of its name was given, its weight and its output say enough.
TEST(WrongResult, OfAModuleWithItsOwnInputThatComesOutNowhere) {
  const auto of = [](const std::string& given) {
    DumpGraph g;
    g.pass();
    const TensorId x = g.source({.channels = 16, .fill = noise(1)});
    testing::linear(g, "q_proj", x, 4, 16, 16, 2);
    const TensorId in = g.op(given, OpKind::copy, {{"x", x}}, {.channels = 16, .fill = noise(1)});
    testing::linear(g, "up_proj", in, 4, 16, 16, 3, 64);
    return diagnosis_of(g);
  };
  ASSERT_THAT(classes(of("up_proj_input")), ElementsAre("wrong-result"));
  EXPECT_EQ(of("up_proj_input").faults[0].tensor, "p1.up_proj");
  EXPECT_EQ(root_of(of("another")), "clean");
}

TEST(WrongResult, WhatWasNotToBeDoneAgainWasNotLookedAt) {
  DumpGraph g;
  g.pass();
  testing::linear(g, "q_proj", g.source({.channels = 8, .fill = noise(1)}), 4, 8, 8, 2);
  for (const std::string fault_class : {"wrong-result", "scale-misapplied", "fp8-format-mismatch"}) {
    EXPECT_EQ(testing::check(diagnosis_of(g, false), fault_class).state, Checked::not_looked_at) << fault_class;
    EXPECT_EQ(testing::check(diagnosis_of(g), fault_class).state, Checked::excluded) << fault_class;
  }
}

}  // namespace
}  // namespace nanscope
