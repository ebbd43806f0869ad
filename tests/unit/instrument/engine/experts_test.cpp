/// A mixture of experts in the engine: what is recorded is what was added up.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "engine_rig.h"

namespace nanscope::testing {
namespace {

const char* const kExpertText = "A storm rises over the sea.";

std::vector<std::int32_t> integers(const Seen& seen) {
  std::vector<std::int32_t> values(seen.bytes.size() / sizeof(std::int32_t));
  std::memcpy(values.data(), seen.bytes.data(), seen.bytes.size());
  return values;
}

EngineConfig experts_config(const Knobs& changes = {}) {
  Knobs knobs{{"model.experts", "3"}, {"model.experts_per_token", "2"}};
  knobs.insert(knobs.end(), changes.begin(), changes.end());
  return tiny_config(knobs);
}

TEST(Experts, TheSumIsThatOfTheChosen) {
  const CollectProbe seen = collect(experts_config(), {text_request(kExpertText, 2)});
  for (const std::int64_t step : {0, 1}) {
    const Seen& weights = seen.find(0, step, 1, "route", "weights");
    const std::vector<std::int32_t> ids = integers(seen.find(0, step, 1, "route", "ids"));
    const std::vector<float> sum = seen.find(0, step, 1, "expert_mix", "out").floats();
    std::vector<std::vector<float>> experts;
    for (const char* name : {"expert0_down_proj", "expert1_down_proj", "expert2_down_proj"}) {
      experts.push_back(seen.find(0, step, 1, name, "out").floats());
    }
    ASSERT_EQ(weights.columns, 2);
    for (std::int64_t token = 0; token < weights.rows; ++token) {
      const std::vector<float> own = weights.row(token);
      EXPECT_NEAR(own[0] + own[1], 1.0F, 1e-6F);
      for (std::int64_t i = 0; i < 32; ++i) {
        float chain = 0;
        for (std::size_t j = 0; j < 2; ++j) {
          const auto expert = static_cast<std::size_t>(ids[static_cast<std::size_t>(token) * 2 + j]);
          chain = std::fma(own[j], experts.at(expert)[static_cast<std::size_t>(token * 32 + i)], chain);
        }
        ASSERT_EQ(sum[static_cast<std::size_t>(token * 32 + i)], chain) << token << " " << i;
      }
    }
  }
}

TEST(Experts, TheValueOfAChoiceChangesWeightsAlone) {
  const std::vector<RequestSpec> requests{text_request(kExpertText)};
  const CollectProbe gates = collect(experts_config(), requests);
  const CollectProbe rounded = collect(experts_config({{"moe.weights", "choice_minus_bias"}}), requests);
  EXPECT_EQ(gates.ops, rounded.ops);
  EXPECT_EQ(gates.find(0, 0, 0, "route", "ids").bytes, rounded.find(0, 0, 0, "route", "ids").bytes);
  EXPECT_NE(gates.find(0, 0, 0, "route", "weights").bytes, rounded.find(0, 0, 0, "route", "weights").bytes);
}

TEST(Experts, ADenseModelHasNeitherRouterNorExperts) {
  const CollectProbe seen = collect(tiny_config(), {text_request(kExpertText)});
  for (const std::string& op : seen.ops) {
    EXPECT_EQ(op.find("expert"), std::string::npos) << op;
    EXPECT_NE(op, "router");
  }
}

}  // namespace
}  // namespace nanscope::testing
