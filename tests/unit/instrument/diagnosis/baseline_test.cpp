#include "instrument/diagnosis/baseline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace nanscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Fault fault(const std::string& fault_class, const std::string& tensor, std::optional<std::int64_t> layer,
            const std::string& op) {
  Fault made;
  made.fault_class = fault_class;
  made.tensor = tensor;
  made.where.layer = layer;
  made.where.op = op;
  return made;
}

Diagnosis diagnosis(std::vector<Fault> faults) {
  Diagnosis made;
  made.faults = std::move(faults);
  return made;
}

std::string error(std::string_view json) {
  const Result<Baseline> baseline = Baseline::parse(json);
  return baseline ? "parsed" : baseline.error().message;
}

TEST(Baseline, KnowsWhatItWasWrittenFrom) {
  const Fault overflow = fault("f16-overflow", "step_0/model.layers.3.mlp.output", 3, "down_proj");
  const Baseline baseline = Baseline::parse(to_json(diagnosis({overflow})).dump()).value();
  EXPECT_TRUE(baseline.knows(overflow));
}

TEST(Baseline, OfAnotherRunTheClassAndThePlaceInTheModelDecide) {
  Fault written = fault("f16-overflow", "2026-11-01/step_0/model.layers.3.mlp.output", 3, "down_proj");
  written.where.request = 0;
  written.where.tokens = Range{1, 1};
  const Baseline baseline = Baseline::parse(to_json(diagnosis({written})).dump()).value();
  Fault later = fault("f16-overflow", "2026-11-02/step_7/model.layers.3.mlp.output", 3, "down_proj");
  later.where.request = 5;
  later.where.rank = 1;
  EXPECT_TRUE(baseline.knows(later)) << "request, step, rank, tokens and folders are of one run";
  EXPECT_FALSE(baseline.knows(fault("saturation", written.tensor, 3, "down_proj")));
  EXPECT_FALSE(baseline.knows(fault("f16-overflow", written.tensor, 4, "down_proj")));
  EXPECT_FALSE(baseline.knows(fault("f16-overflow", written.tensor, {}, "down_proj")));
  EXPECT_FALSE(baseline.knows(fault("f16-overflow", written.tensor, 3, "up_proj")));
  EXPECT_FALSE(baseline.knows(fault("f16-overflow", "step_0/model.layers.3.mlp.input", 3, "down_proj")));
}

TEST(Baseline, SeveralDiagnosesAreOne) {
  const Fault one = fault("saturation", "a", 0, "x");
  const Fault two = fault("wrong-result", "b", {}, "");
  nlohmann::ordered_json list{{"schema", "nanscope.diagnoses/1"}, {"targets", nlohmann::ordered_json::array()}};
  list["targets"].push_back(to_json(diagnosis({one})));
  list["targets"].push_back({{"target", "gone"}, {"verdict", "error"}, {"error", "gone: no such file"}});
  list["targets"].push_back(to_json(diagnosis({two})));
  const Baseline baseline = Baseline::parse(list.dump()).value();
  EXPECT_TRUE(baseline.knows(one));
  EXPECT_TRUE(baseline.knows(two));
}

TEST(Baseline, SaysWhatIsGone) {
  const Fault one = fault("saturation", "dump/a", 0, "x");
  const Fault two = fault("wrong-result", "dump/b", {}, "");
  const Baseline baseline = Baseline::parse(to_json(diagnosis({one, two})).dump()).value();
  const Diagnosis now = diagnosis({one});
  const std::vector<KnownFault> gone = baseline.gone({&now});
  ASSERT_EQ(gone.size(), 1U);
  EXPECT_EQ(to_string(gone.front()), "wrong-result in b");
  EXPECT_EQ(baseline.gone({}).size(), 2U);
}

TEST(Baseline, WhatIsNoDiagnosisIsRefused) {
  EXPECT_THAT(error(""), HasSubstr("no JSON object"));
  EXPECT_THAT(error("[1]"), HasSubstr("no JSON object"));
  EXPECT_THAT(error("{\"schema\": 1}"), HasSubstr("is of schema ''"));
  EXPECT_THAT(error(R"({"schema": "nanscope.why/1"})"), HasSubstr("is of schema 'nanscope.why/1', expected"));
  EXPECT_THAT(error(R"({"schema": "nanscope.diagnosis/2"})"), HasSubstr("no list of faults"));
  EXPECT_THAT(error(R"({"schema": "nanscope.diagnosis/2", "faults": [{"class": "saturation"}]})"),
              HasSubstr("faults[0] has no class and tensor"));
  EXPECT_THAT(error(R"({"schema": "nanscope.diagnosis/2", "faults": [7]})"), HasSubstr("faults[0]"));
  EXPECT_THAT(error(R"({"schema": "nanscope.diagnoses/1"})"), HasSubstr("no list of targets"));
  EXPECT_THAT(error(R"({"schema": "nanscope.diagnoses/1", "targets": [{"target": "x"}]})"),
              HasSubstr("targets[0]: no list of faults"));
  EXPECT_THAT(error(R"({"schema": "nanscope.diagnoses/1", "targets": [3]})"), HasSubstr("targets[0] is no object"));
}

}  // namespace
}  // namespace nanscope
