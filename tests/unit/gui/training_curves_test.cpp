#include "gui/prepare/training_curves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "gui/export/tables.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::gui {
namespace {

using nanscope::testing::RunBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t at(TrainingCurve curve) { return static_cast<std::size_t>(curve); }

/// A training step of one sequence of two tokens.
void add_training_step(RunBuilder& run, std::int64_t number, const std::string& mean, float norm, bool skipped) {
  const auto begin = [&](std::int64_t index, StepKind kind, std::int64_t tokens) {
    run.step(number, index, 0, tokens);
    run.run.step_rows.back().kind = kind;
  };
  run.request(number, {1, 2});
  begin(0, StepKind::forward, 2);
  run.op(-1, "embed", "embedding", {}, "{}");
  run.op(-1, "loss", "cross_entropy", {}, R"({"targets":2,"mean":)" + mean + "}");
  run.output("loss", {2, 1}, [](std::int64_t, std::int64_t) { return 1.0F; });
  begin(1, StepKind::backward, 2);
  run.op(-1, "loss_grad", "cross_entropy_gradient", {}, R"({"targets":2,"loss_scale":1024})");
  begin(2, StepKind::optimizer, 0);
  run.op(-1, "gradient_norm", "gradient_norm", {}, skipped ? R"({"skipped":true})" : R"({"skipped":false})");
  run.output("norm", {1, 1}, [norm](std::int64_t, std::int64_t) { return norm; });
  if (!skipped) run.op(0, "q_proj_adamw", "adamw", {}, R"({"learning_rate":0.001,"step":1})");
}

TEST(TrainingCurves, AreWhatOpsState) {
  RunBuilder run;
  add_training_step(run, 0, "5.5", 2.0F, false);
  add_training_step(run, 1, "\"nan\"", std::numeric_limits<float>::infinity(), true);
  add_training_step(run, 2, "4.25", 0.0F, false);
  const auto curves = make_training_curves(run.run, {});
  ASSERT_TRUE(curves) << curves.error().message;
  ASSERT_EQ(curves->points.size(), 3U);
  const TrainingPoint& first = curves->points[0];
  EXPECT_THAT(first.values, ElementsAre(5.5, 2.0, 0.001, 1024.0));
  EXPECT_FALSE(first.skipped);
  EXPECT_EQ(to_string(first.places[at(TrainingCurve::loss)]), "0/0/-/loss.loss");
  EXPECT_EQ(to_string(first.places[at(TrainingCurve::loss_scale)]), "0/1/-/loss_grad.dlogits");
  EXPECT_EQ(to_string(first.places[at(TrainingCurve::gradient_norm)]), "0/2/-/gradient_norm.norm");
  EXPECT_EQ(to_string(first.places[at(TrainingCurve::learning_rate)]), "0/2/0/q_proj_adamw.weight");

  const TrainingPoint& second = curves->points[1];
  EXPECT_TRUE(std::isnan(second.values[at(TrainingCurve::loss)]));
  EXPECT_TRUE(second.told[at(TrainingCurve::loss)]);
  EXPECT_TRUE(std::isinf(second.values[at(TrainingCurve::gradient_norm)]));
  EXPECT_FALSE(second.told[at(TrainingCurve::learning_rate)]) << "no weight was changed";
  EXPECT_TRUE(second.skipped);
  EXPECT_EQ(curves->points[2].values[at(TrainingCurve::gradient_norm)], 0.0);

  EXPECT_EQ(curves->ranges[at(TrainingCurve::loss)].lowest, 4.25);
  EXPECT_EQ(curves->ranges[at(TrainingCurve::gradient_norm)].highest, 2.0);
  EXPECT_EQ(curves->headline, "3 training steps, loss 5.5 to 4.25, 1 skipped; not finite first in step 1");

  const Table table = table_of(*curves);
  EXPECT_THAT(table.rows[0], ElementsAre("0", "5.5", "2", "0.001", "1024", "no"));
  EXPECT_THAT(table.rows[1], ElementsAre("1", "nan", "inf", "", "1024", "yes"));
}

TEST(TrainingCurves, OfSeveralRanksAreTheFirstOnes) {
  RunBuilder run;
  add_training_step(run, 0, "5.5", 2.0F, false);
  const std::size_t of_rank_0 = run.run.step_rows.size();
  add_training_step(run, 1, "4.5", 3.0F, false);
  for (std::size_t i = of_rank_0; i < run.run.step_rows.size(); ++i) run.run.step_rows[i].rank = 1;
  const auto curves = make_training_curves(run.run, {});
  ASSERT_TRUE(curves) << curves.error().message;
  ASSERT_EQ(curves->points.size(), 1U);
  EXPECT_THAT(curves->points[0].values, ElementsAre(5.5, 2.0, 0.001, 1024.0));
}

TEST(TrainingCurves, AnAnswerHasNone) {
  RunBuilder run;
  run.request(0, {1, 2});
  run.step(0, 0, 0, 2);
  run.op(-1, "embed", "embedding", {}, "{}");
  EXPECT_TRUE(make_training_curves(run.run, {})->points.empty());
}

TEST(TrainingCurves, CanBeStopped) {
  RunBuilder run;
  add_training_step(run, 0, "5.5", 2.0F, false);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(make_training_curves(run.run, stop.get_token()).error().message, HasSubstr("stopped"));
}

}  // namespace
}  // namespace nanscope::gui
