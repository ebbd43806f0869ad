// A healthy run under every KV policy is clean, replays, and its cache is computed again without a deviation; the
// failures that policies are known for are scenarios of the library.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "instrument/kv_schemes/kv_scheme.h"
#include "scenarios/replay.h"
#include "scenarios/runner.h"
#include "scenarios/scenario.h"
#include "tests/temporary_folder.h"

namespace nanscope::scenarios {
namespace {

namespace fs = std::filesystem;

/// Two prompts of the reference model, decoded past the windows of most policies.
Scenario healthy(std::string_view policy) {
  Scenario scenario;
  scenario.has_file = false;
  scenario.name = "healthy";
  scenario.knobs = {{"kv.tail", "skip", ""}, {"kv.scheme", std::string(policy), ""}};
  for (const auto& [name, value] : {std::pair("weights", "random"),
                                    {"layers", "4"},
                                    {"width", "64"},
                                    {"heads", "2"},
                                    {"kv_heads", "2"},
                                    {"head_dim", "32"},
                                    {"mlp_width", "64"},
                                    {"patch_size", "1"}}) {
    scenario.knobs.push_back({std::string("model.") + name, value, ""});
  }
  ScenarioRequest first;
  first.name = "text";
  first.parts.resize(1);
  first.parts[0].text =
      "Every evening the old keeper lights the great lamp, and every morning he counts the boats that came home over "
      "the "
      "dark water.";
  first.max_tokens = 6;
  ScenarioRequest second;
  second.name = "other";
  second.parts.resize(1);
  second.parts[0].text =
      "Moons pull tides, tides turn wheels, wheels drive machines, machines feed towns, towns light lamps.";
  second.max_tokens = 3;
  scenario.requests = {first, second};
  return scenario;
}

std::string faults_of(const Analysis& analysis) {
  std::string text;
  for (const Fault& fault : analysis.diagnosis.faults) text += fault.fault_class + ": " + fault.summary + '\n';
  return text;
}

TEST(EveryKvPolicy, IsCleanWhereTheModelIsHealthy) {
  const TemporaryFolder folder;
  for (const KvPolicy& policy : kv_policies()) {
    if (!policy.needs.empty()) continue;
    RunnerOptions options;
    options.output = folder / (std::string(policy.name) + ".nanscope");
    const auto run = run_scenario(healthy(policy.name), options);
    ASSERT_TRUE(run) << policy.name << ": " << run.error().message;
    EXPECT_EQ(faults_of(run->analysis), "") << policy.name;
  }
}

TEST(EveryKvPolicy, ReplaysBitForBit) {
  const TemporaryFolder folder;
  for (const char* policy : {"kivi-2", "vllm-int4-per-token-head", "kvquant-like", "sglang-nvfp4"}) {
    RunnerOptions options;
    options.output = folder / (std::string(policy) + ".nanscope");
    const Scenario scenario = healthy(policy);
    const auto bench = workbench_for(scenario, options).value();
    ASSERT_TRUE(run_scenario(*bench, scenario, options)) << policy;
    const auto replayed = replay(*bench, Recording::open(options.output).value());
    ASSERT_TRUE(replayed) << policy;
    EXPECT_TRUE(replayed->same()) << policy << (replayed->divergence ? replayed->divergence->place : "");
    EXPECT_EQ(replayed->verified, replayed->tensors);
  }
}

/// The flagship's server with its cache said as a policy: the same fault by the same links, with the same answers.
TEST(EveryKvPolicy, VllmsLockedScaleIsTheFlagship) {
  const TemporaryFolder folder;
  Scenario scenario = load_scenario(fs::path(NANSCOPE_SOURCE_DIR) / "scenarios" / "kv-scale-lock.toml").value();
  std::erase_if(scenario.knobs,
                [](const KnobSetting& knob) { return knob.name == "kv.format" || knob.name == "kv.policy"; });
  scenario.knobs.push_back({"kv.scheme", "vllm-locked", ""});
  scenario.expect.hash.reset();  // scales are tensors here
  RunnerOptions options;
  options.output = folder / "locked.nanscope";
  const auto run = run_scenario(scenario, options);
  ASSERT_TRUE(run) << run.error().message;
  for (const Missed& missed : run->missed) ADD_FAILURE() << missed.what << ": " << missed.found;
}

}  // namespace
}  // namespace nanscope::scenarios
