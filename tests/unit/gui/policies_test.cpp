#include "gui/prepare/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "gui/prepare/beside.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"
#include "scenarios/scenario.h"
#include "tests/temporary_folder.h"
#include "tests/unit/gui/built_view.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::gui::policies_test {
namespace {

namespace fs = std::filesystem;
using nanscope::testing::RunBuilder;
using ::testing::HasSubstr;

/// Largest values of the tokens of each step.
using Steps = std::vector<std::vector<float>>;

/// Requests with their steps, k alone, stored as e4m3 under a scale of 0.01.
RunBuilder run_of(const std::vector<Steps>& requests, std::int64_t layer = 0) {
  RunBuilder builder;
  for (std::size_t id = 0; id < requests.size(); ++id) {
    const auto request = static_cast<std::int64_t>(id);
    builder.request(request, {1});
    std::int64_t position = 0;
    for (std::size_t index = 0; index < requests[id].size(); ++index) {
      const std::vector<float>& tokens = requests[id][index];
      const auto count = static_cast<std::int64_t>(tokens.size());
      builder.step(request, static_cast<std::int64_t>(index), position, count);
      builder.op(layer, "k_proj", "gemm", {});
      const std::int64_t k =
          builder.output("out", {count, 2, position, 1}, [&](std::int64_t row, std::int64_t channel) {
            const float value = tokens[static_cast<std::size_t>(row)];
            return channel == 0 ? -value : value / 2;
          });
      builder.op(layer, "kv_store", "kv_store", {{"k", k}});
      ScaleRow scale;
      scale.policy = "static";
      scale.scale = 0.01;
      scale.source = ScaleSource::fixed;
      builder.store("k", k, scale);
      position += count;
    }
  }
  return builder;
}

KvConfig config_of(const std::string& policy = "static") {
  KvConfig config;
  config.format = Format::e4m3;
  config.policy = policy;
  config.scale_k = 0.01F;
  return config;
}

std::map<std::string, PolicyLine> compared(RunBuilder& builder, const KvConfig& config = config_of()) {
  const Result<Ledger> ledger = make_ledger(BuiltView(builder));
  EXPECT_TRUE(ledger);
  const Result<PolicyComparison> made = compare_policies(BuiltView(builder), *ledger, 0, config);
  EXPECT_TRUE(made) << made.error().message;
  std::map<std::string, PolicyLine> by_name;
  for (const PolicyLine& line : made->policies) by_name[line.name] = line;
  return by_name;
}

// Request 0: a prefill of 2 and 1, a decode step of 4. Request 1: a prefill of 20 and 1, a decode step of 5.
const std::vector<Steps> kRun = {{{2, 1}, {4}}, {{20, 1}, {5}}};

TEST(Policies, LockedKeepsTheFirstScale) {
  RunBuilder builder = run_of(kRun);
  const PolicyLine line = compared(builder).at("locked");
  ASSERT_EQ(line.entries.size(), 4U);
  for (const PolicyEntry& entry : line.entries) EXPECT_FLOAT_EQ(static_cast<float>(entry.scale), 0.01F) << "2 / 200";
  EXPECT_EQ(line.lowest, 2U);
  EXPECT_NEAR(line.entries[2].headroom, 448 * 0.01 / 20, 1e-6);
  EXPECT_NEAR(line.entries[2].limit, 4.48, 1e-6);
  EXPECT_EQ(line.entries[2].clipped_tokens, 1);
  EXPECT_EQ(line.clipped_tokens, 2) << "20 and 5 are beyond 4.48";
  EXPECT_EQ(line.clipped_steps, 2);
  EXPECT_TRUE(line.exact);
  EXPECT_EQ(clipped_words(line, 6), "2 of 6 tokens");
}

TEST(Policies, PerRequestTakesEachPrefill) {
  RunBuilder builder = run_of(kRun);
  const PolicyLine line = compared(builder).at("per_request");
  EXPECT_NEAR(line.entries[1].scale, 0.01, 1e-8);
  EXPECT_NEAR(line.entries[3].scale, 0.1, 1e-8) << "20 / 200";
  EXPECT_EQ(line.clipped_tokens, 0);
  EXPECT_EQ(line.lowest, 1U) << "4 under 4.48, where the prefill had 2";
  EXPECT_NEAR(line.least_scale, 0.01, 1e-8);
  EXPECT_NEAR(line.largest_scale, 0.1, 1e-8);
}

TEST(Policies, PerTokenGivesEachItsOwn) {
  RunBuilder builder = run_of(kRun);
  const PolicyLine line = compared(builder).at("per_token");
  EXPECT_NEAR(line.entries[2].scale, 20.0 / 448, 1e-8);
  for (const PolicyEntry& entry : line.entries) EXPECT_NEAR(entry.headroom, 1, 1e-6);
  RunBuilder rising = run_of({{{1, 20}}});
  EXPECT_NEAR(compared(rising).at("per_token").entries[0].headroom, 1, 1e-6) << "not the first token's for both";
}

TEST(Policies, TheLargestFiniteValueItselfDoesNotClip) {
  RunBuilder builder = run_of({{{448, 449}}});
  const PolicyLine line = compared(builder).at("unit_scale");
  EXPECT_EQ(line.clipped_tokens, 1);
}

TEST(Policies, AutoAndStaticAreWhatTheConfigurationSays) {
  RunBuilder builder = run_of(kRun);
  const auto lines = compared(builder);
  EXPECT_EQ(lines.at("unit_scale").least_scale, 1);
  EXPECT_NEAR(lines.at("unit_scale").entries[2].headroom, 448.0 / 20, 1e-6);
  EXPECT_FALSE(lines.at("unit_scale").recorded);
  EXPECT_TRUE(lines.at("static").recorded);
  EXPECT_FLOAT_EQ(static_cast<float>(lines.at("static").largest_scale), 0.01F);
  EXPECT_EQ(lines.at("static").clipped_tokens, 2);
}

TEST(Policies, WithoutSingleTokensThereAreBounds) {
  RunBuilder builder = run_of(kRun);
  builder.run.detail.clear();
  const auto lines = compared(builder);
  const PolicyLine& locked = lines.at("locked");
  EXPECT_FALSE(locked.exact);
  EXPECT_EQ(locked.clipped_tokens, 3) << "both tokens of the prefill with the 20, and the 5";
  EXPECT_EQ(clipped_words(locked, 6), "at most 3 of 6 tokens");
  EXPECT_TRUE(lines.at("per_request").exact) << "nothing clips: that is certain";
  EXPECT_THAT(lines.at("per_token").problem, HasSubstr("not recorded"));
  EXPECT_TRUE(lines.at("per_token").entries.empty());
}

TEST(Policies, AScaleFromNanIsNan) {
  RunBuilder builder = run_of({{{2, 1}}, {{3, kNotANumber}, {5}}});
  const auto lines = compared(builder);
  const PolicyLine& per_request = lines.at("per_request");
  EXPECT_EQ(per_request.nan_steps, 2);
  EXPECT_EQ(per_request.lowest, 0U);
  EXPECT_EQ(lines.at("locked").nan_steps, 0) << "calibrated before";
  EXPECT_EQ(lines.at("locked").lowest, 2U) << "a NaN says nothing of headroom";
}

TEST(Policies, NothingButZerosHasAllHeadroom) {
  RunBuilder builder = run_of({{{0, 0}}});
  const auto lines = compared(builder);
  EXPECT_EQ(lines.at("per_token").entries[0].scale, 1);
  EXPECT_TRUE(std::isinf(lines.at("static").entries[0].headroom));
  EXPECT_EQ(lines.at("locked").clipped_tokens, 0) << "0 / 0 clips nothing";
}

TEST(Policies, TheLineOfASelection) {
  RunBuilder builder = run_of(kRun);
  for (ScaleRow& row : builder.run.scale_rows) row.target = row.step > 2 ? "v" : "k";
  const Ledger ledger = *make_ledger(BuiltView(builder));
  ASSERT_EQ(ledger.lines.size(), 2U);
  EXPECT_EQ(line_of(ledger, ledger.entries[0].target), 0U);
  EXPECT_EQ(line_of(ledger, ledger.entries[3].target), 1U);
  EXPECT_EQ(line_of(ledger, {}), 1U) << "the one with the least headroom";
}

TEST(Policies, FewColumnsDropNoClipAndNoNan) {
  Steps many(400, {1});
  many[123] = {20};  // beyond 448 x 0.01
  many[301] = {kNotANumber};
  RunBuilder builder = run_of({many});
  const Ledger ledger = *make_ledger(BuiltView(builder));
  const PolicyComparison compared = *compare_policies(BuiltView(builder), ledger, 0, config_of());
  for (const std::size_t columns : {1U, 3U, 64U, 399U, 4000U}) {
    const ScaleColumns made = make_columns(ledger, &compared, columns);
    ASSERT_EQ(made.lines.size(), 1U);
    ASSERT_EQ(made.lines[0].size(), std::min<std::size_t>(columns, 400));
    ASSERT_EQ(made.limits.size(), compared.policies.size());
    EXPECT_EQ(made.limits[0].size(), made.lines[0].size());
    const std::size_t clip = 123 * made.lines[0].size() / 400;
    const std::size_t nan = 301 * made.lines[0].size() / 400;
    EXPECT_EQ(made.lines[0][clip].worst, 123U) << columns;
    EXPECT_EQ(made.lines[0][clip].absmax, 20) << columns;
    EXPECT_TRUE(made.lines[0][nan].nan) << columns;
  }
  EXPECT_EQ(make_columns(ledger, nullptr, 8).limits.size(), 0U);
}

/// The flagship, and its counterfactual under another policy.
class PoliciesOfARun : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = std::make_unique<TemporaryFolder>();
    const auto scenario = scenarios::load_scenario(fs::path(NANSCOPE_SOURCE_DIR) / "scenarios/kv-scale-lock.toml");
    ASSERT_TRUE(scenario) << scenario.error().message;
    const auto spec = scenarios::resolve(*scenario);
    const auto bench = scenarios::Workbench::open(spec->config);
    ASSERT_TRUE(scenarios::record(**bench, *spec, {.path = *folder / "run.nanscope", .control = {}}));
  }
  static void TearDownTestSuite() { folder.reset(); }

  static PolicyLine line_of_policy(const Recording& recording, const Ledger& ledger, std::size_t line,
                                   const std::string& policy) {
    RecordingRun rows(recording);
    BuiltView run(rows);
    const auto made = compare_policies(run, ledger, line, scenarios::run_spec_of(recording)->config.kv);
    EXPECT_TRUE(made) << made.error().message;
    for (const PolicyLine& each : made->policies) {
      if (each.name == policy) return each;
    }
    ADD_FAILURE() << "no policy " << policy;
    return {};
  }

  static inline std::unique_ptr<TemporaryFolder> folder;
};

TEST_F(PoliciesOfARun, ItsOwnPolicyGivesItsOwnLedgerAgain) {
  const Recording recording = *Recording::open(*folder / "run.nanscope");
  RecordingRun rows(recording);
  BuiltView run(rows);
  const Ledger ledger = *make_ledger(run);
  for (std::size_t line = 0; line < ledger.lines.size(); ++line) {
    const PolicyLine locked = line_of_policy(recording, ledger, line, "locked");
    EXPECT_TRUE(locked.recorded);
    ASSERT_EQ(locked.entries.size(), ledger.lines[line].entries.size());
    for (const PolicyEntry& entry : locked.entries) {
      const LedgerEntry& recorded = ledger.entries[entry.entry];
      EXPECT_EQ(entry.scale, recorded.row.scale);
      EXPECT_EQ(entry.clipped_tokens > 0, recorded.clipped > 0) << to_string(recorded.target.place);
      if (recorded.nan > 0) continue;
      EXPECT_EQ(entry.headroom, recorded.row.headroom);
    }
  }
}

TEST_F(PoliciesOfARun, AnotherOnesLedgerIsForetoldWhereTheValuesAreTheSame) {
  for (const std::string policy : {"per_request", "per_token"}) {
    const auto other = run_changed(*folder / "run.nanscope", {"kv.policy=" + policy}, {}, [](const JobProgress&) {});
    ASSERT_TRUE(other) << other.error().message;
    const Recording recording = *Recording::open(*folder / "run.nanscope");
    const Recording there = *Recording::open((*other)->path);
    RecordingRun rows(recording);
    RecordingRun rows_there(there);
    BuiltView run(rows);
    BuiltView run_there(rows_there);
    const Ledger ledger = *make_ledger(run);
    const Ledger ledger_there = *make_ledger(run_there);
    const PolicyLine foretold = line_of_policy(recording, ledger, 0, policy);
    int same = 0;
    for (const PolicyEntry& entry : foretold.entries) {
      const auto found = ledger_there.find(ledger.entries[entry.entry].target);
      ASSERT_TRUE(found);
      const ScaleRow& row = ledger_there.entries[*found].row;
      if (row.absmax != ledger.entries[entry.entry].row.absmax) continue;  // other tokens are decoded there
      EXPECT_EQ(entry.scale, row.scale) << policy;
      ++same;
    }
    EXPECT_GE(same, 19) << "the prefills, and the decoding of two healthy requests";
  }
}

}  // namespace
}  // namespace nanscope::gui::policies_test
