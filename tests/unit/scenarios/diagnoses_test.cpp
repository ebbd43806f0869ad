#include "scenarios/report/diagnoses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace nanscope::report {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

Fault fault_of(const std::string& fault_class, const std::string& tensor) {
  Fault fault;
  fault.fault_class = fault_class;
  fault.tensor = tensor;
  fault.summary = "What is <wrong>.";
  fault.fix = "What to do.";
  return fault;
}

/// A dump with a fault, its consequence and one that is accepted; one that is clean; one that cannot be read; a
/// recording that was cut off.
std::vector<Diagnosed> four() {
  Diagnosis faulty;
  faulty.target = "dumps/a b";
  faulty.faults = {fault_of("f16-overflow", "down_proj"), fault_of("nan-laundered", "softmax"),
                   fault_of("saturation", "k_cache")};
  faulty.faults[1].because = 0;
  faulty.root_cause = 0;
  Diagnosis clean;
  clean.target = "good";
  clean.coverage.outputs = clean.coverage.judged = 10;
  Diagnosis cut;
  cut.target = "cut.nanscope";
  cut.spread.tokens = 3;
  cut.coverage.outputs = 12;
  cut.coverage.judged = 12;
  cut.completeness = {12, 90, true, "0/0/1/attn_norm"};
  return {{.target = "dumps/a b", .diagnosis = faulty, .error = {}, .accepted = {2}},
          {.target = "good", .diagnosis = clean, .error = {}},
          {.target = "gone", .diagnosis = {}, .error = "gone: no such file"},
          {.target = "cut.nanscope", .diagnosis = cut, .error = {}}};
}

TEST(Diagnoses, WhatIsAcceptedDoesNotFail) {
  std::vector<Diagnosed> all = four();
  EXPECT_EQ(outcome_of(all[0]), TargetOutcome::fault);
  EXPECT_EQ(outcome_of(all[1]), TargetOutcome::passed);
  EXPECT_EQ(outcome_of(all[2]), TargetOutcome::unreadable);
  EXPECT_EQ(outcome_of(all[3]), TargetOutcome::not_judged) << "it was interrupted";
  all[0].accepted = {0, 1, 2};
  EXPECT_EQ(outcome_of(all[0]), TargetOutcome::passed);
  all[1].diagnosis->coverage.judged = 4;
  all[1].min_coverage = 0.5;
  EXPECT_EQ(outcome_of(all[1]), TargetOutcome::not_judged) << "less was judged than was asked for";
  all[1].diagnosis->unread = {{"elements.bin", "the elements have another hash"}};
  EXPECT_EQ(outcome_of(all[1]), TargetOutcome::unreadable);
}

TEST(Diagnoses, AreOneDocumentOfJUnit) {
  const std::string xml = junit_of(four());
  EXPECT_THAT(xml, HasSubstr("tests=\"4\" failures=\"2\" errors=\"1\""));
  EXPECT_EQ(xml.find("<testsuites"), xml.rfind("<testsuites"));
  EXPECT_THAT(xml, HasSubstr("<error message=\"gone: no such file\"/>"));
  EXPECT_THAT(xml, HasSubstr("What is &lt;wrong&gt;."));
  EXPECT_THAT(xml, HasSubstr("accepted: saturation in k_cache"));
  EXPECT_THAT(xml, HasSubstr("the recording ended before the run did"));
}

TEST(Diagnoses, OneTargetIsItsDiagnosis) {
  const std::vector<Diagnosed> all = four();
  const json one = json::parse(json_of(std::span(all).first(1)));
  EXPECT_EQ(one["schema"], "nanscope.diagnosis/3");
  EXPECT_EQ(one["root_cause"]["class"], "f16-overflow");
  EXPECT_EQ(one["accepted"], json::array({2}));
  const json unread = json::parse(json_of(std::span(all).subspan(2, 1)));
  EXPECT_EQ(unread["verdict"], "error");
  EXPECT_EQ(unread["error"], "gone: no such file");
}

TEST(Diagnoses, SeveralAreOneDocumentOfJson) {
  const json all = json::parse(json_of(four()));
  EXPECT_EQ(all["schema"], "nanscope.diagnoses/1");
  std::vector<std::string> verdicts;
  for (const json& one : all["targets"]) verdicts.push_back(one["verdict"]);
  EXPECT_EQ(verdicts, (std::vector<std::string>{"fault", "clean", "error", "no-fault-found"}));
}

/// The members that SARIF 2.1.0 (OASIS, 2020) requires, and those that code hosts read.
TEST(Diagnoses, AreSarifForCodeHosts) {
  const json log = json::parse(sarif_of(four()));
  EXPECT_EQ(log["version"], "2.1.0");
  ASSERT_EQ(log["runs"].size(), 1u);
  const json& run = log["runs"][0];
  EXPECT_EQ(run["tool"]["driver"]["name"], "nanscope");
  std::vector<std::string> rules;
  for (const json& rule : run["tool"]["driver"]["rules"]) rules.push_back(rule["id"]);
  ASSERT_EQ(run["results"].size(), 4u);
  for (const json& result : run["results"]) {
    EXPECT_THAT(rules, testing::Contains(result["ruleId"].get<std::string>()));
    EXPECT_TRUE(result["message"]["text"].is_string());
    EXPECT_TRUE(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].is_string());
  }
  const json& root = run["results"][0];
  EXPECT_EQ(root["level"], "error");
  EXPECT_EQ(root["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "dumps/a%20b");
  EXPECT_EQ(root["locations"][0]["logicalLocations"][0]["fullyQualifiedName"], "down_proj");
  EXPECT_FALSE(root.contains("suppressions"));
  EXPECT_EQ(run["results"][1]["level"], "warning") << "a consequence";
  EXPECT_EQ(run["results"][2]["suppressions"][0]["kind"], "external");
  EXPECT_EQ(run["results"][3]["ruleId"], "not-judged");
  EXPECT_EQ(run["invocations"][0]["executionSuccessful"], false);
  EXPECT_EQ(run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"], "gone: no such file");
}

TEST(Diagnoses, SarifOfWhatWasReadIsSuccessful) {
  const std::vector<Diagnosed> all = four();
  const json run = json::parse(sarif_of(std::span(all).first(2)))["runs"][0];
  EXPECT_EQ(run["invocations"][0]["executionSuccessful"], true);
  EXPECT_FALSE(run["invocations"][0].contains("toolExecutionNotifications"));
}

}  // namespace
}  // namespace nanscope::report
