#include "gui/prepare/what_if.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nanscope::gui {
namespace {

using scenarios::Effect;
using scenarios::Outcome;

Outcome outcome(Effect effect, std::vector<std::string> settings, std::vector<std::int64_t> faulty = {}) {
  Outcome made;
  made.effect = effect;
  made.change.settings = std::move(settings);
  made.faulty_requests = std::move(faulty);
  made.outputs = {"hello", "!!!"};
  made.kv_bytes_per_token = 2048;
  made.chain = {"kv-scale-locked"};
  return made;
}

scenarios::Counterfactuals investigated() {
  scenarios::Counterfactuals all;
  all.baseline = outcome(Effect::no_effect, {}, {1});
  all.baseline.faults = {"kv-scale-locked"};
  all.baseline.chain = {"kv-scale-locked", "nan_in", "token"};
  all.singles = {outcome(Effect::worse, {"a=1"}, {0, 1}), outcome(Effect::removes_cause, {"kv.format=bf16"}),
                 outcome(Effect::no_effect, {"b=2"}, {1}), outcome(Effect::removes_cause, {"c=3", "d=4"})};
  all.singles[1].kv_bytes_per_token = 4096;
  all.singles[1].breaks_at = "nan_in";
  all.singles[1].accuracy = scenarios::Accuracy{1, 20, 0.25, 0.1, 0.955};
  all.minimal = {all.singles[1].change};
  all.runs = 6;
  return all;
}

TEST(WhatIf, GroupsByWhatTheChangeDoesStrongestFirst) {
  const WhatIfTable table = tabulate(investigated());
  ASSERT_EQ(table.groups.size(), 2U);
  EXPECT_EQ(table.groups[0].effect, Effect::removes_cause);
  EXPECT_EQ(table.groups[0].rows.size(), 2U);
  EXPECT_EQ(table.groups[1].effect, Effect::worse);
  EXPECT_THAT(table.without_effect, ::testing::ElementsAre("b=2"));
  EXPECT_EQ(table.conclusion, "1 of 4 changes prevent the fault");
}

TEST(WhatIf, ARowSaysWhereTheChainBreaksAndWhatItCosts) {
  const WhatIfTable table = tabulate(investigated());
  const WhatIfRow& row = table.groups[0].rows[0];
  EXPECT_THAT(table.chain, ::testing::ElementsAre("kv-scale-locked", "nan in", "token"));
  EXPECT_EQ(row.breaks_at, 2);
  EXPECT_THAT(row.links, ::testing::ElementsAre(true, false, false));
  EXPECT_EQ(row.kv_bytes, 4096);
  EXPECT_EQ(row.kv_ratio, 2);
  EXPECT_EQ(row.top1, "96 %");
  EXPECT_EQ(row.error, "0.25");
  EXPECT_EQ(row.faulty, 0U);
  EXPECT_TRUE(table.recorded.answers[1].faulty);
  EXPECT_FALSE(table.recorded.answers[0].faulty);
}

TEST(WhatIf, WhatCouldNotBeRunIsSaidWithItsReason) {
  scenarios::Counterfactuals all = investigated();
  all.singles[0].error = "no such thing";
  const WhatIfTable table = tabulate(all);
  EXPECT_EQ(table.groups.size(), 1U);
  EXPECT_THAT(table.not_run, ::testing::ElementsAre("a=1: no such thing"));
}

TEST(WhatIf, AHealthyRunHasNothingToMend) {
  scenarios::Counterfactuals all;
  all.singles = {outcome(Effect::changes_symptom, {"kv.format=bf16"})};
  const WhatIfTable table = tabulate(all);
  EXPECT_THAT(table.conclusion, ::testing::HasSubstr("healthy"));
  ASSERT_EQ(table.groups.size(), 1U);
  EXPECT_EQ(table.groups[0].title, "stays healthy, answers otherwise");
}

}  // namespace
}  // namespace nanscope::gui
