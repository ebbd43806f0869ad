/// `nanscope policies` on the flagship: what is measured layer by layer, what is answered when it is run again.
#include "scenarios/policy_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "scenarios/policy_source.h"
#include "scenarios/report/policies_page.h"
#include "scenarios/report/policies_report.h"

namespace nanscope::scenarios {
namespace {

using ::testing::HasSubstr;

const PolicyResult* find(const PolicyReport& made, std::string_view name) {
  const auto found = std::find_if(made.policies.begin(), made.policies.end(),
                                  [&](const PolicyResult& one) { return one.candidate.name == name; });
  return found == made.policies.end() ? nullptr : &*found;
}

Result<PolicyReport> on_flagship(std::initializer_list<std::string_view> names) {
  PolicySourceOptions opening;
  opening.target = std::string(NANSCOPE_SOURCE_DIR) + "/scenarios/kv-scale-lock.toml";
  const auto source = PolicySource::open(opening);
  if (!source) return tl::unexpected(source.error());
  PolicyOptions options;
  for (const PolicyCandidate& one : named_candidates()) {
    if (std::find(names.begin(), names.end(), one.name) != names.end()) options.candidates.push_back(one);
  }
  auto made = evaluate_policies((*source)->view(), options);
  if (!made) return made;
  EXPECT_NE((*source)->spec(), nullptr);
  if (Status run = run_policies(*(*source)->spec(), *made); !run) return tl::unexpected(run.error());
  return made;
}

/// The locked scale answers from NaN after the image, in three requests of five; see the scenario's own expectations.
TEST(PolicyAnswers, LockedScaleClipsAndAnswersOtherwise) {
  const auto made = on_flagship({"bf16", "vllm-locked", "vllm-int8-per-token-head", "fp8-ds-mla"});
  ASSERT_TRUE(made) << made.error().message;
  const PolicyResult& locked = *find(*made, "vllm-locked");
  const PolicyResult& int8 = *find(*made, "vllm-int8-per-token-head");
  EXPECT_GT(locked.clipped, 0.001);
  EXPECT_EQ(locked.layers[locked.worst].layer, 1);
  EXPECT_GT(locked.error, 10 * int8.error);
  EXPECT_EQ(int8.clipped, 0);
  EXPECT_EQ(locked.answer->same_answers, 2);
  for (const std::string_view name : {"bf16", "vllm-int8-per-token-head"}) {
    const PolicyAnswer& answer = *find(*made, name)->answer;
    EXPECT_EQ(answer.same_answers, 5) << name;
    EXPECT_EQ(answer.same_tokens, answer.tokens) << name;
    EXPECT_LT(answer.logit_error, 0.02) << name;
  }
  EXPECT_EQ(find(*made, "fp8-ds-mla")->problem, "it is for latent attention (MLA)");
  const auto late = std::find_if(made->claims.begin(), made->claims.end(),
                                 [](const PolicyClaim& one) { return one.name == "late-layers-safer"; });
  ASSERT_NE(late, made->claims.end());
  EXPECT_EQ(late->verdict, ClaimVerdict::confirmed);
  EXPECT_THAT(late->figures, HasSubstr("run again"));

  const auto json = nlohmann::json::parse(report::policies_json(*made, "x"));
  EXPECT_EQ(json["schema"], "nanscope.policies/1");
  EXPECT_EQ(json["policies"].size(), 4U);
  EXPECT_EQ(json["policies"][1]["answer"]["same_answers"], 2);
  const std::string csv = report::policies_csv(*made);
  const auto commas = [](std::string_view line) { return std::count(line.begin(), line.end(), ','); };
  for (std::size_t at = 0; at < csv.size(); at = csv.find('\n', at) + 1)
    EXPECT_EQ(commas(std::string_view(csv).substr(at, csv.find('\n', at) - at)), 12);
  EXPECT_THAT(report::policies_text(*made, "x", {}), HasSubstr("vllm-locked"));
  EXPECT_THAT(report::policies_section(*made), HasSubstr("<svg"));
}

TEST(PolicyAnswers, RunsThatTakeTooMuchAreNotMade) {
  PolicySourceOptions opening;
  opening.target = std::string(NANSCOPE_SOURCE_DIR) + "/scenarios/kv-scale-lock.toml";
  const auto source = PolicySource::open(opening);
  ASSERT_TRUE(source) << source.error().message;
  PolicyReport none;
  PolicyAnswerOptions options;
  options.limits.work = 1e6;
  const Status run = run_policies(*(*source)->spec(), none, options);
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().message, HasSubstr("replay-work"));
}

}  // namespace
}  // namespace nanscope::scenarios
