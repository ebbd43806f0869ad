#include "gui/prepare/score_curves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/run/recording_view.h"
#include "gui/export/tables.h"
#include "scenarios/record.h"
#include "scenarios/scenario.h"

namespace nanscope::gui {
namespace {

using ::testing::HasSubstr;

/// A run that is resumed in its second of three requests of six steps without its scaling state.
TEST(ScoreCurves, TellForEachLayerWhichPolicyOverflowsWhen) {
  const auto file = std::filesystem::path(NANSCOPE_SOURCE_DIR) / "scenarios/fp8-scores-resumed.toml";
  const scenarios::RunSpec spec = scenarios::resolve(scenarios::load_scenario(file).value()).value();
  const auto bench = scenarios::Workbench::open(spec.config).value();
  const Recording recording = std::move(scenarios::record(*bench, spec).value().recording);
  RecordingRun rows(recording);
  StoredTensors tensors(recording);
  RecordingView view(rows, tensors);
  const ScoreCurves curves = make_score_curves(view, &recording, {}).value();
  EXPECT_EQ(curves.steps.size(), 18U);
  ASSERT_EQ(curves.bands.size(), 3U);
  EXPECT_EQ(curves.bands[1].first, 6U);
  EXPECT_EQ(curves.bands[1].last, 11U);
  EXPECT_EQ(curves.steps[6].title, "resumed");
  ASSERT_EQ(curves.layers.size(), 4U);
  ASSERT_EQ(curves.trials.size(), 5U) << "auto_alpha's burn-in is not over";
  EXPECT_EQ(curves.trials[4].policy, "geometry");
  for (const ScoreLayerCurves& layer : curves.layers) {
    EXPECT_EQ(layer.points.size(), 18U);
    EXPECT_GE(layer.overflows[1], 1) << "delayed";
    EXPECT_EQ(layer.overflows[0], 0) << "current";
    EXPECT_EQ(layer.overflows[4], 0) << "geometry";
    EXPECT_TRUE(scenarios::overflows(curves.trials[1].points[layer.points[6]].scaled, curves.largest));
  }
  EXPECT_THAT(curves.headline,
              HasSubstr("of 72 steps of a layer, scores are beyond 448 times their scale under delayed"));
  EXPECT_EQ(curves.caveat, "auto_alpha: its burn-in of 100 steps is not over");
  const Table table = table_of(curves);
  EXPECT_EQ(table.header.size(), 13U);
  ASSERT_EQ(table.rows.size(), 72U);
  EXPECT_EQ(table.rows[24][0], "7");
}

}  // namespace
}  // namespace nanscope::gui
