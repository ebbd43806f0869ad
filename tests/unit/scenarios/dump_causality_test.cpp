// What two runs that cannot be run again, or one, tell of later tokens.
#include "scenarios/dump_causality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/run/recording_view.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"
#include "scenarios/report/causality_report.h"
#include "scenarios/scenario.h"

namespace nanscope::scenarios {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kPrompt = 70;

/// A recording of leaky-mxfp4-values with one layer, of a prompt that has other ids from `changed` on.
class Twin {
 public:
  Twin(std::int64_t changed, const std::vector<std::string>& settings, std::int64_t tokens = kPrompt) {
    const auto scenario = load_scenario(NANSCOPE_SOURCE_DIR "/scenarios/leaky-mxfp4-values.toml");
    EXPECT_TRUE(scenario) << scenario.error().message;
    RunSpec spec = *resolve(*scenario);
    std::vector<std::string> all = settings;
    all.emplace_back("model.layers=1");
    const Status set = apply_settings(spec.config, all);
    EXPECT_TRUE(set) << set.error().message;
    TokensPart prompt;
    for (std::int64_t i = 0; i < tokens; ++i) prompt.ids.push_back(static_cast<std::int32_t>(10 + 7 * i % 90));
    for (std::int64_t i = changed; changed >= 0 && i < tokens; ++i)
      prompt.ids[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(200 + i);
    spec.requests.front().parts = {prompt};
    spec.requests.front().max_tokens = 1;
    RecordOptions options;
    options.capture = "all";
    const auto bench = *Workbench::open("cpu", 2);
    recorded_ = std::make_unique<Recorded>(*record(*bench, spec, options));
    tensors_ = std::make_unique<RecordingTensors>(recorded_->recording);
    rows_ = std::make_unique<RecordingRun>(recorded_->recording);
    view_ = std::make_unique<RecordingView>(*rows_, *tensors_);
  }
  RunView& view() { return *view_; }

 private:
  std::unique_ptr<Recorded> recorded_;
  std::unique_ptr<RecordingTensors> tensors_;
  std::unique_ptr<RecordingRun> rows_;
  std::unique_ptr<RecordingView> view_;
};

Result<TwinCausality> twins(std::int64_t changed, const std::vector<std::string>& settings) {
  Twin a(-1, settings);
  Twin b(changed, settings);
  return compare_twins(a.view(), b.view(), 0);
}

TEST(TwinCausality, NamesTheOperandAndTheFirstOutputThatKnowsOfALaterToken) {
  const auto made = twins(40, {});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->tokens, kPrompt);
  EXPECT_EQ(made->changed, 40);
  ASSERT_GE(made->outputs.size(), 2U);
  EXPECT_THAT(made->outputs[0].place, HasSubstr("/v_quantise.codes["));
  EXPECT_TRUE(made->outputs[0].operand);
  const auto first = std::find_if(made->outputs.begin(), made->outputs.end(), [](const auto& o) { return !o.operand; });
  ASSERT_NE(first, made->outputs.end());
  EXPECT_THAT(first->place, HasSubstr("/attn_mix.out["));
  // Of its own block of 32 alone.
  EXPECT_GE(first->first, 32);
  EXPECT_LT(first->last, 40);
  EXPECT_GT(first->largest, 0);
  const std::string text = report::twins_text(*made, "a", "b", {});
  EXPECT_THAT(text, HasSubstr("which differ from token 40 on"));
  EXPECT_THAT(report::twins_json(*made, "a", "b"), HasSubstr("\"verdict\": \"leaks\""));
}

TEST(TwinCausality, FindsNothingInCausalForms) {
  for (const std::string setting : {"attention.diagonal=exact", "attention.diagonal=past"}) {
    const auto made = twins(40, {setting});
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(made->leaks(), 0) << setting << ": " << made->outputs.front().place;
    EXPECT_GT(made->compared, 20) << setting;
  }
}

TEST(TwinCausality, OfAMaskThatKnowsWholeBlocksIsNoOperand) {
  const std::vector<std::string> block = {"attention.causal=block", "attention.blocks_q=", "attention.blocks_k=",
                                          "attention.blocks_v=", "attention.blocks_p="};
  const auto made = twins(40, block);
  ASSERT_TRUE(made) << made.error().message;
  ASSERT_FALSE(made->outputs.empty());
  EXPECT_THAT(made->outputs[0].place, HasSubstr("/softmax.probs[32"));
  EXPECT_EQ(made->outputs[0].last, 39);
}

TEST(TwinCausality, SaysWhatCannotBeCompared) {
  EXPECT_THAT(twins(-1, {}).error().message, HasSubstr("the prompts are the same"));
  EXPECT_THAT(twins(0, {}).error().message, HasSubstr("there is none before it"));
  Twin a(-1, {});
  Twin shorter(3, {}, kPrompt - 1);
  EXPECT_THAT(compare_twins(a.view(), shorter.view(), 0).error().message, HasSubstr("have 70 tokens and 69 tokens"));
  EXPECT_THAT(compare_twins(a.view(), shorter.view(), 4).error().message, HasSubstr("no pass over several tokens"));
}

TEST(SeenCausality, IsWhatADiagnosisSays) {
  Analysis analysis;
  analysis.diagnosis.checks = {{"future-leakage", Checked::not_in_dump, "no probabilities were dumped"}};
  EXPECT_THAT(seen_causality(analysis).error().message,
              HasSubstr("no probabilities were dumped; or give another dump"));
  analysis.diagnosis.checks[0].state = Checked::excluded;
  ASSERT_TRUE(seen_causality(analysis));
  EXPECT_TRUE(seen_causality(analysis)->leaks.empty());
  Fault fault;
  fault.fault_class = "future-leakage";
  fault.tensor = "layers.0.probs";
  analysis.diagnosis.faults = {fault, Fault{}};
  EXPECT_EQ(seen_causality(analysis)->leaks.size(), 1U);
  EXPECT_THAT(report::seen_text(*seen_causality(analysis), "x", {}), HasSubstr("layers.0.probs"));
}

}  // namespace
}  // namespace nanscope::scenarios
