// Whether tokens depend on later ones: the leaky and the healthy forms of attention on blocks, by runs with a token
// changed and from one recording, and a mask that ends too late.
#include "scenarios/causality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/run/find_place.h"
#include "core/run/recording_view.h"
#include "instrument/diagnosis/why.h"
#include "scenarios/analysis.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"
#include "scenarios/report/causality_report.h"
#include "scenarios/scenario.h"

namespace nanscope::scenarios {
namespace {

/// leaky-mxfp4-values with settings, one layer.
RunSpec spec_with(const std::vector<std::string>& settings) {
  const auto scenario = load_scenario(NANSCOPE_SOURCE_DIR "/scenarios/leaky-mxfp4-values.toml");
  EXPECT_TRUE(scenario) << scenario.error().message;
  RunSpec spec = *resolve(*scenario);
  std::vector<std::string> all = settings;
  all.emplace_back("model.layers=1");
  const Status set = apply_settings(spec.config, all);
  EXPECT_TRUE(set) << set.error().message;
  return spec;
}

Workbench& bench() {
  static const std::unique_ptr<Workbench> made = *Workbench::open("cpu", 2);
  return *made;
}

Result<CausalityReport> check(const std::vector<std::string>& settings, const CausalityOptions& options) {
  return check_causality(bench(), spec_with(settings), options);
}

TEST(Causality, ValuesInBlocksAlongTokensLeakTheirSizeAndNotTheirSign) {
  CausalityOptions options;
  options.tokens = {40};
  const auto report = check({}, options);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->tile, 32);
  ASSERT_EQ(report->influences.size(), 4U);
  for (const Influence& one : report->influences) {
    // The norm before attention takes the size away, and a scale is of magnitudes.
    const bool seen = one.change == TokenChange::value || one.change == TokenChange::nan;
    ASSERT_EQ(one.leaks(), seen) << name(one.change);
    if (!seen) continue;
    EXPECT_EQ(one.born->op, "attn_mix");
    EXPECT_GE(one.born->first, 32);
    EXPECT_EQ(one.born->last, 39);
    ASSERT_TRUE(one.operand.has_value());
    EXPECT_EQ(one.operand->op, "v_quantise");
    for (const ChangedRow& row : one.rows)
      EXPECT_THAT(row.token, ::testing::AllOf(::testing::Ge(32), ::testing::Lt(40)));
    EXPECT_FALSE(one.rows.empty());
  }
  EXPECT_FALSE(report->gap.differ.empty());
  const auto json = nlohmann::json::parse(report::causality_json(*report, "x"));
  EXPECT_EQ(json["verdict"], "leaks");
  EXPECT_EQ(json["influences"][0]["block"], 1);
}

TEST(Causality, HoldsInBitsWhereTheDiagonalIsReadExactlyOrFromThePast) {
  CausalityOptions options;
  options.tokens = {31, 40};
  options.changes = {TokenChange::value, TokenChange::size, TokenChange::nan};
  for (const std::string setting :
       {"attention.diagonal=exact", "attention.diagonal=past", "attention.blocks_axis_v=channels"}) {
    const auto report = check({setting}, options);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_FALSE(report->found()) << setting << ": " << report->leaks() << " and " << report->gap.differ.size();
    EXPECT_EQ(report->gap.problem, "") << setting;
    EXPECT_EQ(report->gap.rows.size(), static_cast<std::size_t>(report->prompt));
  }
}

TEST(Causality, KeysAlongTokensLeakThroughScores) {
  CausalityOptions options;
  options.tokens = {40};
  options.changes = {TokenChange::value};
  const std::vector<std::string> keys = {"attention.blocks_axis_k=tokens", "attention.blocks_v="};
  const auto leaky = check(keys, options);
  ASSERT_TRUE(leaky) << leaky.error().message;
  ASSERT_TRUE(leaky->influences[0].leaks());
  EXPECT_EQ(leaky->influences[0].born->op, "scores");
  EXPECT_EQ(leaky->influences[0].operand->op, "k_quantise");
  const auto fixed = check({keys[0], keys[1], "attention.diagonal=exact"}, options);
  ASSERT_TRUE(fixed) << fixed.error().message;
  // Scores of quantized keys still differ; nothing is made of them.
  EXPECT_FALSE(fixed->found());
}

TEST(Causality, AMaskThatEndsTooLateIsNoOperands) {
  CausalityOptions options;
  options.tokens = {40};
  options.changes = {TokenChange::value};
  const auto report = check({"attention.diagonal=exact", "attention.causal=off_by_one"}, options);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_TRUE(report->influences[0].leaks());
  EXPECT_EQ(report->influences[0].born->op, "softmax");
  EXPECT_EQ(report->influences[0].born->first, 39);
  EXPECT_FALSE(report->influences[0].operand.has_value());
}

TEST(Causality, SaysWhatIsNotThere) {
  CausalityOptions options;
  options.tokens = {4000};
  const auto report = check({}, options);
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, ::testing::HasSubstr("there is no token 4000; the prompt has"));
  options.request = 7;
  EXPECT_EQ(check({}, options).error().message, "there is no request 7; the run has 1, from 0 on");
}

TEST(Causality, SettingsThatCannotBeAreRefused) {
  const auto refused = [](const std::string& setting) {
    RunSpec spec = spec_with({});
    const Status set = apply_settings(spec.config, std::vector{setting});
    return set ? std::string() : set.error().message;
  };
  EXPECT_THAT(refused("attention.blocks_v=mxfp5"), ::testing::HasSubstr("attention.blocks_v names no block format"));
  EXPECT_THAT(refused("attention.blocks_k=q4_0"), ::testing::HasSubstr("not rounded one by one"));
  EXPECT_THAT(refused("model.head_dim=16"), ::testing::HasSubstr("cross from head to head"));
  EXPECT_THAT(refused("attention.tile=48"), ::testing::HasSubstr("no multiple of 32"));
  EXPECT_THAT(refused("attention.mask=additive"), ::testing::HasSubstr("attention.mask must be select"));
  EXPECT_THAT(refused("attention.fused=true"), ::testing::HasSubstr("attention.fused must be false"));
}

/// What is said of one recording alone.
Analysis analysis_of(const std::vector<std::string>& settings) {
  RecordOptions options;
  options.capture = "all";
  const auto recorded = record(bench(), spec_with(settings), options);
  EXPECT_TRUE(recorded) << recorded.error().message;
  RecordingTensors tensors(recorded->recording);
  auto found = analyse(recorded->recording, tensors, "x");
  EXPECT_TRUE(found) << found.error().message;
  return *std::move(found);
}

TEST(LeakingBlocks, AreFoundInOneRecording) {
  const Diagnosis diagnosis = analysis_of({}).diagnosis;
  ASSERT_TRUE(diagnosis.root_cause.has_value());
  const Fault& fault = diagnosis.faults[*diagnosis.root_cause];
  EXPECT_EQ(fault.fault_class, "future-leakage");
  EXPECT_THAT(fault.tensor, ::testing::HasSubstr("v_quantise.scales"));
  EXPECT_THAT(fault.summary, ::testing::HasSubstr("under a scale that those decide on"));
  EXPECT_EQ(diagnosis.faults.size(), 1U);
}

TEST(LeakingBlocks, AreNotFoundWhereTheDiagonalDoesNotReadThem) {
  for (const std::string setting : {"attention.diagonal=exact", "attention.diagonal=past"}) {
    EXPECT_EQ(analysis_of({setting}).diagnosis.verdict(), Verdict::clean) << setting;
  }
}

TEST(Tiles, ThatARowDoesNotSeeAreNoFaultAndARowWithoutKeysIsOne) {
  EXPECT_EQ(analysis_of({"attention.diagonal=exact", "model.window=20"}).diagnosis.verdict(), Verdict::clean);
  const Diagnosis padded = analysis_of({"attention.diagonal=exact", "engine.pad=left"}).diagnosis;
  ASSERT_TRUE(padded.root_cause.has_value());
  EXPECT_EQ(padded.faults[*padded.root_cause].fault_class, "softmax-fully-masked");
}

TEST(LeakingBlocks, AreWalkedBackToTheLaterToken) {
  RecordOptions options;
  options.capture = "all";
  const auto recorded = record(bench(), spec_with({}), options);
  ASSERT_TRUE(recorded) << recorded.error().message;
  RecordingTensors tensors(recorded->recording);
  RecordingRun rows(recorded->recording);
  RecordingView run(rows, tensors);
  const auto place = find_place(run, "0/0/0/attn_mix.out[35]");
  ASSERT_TRUE(place) << place.error().message;
  // Of 64 channels some are of blocks that a later token owns.
  bool found = false;
  for (std::int64_t channel = 0; channel < 64 && !found; ++channel) {
    const auto path = why(run, {place->tensor->id, 35, channel});
    ASSERT_TRUE(path) << path.error().message;
    for (std::size_t i = 0; i + 1 < path->hops.size(); ++i) {
      const bool scale = path->hops[i].tensor.find("v_quantise.scales") != std::string::npos;
      found = found || (scale && path->hops[i + 1].tensor.find("v_read") != std::string::npos);
    }
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace nanscope::scenarios
