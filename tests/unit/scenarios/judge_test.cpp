#include "scenarios/judge.h"

#include <gtest/gtest.h>

#include "scenarios/counterfactuals.h"

namespace nanscope::scenarios {
namespace {

Scenario two_requests() {
  Scenario scenario;
  scenario.requests = {{.name = "a", .parts = {}, .where = {}}, {.name = "b", .parts = {}, .where = {}}};
  return scenario;
}

Analysis healthy() {
  Analysis analysis;
  analysis.requests.resize(2);
  analysis.requests[1].row.id = 1;
  analysis.requests[0].row.output_text = "hello";
  analysis.requests[1].row.output_text = "!!";
  analysis.requests[1].all_bang = true;
  analysis.digest = 7;
  return analysis;
}

Analysis faulty() {
  Analysis analysis = healthy();
  analysis.requests[1].nan_logits = true;
  Fault fault;
  fault.fault_class = "variance-collapse";
  fault.where.request = 1;
  fault.where.step = 0;
  fault.where.layer = 2;
  fault.where.op = "inner_norm";
  fault.where.role = "out";
  fault.where.op_id = 3;
  fault.where.tokens = Range{4, 6};
  analysis.diagnosis.faults = {fault};
  analysis.diagnosis.root_cause = 0;
  Event event;
  event.kind = "variance-collapse";
  event.where = fault.where;
  event.fault = 0;
  analysis.diagnosis.chain = {event};
  return analysis;
}

TEST(Judge, CleanAsExpected) {
  Scenario scenario = two_requests();
  scenario.expect.outputs = {{.request = 0, .all_bang = false, .text = "hello"},
                             {.request = 1, .all_bang = true, .text = {}}};
  scenario.expect.requests_nan = std::vector<std::size_t>{};
  scenario.expect.hash = 7;
  EXPECT_TRUE(judge(scenario, healthy()).empty());
}

TEST(Judge, WarmUpIsNoRequestOfTheScenario) {
  Scenario scenario = two_requests();
  scenario.expect.outputs = {{.request = 0, .all_bang = false, .text = "hello"}};
  scenario.expect.requests_nan = std::vector<std::size_t>{1};
  Analysis analysis = healthy();
  analysis.requests[1].nan_logits = true;
  RequestOutcome warm_up;
  warm_up.row.id = -1;
  warm_up.nan_logits = true;
  analysis.requests.insert(analysis.requests.begin(), warm_up);
  EXPECT_TRUE(judge(scenario, analysis).empty());
}

TEST(Judge, EveryExpectationCanBeMissed) {
  Scenario scenario = two_requests();
  scenario.expect.outputs = {{.request = 0, .all_bang = true, .text = {}},
                             {.request = 1, .all_bang = false, .text = "x"}};
  scenario.expect.requests_nan = std::vector<std::size_t>{0};
  scenario.expect.hash = 8;
  scenario.expect.chain = {"nan-logits"};
  scenario.expect.not_reached = {"variance-collapse"};
  scenario.expect.places = {{"1/0/3/inner_norm", "variance-collapse"}};
  const auto missed = judge(scenario, faulty());
  std::string all;
  for (const Missed& item : missed) all += to_string(item) + '\n';
  EXPECT_EQ(missed.size(), 8u) << all;
}

TEST(Judge, WhatWasCutOffIsNotClean) {
  const Scenario scenario = two_requests();
  Analysis analysis = healthy();
  EXPECT_TRUE(judge(scenario, analysis).empty());
  analysis.diagnosis.completeness.interrupted = true;
  const auto missed = judge(scenario, analysis);
  ASSERT_EQ(missed.size(), 1u);
  EXPECT_EQ(to_string(missed.front()), "verdict: expected clean, found interrupted");
}

TEST(Judge, PlacesMatchByTheirParts) {
  Scenario scenario = two_requests();
  scenario.expect.verdict = Verdict::fault;
  scenario.expect.fault_class = "variance-collapse";
  scenario.expect.chain = {"variance-collapse"};
  scenario.expect.not_reached = {"nan-logits"};
  scenario.expect.places = {{"1/0/2/inner_norm.out[5,0]", "variance-collapse"}, {"inner_norm", "variance-collapse"}};
  EXPECT_TRUE(judge(scenario, faulty()).empty());
  scenario.expect.places = {{"1/0/2/inner_norm.out[7,0]", "variance-collapse"}};
  EXPECT_EQ(judge(scenario, faulty()).size(), 1u) << "token 7 is outside tokens 4 to 6";
  for (const char* elsewhere : {"0/0/2/inner_norm.out", "1/1/2/inner_norm.out", "1/0/1/inner_norm.out",
                                "1/0/2/attn_norm.out", "1/0/2/inner_norm.stats"}) {
    scenario.expect.places = {{elsewhere, "variance-collapse"}};
    EXPECT_EQ(judge(scenario, faulty()).size(), 1u) << elsewhere;
  }
}

TEST(Effects, AreReadOffTheNumbers) {
  Outcome baseline;
  baseline.faulty_requests = {2, 3};
  baseline.faults = {"kv-scale-locked", "variance-collapse"};
  baseline.outputs = {"a", "!!"};
  baseline.bad_prompt_tokens = 30;
  Outcome changed = baseline;
  EXPECT_EQ(effect_of(baseline, changed, "kv-scale-locked"), Effect::no_effect);
  changed.outputs = {"a", "[refused]"};
  EXPECT_EQ(effect_of(baseline, changed, "kv-scale-locked"), Effect::changes_symptom);
  changed.bad_prompt_tokens = 20;
  EXPECT_EQ(effect_of(baseline, changed, "kv-scale-locked"), Effect::limits_spread);
  changed.faulty_requests = {};
  EXPECT_EQ(effect_of(baseline, changed, "kv-scale-locked"), Effect::removes_nan);
  changed.faults = {};
  EXPECT_EQ(effect_of(baseline, changed, "kv-scale-locked"), Effect::removes_cause);
  changed.faulty_requests = {1, 2, 3};
  EXPECT_EQ(effect_of(baseline, changed, "kv-scale-locked"), Effect::worse);
}

TEST(Effects, NothingIsRemovedFromACleanRun) {
  Outcome baseline;
  baseline.outputs = {"a"};
  Outcome changed = baseline;
  EXPECT_EQ(effect_of(baseline, changed, ""), Effect::no_effect);
  changed.outputs = {"b"};
  EXPECT_EQ(effect_of(baseline, changed, ""), Effect::changes_symptom);
  changed.faults = {"kv-scale-locked"};
  EXPECT_EQ(effect_of(baseline, changed, ""), Effect::worse);
}

}  // namespace
}  // namespace nanscope::scenarios
