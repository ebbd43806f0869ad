// Whether tokens depend on later ones: the leaky and the healthy forms of attention on blocks, by runs with a token
// changed and from one recording, and a mask that ends too late.
#include "scenarios/causality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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
#include "scenarios/report/influence_picture.h"
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

/// Of all tokens, with their values changed to another's.
Result<CausalityReport> map_of(const std::vector<std::string>& settings) {
  CausalityOptions options;
  options.every = true;
  options.map = true;
  options.changes = {TokenChange::value};
  return check(settings, options);
}

TEST(InfluenceMap, ShowsALeakWithinEachBlockAndEverythingEarlier) {
  const auto report = map_of({});
  ASSERT_TRUE(report) << report.error().message;
  const InfluenceMap map = influence_map(*report);
  ASSERT_EQ(map.tokens, report->prompt);
  ASSERT_EQ(map.moved.size(), static_cast<std::size_t>(map.tokens * map.tokens));
  std::int64_t leaks = 0;
  for (std::int64_t row = 0; row < map.tokens; ++row) {
    for (std::int64_t column = 0; column < map.tokens; ++column) {
      const float moved = map.at(row, column);
      if (column <= row) continue;
      leaks += moved > 0 ? 1 : 0;
      EXPECT_TRUE(moved == 0 || column / 32 == row / 32) << row << " " << column;
    }
    EXPECT_GT(map.at(row, row), 0) << row;
    EXPECT_GT(map.at(row, 0), 0) << row;
  }
  EXPECT_GT(leaks, 0);
  EXPECT_EQ(map.leaks(), leaks);
}

TEST(InfluenceMap, HasNothingAboveTheDiagonalInACausalForm) {
  RunSpec spec = spec_with({});
  const std::vector<CausalForm> forms = causal_forms(spec.config);
  ASSERT_EQ(forms.size(), 2U);
  EXPECT_EQ(forms[0].text(), "attention.diagonal=exact");
  EXPECT_EQ(forms[1].text(), "attention.blocks_q= attention.blocks_k= attention.blocks_v= attention.blocks_p=");
  for (const CausalForm& form : forms) {
    const auto report = map_of(form.settings);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(influence_map(*report).leaks(), 0) << form.text();
    EXPECT_FALSE(report->found()) << form.text();
  }
}

TEST(InfluenceMap, OfAMaskThatEndsOneKeyTooLateIsOneDiagonalHigher) {
  std::vector<std::string> settings = causal_forms(spec_with({}).config)[1].settings;
  settings.emplace_back("attention.causal=off_by_one");
  const auto report = map_of(settings);
  ASSERT_TRUE(report) << report.error().message;
  const InfluenceMap map = influence_map(*report);
  for (std::int64_t row = 0; row < map.tokens; ++row) {
    for (std::int64_t column = row + 1; column < map.tokens; ++column) {
      EXPECT_EQ(map.at(row, column) > 0, column == row + 1) << row << " " << column;
    }
  }
  EXPECT_EQ(map.leaks(), map.tokens - 1);
}

TEST(InfluenceMap, OfTokensThatWereNotChangedIsEmpty) {
  CausalityOptions options;
  options.tokens = {40};
  options.map = true;
  options.changes = {TokenChange::sign};
  const auto report = check({}, options);
  ASSERT_TRUE(report) << report.error().message;
  const InfluenceMap map = influence_map(*report);
  EXPECT_TRUE(std::isnan(map.at(0, 39)));
  EXPECT_EQ(map.at(39, 40), 0);
  EXPECT_GT(map.at(40, 40), 0);
  EXPECT_EQ(map.leaks(), 0);
}

TEST(CausalForms, MendWhatIsKnownToLeak) {
  EXPECT_TRUE(causal_forms({}).empty());
  EngineConfig config;
  config.attention.causal = CausalMask::none;
  config.kv.policy = "locked";
  config.kv.format = Format::e4m3;
  const std::vector<CausalForm> forms = causal_forms(config);
  ASSERT_EQ(forms.size(), 1U);
  EXPECT_EQ(forms[0].text(), "attention.causal=exact kv.policy=per_token");
}

TEST(InfluenceFiles, HoldTheMap) {
  InfluenceMap map;
  map.tokens = 3;
  map.moved = {1, 0.5F, std::nanf(""), 0.25F, 2, std::nanf(""), 0, HUGE_VALF, std::nanf("")};
  EXPECT_EQ(report::influence_csv(map), "token,0,1,2\n0,1,0.5,\n1,0.25,2,\n2,0,inf,\n");
  EXPECT_EQ(map.leaks(), 1);
  const Image image = report::influence_picture(map, "three tokens");
  ASSERT_EQ(image.rgb.size(), static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height) * 3);
  const auto at = [&](int row, int column) {
    const std::size_t pixel = static_cast<std::size_t>((44 + row * 12 + 6) * image.width + 36 + column * 12 + 6) * 3;
    return std::vector<int>{image.rgb[pixel], image.rgb[pixel + 1], image.rgb[pixel + 2]};
  };
  EXPECT_GT(at(0, 1)[0], at(0, 1)[2]);  // a leak is red
  EXPECT_LT(at(1, 0)[0], at(1, 0)[2]);  // what is earlier is blue
  EXPECT_EQ(at(0, 2), (std::vector<int>{255, 255, 255}));
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

TEST(InfluenceMap, OfAMaskThatKnowsWholeBlocksIsOfWholeBlocks) {
  std::vector<std::string> settings = causal_forms(spec_with({}).config)[1].settings;
  settings.emplace_back("attention.causal=block");
  settings.emplace_back("model.window=20");
  const auto report = map_of(settings);
  ASSERT_TRUE(report) << report.error().message;
  const InfluenceMap map = influence_map(*report);
  for (std::int64_t row = 0; row < map.tokens; ++row) {
    for (std::int64_t column = 0; column < map.tokens; ++column) {
      const bool later = column > row && column / 32 == row / 32;
      const bool earlier = column <= row && row - column < 20;
      EXPECT_EQ(map.at(row, column) > 0, later || earlier) << row << " " << column;
    }
  }
  EXPECT_FALSE(report->influences.back().operand.has_value());
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

TEST(LeakingBlocks, OfPaddingAreFoundInWhateverTile) {
  const std::vector<std::string> padded = {"attention.diagonal=exact", "engine.pad=left", "attention.zero_guard=true"};
  const Diagnosis found = analysis_of(padded).diagnosis;
  ASSERT_TRUE(found.root_cause.has_value());
  const Fault& fault = found.faults[*found.root_cause];
  EXPECT_EQ(fault.fault_class, "future-leakage");
  EXPECT_THAT(fault.summary, ::testing::HasSubstr("under a scale that hidden rows, which pad the prompt, decide on"));
  EXPECT_THAT(fault.tensor, ::testing::HasSubstr("v_quantise.scales"));
  // Blocks along the channels hold one row each.
  std::vector<std::string> channels = padded;
  channels.emplace_back("attention.blocks_axis_v=channels");
  EXPECT_TRUE(analysis_of(channels).diagnosis.healthy());
}

TEST(LeakingBlocks, AreNotFoundWhereTheDiagonalDoesNotReadThem) {
  for (const std::string setting : {"attention.diagonal=exact", "attention.diagonal=past"}) {
    EXPECT_TRUE(analysis_of({setting}).diagnosis.healthy()) << setting;
  }
}

TEST(Tiles, ThatARowDoesNotSeeAreNoFaultAndARowWithoutKeysIsOne) {
  EXPECT_TRUE(analysis_of({"attention.diagonal=exact", "model.window=20"}).diagnosis.healthy());
  const Diagnosis padded = analysis_of({"attention.diagonal=exact", "engine.pad=left"}).diagnosis;
  const auto of_class = [&padded](const std::string& name) {
    return std::any_of(padded.faults.begin(), padded.faults.end(),
                       [&name](const Fault& fault) { return fault.fault_class == name; });
  };
  EXPECT_TRUE(of_class("softmax-fully-masked"));
  // The rows without keys share a block of values with the first tokens.
  EXPECT_TRUE(of_class("future-leakage"));
}

/// Whether a walk from one of an output's channels at token 35 goes from a scale of `quantise` to `source`, at a later
/// token of the same block.
bool walks_back(const std::vector<std::string>& settings, const std::string& output, const std::string& quantise,
                const std::string& source) {
  RecordOptions options;
  options.capture = "all";
  const auto recorded = record(bench(), spec_with(settings), options);
  EXPECT_TRUE(recorded) << recorded.error().message;
  RecordingTensors tensors(recorded->recording);
  RecordingRun rows(recorded->recording);
  RecordingView run(rows, tensors);
  const auto place = find_place(run, output + "[35]");
  EXPECT_TRUE(place) << place.error().message;
  for (std::int64_t channel = 0; channel < std::min<std::int64_t>(place->tensor->channels, 64); ++channel) {
    const auto path = why(run, {place->tensor->id, 35, channel});
    EXPECT_TRUE(path) << path.error().message;
    for (std::size_t i = 0; i + 1 < path->hops.size(); ++i) {
      if (path->hops[i].tensor.find(quantise) == std::string::npos) continue;
      const Hop& to = path->hops[i + 1];
      const std::int64_t token = to.where.tokens ? to.where.tokens->first : -1;
      if (to.tensor.find(source) != std::string::npos && token > 35 && token < 64) return true;
    }
  }
  return false;
}

TEST(LeakingBlocks, AreWalkedBackToTheLaterToken) {
  // Of 64 channels some are of blocks that a later token owns.
  EXPECT_TRUE(walks_back({}, "0/0/0/attn_mix.out", "v_quantise.scales", "v_read"));
  const std::vector<std::string> keys{"attention.blocks_axis_k=tokens", "attention.blocks_v="};
  EXPECT_TRUE(walks_back(keys, "0/0/0/scores.out", "k_quantise.scales", "k_read"));
  EXPECT_TRUE(walks_back(keys, "0/0/0/softmax.probs", "k_quantise.scales", "k_read"));
  EXPECT_TRUE(walks_back(keys, "0/0/0/attn_mix.out", "k_quantise.scales", "k_read"));
  EXPECT_FALSE(walks_back({"attention.diagonal=exact"}, "0/0/0/attn_mix.out", "v_quantise.scales", "v_read"));
}

}  // namespace
}  // namespace nanscope::scenarios
