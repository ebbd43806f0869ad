#include "gui/prepare/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/gui/built_view.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"
#include "tests/unit/instrument/diagnosis/small_cascade.h"

namespace nanscope::gui::ledger_test {
namespace {

using nanscope::testing::constant;
using nanscope::testing::RunBuilder;
using nanscope::testing::SmallCascade;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kScale = 0.01;  // 448 x 0.01 = 4.48

/// One layer whose k is stored once a step, with these largest values.
RunBuilder run_of(const std::vector<float>& values) {
  RunBuilder builder;
  builder.request(0, {5});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto position = static_cast<std::int64_t>(i);
    builder.step(0, position, position, 1);
    builder.op(0, "k_proj", "gemm", {});
    const std::int64_t k = builder.output("out", {1, 2, position, 1}, constant(values[i]));
    builder.op(0, "kv_store", "kv_store", {{"k", k}});
    ScaleRow scale;
    scale.policy = "locked";
    scale.scale = kScale;
    scale.source = ScaleSource::calibrated;
    scale.calibrated_request = 0;
    scale.calibrated_step = 1;
    scale.calibrated_tokens = 1;
    scale.calibrated_absmax = 2;
    scale.locked = true;
    builder.store("k", k, scale);
  }
  return builder;
}

Ledger ledger_of(RunBuilder& builder) {
  Result<Ledger> made = make_ledger(BuiltView(builder));
  EXPECT_TRUE(made) << made.error().message;
  return made ? *std::move(made) : Ledger{};
}

TEST(Ledger, NamesTheEntryThatClips) {
  RunBuilder builder = run_of({2, 1, 8.96F, 3});
  const Ledger ledger = ledger_of(builder);
  ASSERT_EQ(ledger.entries.size(), 4U);
  EXPECT_THAT(ledger.below, ElementsAre(2));
  EXPECT_EQ(ledger.by_headroom.front(), 2U);
  EXPECT_NEAR(ledger.entries[2].limit, 4.48, 1e-12);
  EXPECT_NEAR(ledger.entries[2].row.headroom, 0.5, 1e-6);
  EXPECT_EQ(ledger.entries[2].clipped, 2U);
  EXPECT_EQ(ledger.entries[2].health(), kClipped);
  EXPECT_EQ(to_string(ledger.entries[2].target.place), "0/2/0/kv_store.k_codes");
  EXPECT_THAT(ledger.headline, HasSubstr("1 of 4 entries"));
  EXPECT_THAT(ledger.rule, HasSubstr("8.96"));
  EXPECT_THAT(ledger.rule, HasSubstr("4.48"));
}

TEST(Ledger, LineKnowsWhereItLockedAndWhoDidIt) {
  RunBuilder builder = run_of({2, 1});
  builder.run.scale_rows[0].locked = false;
  const Ledger ledger = ledger_of(builder);
  ASSERT_EQ(ledger.lines.size(), 1U);
  EXPECT_EQ(ledger.lines[0].locked, 1U);
  EXPECT_EQ(ledger.lines[0].lowest, 0U);
  EXPECT_THAT(ledger.lines[0].setter, HasSubstr("request 0 on 1 token"));
  EXPECT_THAT(ledger.headline, HasSubstr("Nothing was clipped"));
}

TEST(Ledger, LinesAreOrderedByLayerThenKBeforeV) {
  RunBuilder builder = run_of({1, 1, 1, 1});
  const std::pair<int, const char*> lines[] = {{1, "v"}, {0, "v"}, {1, "k"}, {0, "k"}};
  for (std::size_t i = 0; i < 4; ++i) {
    builder.run.scale_rows[i].layer = lines[i].first;
    builder.run.scale_rows[i].target = lines[i].second;
  }
  std::vector<std::string> found;
  for (const LedgerLine& line : ledger_of(builder).lines) found.push_back(std::to_string(line.layer) + line.target);
  EXPECT_THAT(found, ElementsAre("0k", "0v", "1k", "1v"));
}

TEST(Ledger, TheSetterIsWhoLockedIt) {
  RunBuilder builder = run_of({2, 1});
  builder.run.scale_rows[0].locked = false;
  builder.run.scale_rows[0].source = ScaleSource::fixed;
  builder.run.scale_rows[1].calibrated_request = -1;
  builder.run.scale_rows[1].calibrated_tokens = 5;
  const Ledger ledger = ledger_of(builder);
  EXPECT_THAT(ledger.lines[0].setter, HasSubstr("calibrated by the warm-up on 5 tokens"));
  EXPECT_EQ(set_by_briefly(ledger.entries[1]), "the warm-up, 5 tokens, locked");
}

TEST(Ledger, LittleHeadroomIsSeen) {
  RunBuilder builder = run_of({2, 4});
  const Ledger ledger = ledger_of(builder);
  EXPECT_EQ(ledger.entries[0].health(), kHealthyLast);
  EXPECT_EQ(ledger.entries[1].health(), kLowHeadroom) << "4 of 4.48";
}

TEST(Ledger, AColumnHoldsTheLeastLimitAndAnyNan) {
  RunBuilder builder = run_of({2, std::numeric_limits<float>::quiet_NaN(), 1, 1});
  builder.run.scale_rows[0].scale = 0.02;
  builder.run.scale_rows[1].headroom = std::numeric_limits<double>::quiet_NaN();
  builder.run.scale_rows[3].scale = 0.03;
  const Ledger ledger = ledger_of(builder);
  const std::vector<LedgerColumn> squeezed = squeeze(ledger, ledger.lines[0], 1);
  ASSERT_EQ(squeezed.size(), 1U);
  EXPECT_NEAR(squeezed[0].limit, 4.48, 1e-12);
  EXPECT_TRUE(squeezed[0].nan);
}

TEST(Ledger, TheAxisCoversWhatWasAndCouldBeStored) {
  RunBuilder builder = run_of({2, 1});
  const Ledger ledger = ledger_of(builder);
  EXPECT_LT(axis_of(ledger).at(4), 1);
  EXPECT_EQ(axis_of(ledger).at(40), 1);
  EXPECT_LT(axis_of(ledger, std::vector<LogRange>{{40, 40}}).at(40), 1);
  builder.run.scale_rows[0].source = builder.run.scale_rows[1].source = ScaleSource::none;
  EXPECT_EQ(axis_of(ledger_of(builder)).at(4), 1) << "without a scale, what could be stored says nothing";
}

TEST(Ledger, NanIsStoredAndSaysNothingOfHeadroom) {
  RunBuilder builder = run_of({2, std::numeric_limits<float>::quiet_NaN(), 3});
  builder.run.scale_rows[1].headroom = std::numeric_limits<double>::quiet_NaN();
  const Ledger ledger = ledger_of(builder);
  EXPECT_EQ(ledger.entries[1].nan, 2U);
  EXPECT_EQ(ledger.entries[1].health(), kNan);
  EXPECT_EQ(ledger.by_headroom.back(), 1U);
  EXPECT_TRUE(ledger.below.empty());
}

TEST(Ledger, WithoutAScaleNothingClips) {
  RunBuilder builder = run_of({2});
  ScaleRow& row = builder.run.scale_rows[0];
  row.source = ScaleSource::none;
  row.format = Format::bf16;
  row.scale = 1;
  row.headroom = 1e38;
  const Ledger ledger = ledger_of(builder);
  EXPECT_FALSE(ledger.quantized);
  EXPECT_THAT(ledger.headline, HasSubstr("bf16 without a scale"));
}

TEST(Ledger, AnEmptyOneIsNoError) {
  RunBuilder builder;
  const Ledger ledger = ledger_of(builder);
  EXPECT_TRUE(ledger.entries.empty());
  EXPECT_TRUE(ledger.lines.empty());
}

TEST(Ledger, FindsTheEntryOfASelection) {
  SmallCascade made;
  const Ledger ledger = ledger_of(made.builder);
  ASSERT_FALSE(ledger.entries.empty());
  for (std::size_t i = 0; i < ledger.entries.size(); ++i) {
    EXPECT_EQ(ledger.find(ledger.entries[i].target), i) << to_string(ledger.entries[i].target.place);
  }
  Selection other = ledger.entries[0].target;
  other.place.op = "q_proj";
  EXPECT_FALSE(ledger.find(other));
}

TEST(Ledger, SqueezingKeepsTheWorstOfManySteps) {
  std::vector<float> values(1000, 1);
  values[637] = 8.96F;
  RunBuilder builder = run_of(values);
  const Ledger ledger = ledger_of(builder);
  for (const std::size_t columns : {std::size_t{1}, std::size_t{7}, std::size_t{300}, std::size_t{5000}}) {
    const std::vector<LedgerColumn> squeezed = squeeze(ledger, ledger.lines[0], columns);
    EXPECT_EQ(squeezed.size(), std::min<std::size_t>(columns, 1000));
    std::size_t clipped = 0;
    for (const LedgerColumn& column : squeezed) {
      EXPECT_NEAR(column.limit, 4.48, 1e-12);
      if (column.health != kClipped) continue;
      ++clipped;
      EXPECT_EQ(column.worst, 637U);
      EXPECT_NEAR(column.absmax, 8.96, 1e-6);
    }
    EXPECT_EQ(clipped, 1U) << columns;
  }
}

TEST(LogAxis, ItsTicksAreRoundAndInside) {
  const LogAxis axis(2.1, 42);
  EXPECT_THAT(axis.ticks(10), ElementsAre(2, 5, 10, 20, 50));
  EXPECT_THAT(axis.ticks(2), ElementsAre(10));
  EXPECT_EQ(axis.at(0), 0);
  EXPECT_EQ(axis.at(-1), 0);
  EXPECT_EQ(axis.at(std::nan("")), 0);
  EXPECT_EQ(axis.at(1e9), 1);
  EXPECT_LT(axis.at(5), axis.at(10));
  EXPECT_NEAR(axis.at(20) - axis.at(10), axis.at(10) - axis.at(5), 1e-12);
}

TEST(LogAxis, HoldsUnderAnyEnds) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  for (const auto& [low, high] : {std::pair{0.0, 0.0}, {kInfinite, 0.0}, {1e-300, 1e300}, {std::nan(""), 1.0}}) {
    const LogAxis axis(low, high);
    EXPECT_LE(axis.ticks(6).size(), 6U);
    EXPECT_GE(axis.at(1), 0);
    EXPECT_LE(axis.at(1), 1);
  }
}

}  // namespace
}  // namespace nanscope::gui::ledger_test
