#include "instrument/engine/knobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace nanscope {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> listed(std::string allowed) {
  std::vector<std::string> values(1);
  for (const char c : allowed) {
    if (c == '|') {
      values.emplace_back();
    } else {
      values.back() += c;
    }
  }
  return values;
}

TEST(Knobs, DefaultsAreThoseOfAHealthyDeployment) {
  const EngineConfig config;
  const std::vector<std::pair<std::string, std::string>> expected{{"model.layers", "4"},
                                                                  {"model.width", "256"},
                                                                  {"model.kv_heads", "4"},
                                                                  {"model.norm", "layer_norm"},
                                                                  {"model.norm_placement", "pre"},
                                                                  {"model.mlp", "swiglu"},
                                                                  {"model.rope_base", "10000"},
                                                                  {"model.recurrent_layers", ""},
                                                                  {"rope.scaling", "none"},
                                                                  {"rope.trained", "2048"},
                                                                  {"model.weights", "reference"},
                                                                  {"norm.variance", "two_pass"},
                                                                  {"norm.order", "warp"},
                                                                  {"norm.eps", "1e-05"},
                                                                  {"inner_norm.variance", ""},
                                                                  {"kv.format", "bf16"},
                                                                  {"kv.policy", "unit_scale"},
                                                                  {"kv.divisor_k", "200"},
                                                                  {"kv.divisor_v", "100"},
                                                                  {"kv.overflow", "saturate"},
                                                                  {"kv.clamp_nan", "propagate"},
                                                                  {"kv.read_scale", "once"},
                                                                  {"kv.read_format", ""},
                                                                  {"kv.sleep_after", "0"},
                                                                  {"kv.wake", "restored"},
                                                                  {"kv.resume_state", "own"},
                                                                  {"kv.tail", "read"},
                                                                  {"kv.reuse", "lifo"},
                                                                  {"attention.mask", "select"},
                                                                  {"attention.causal", "exact"},
                                                                  {"attention.zero_guard", "false"},
                                                                  {"activation.partial_sums", "f32"},
                                                                  {"engine.kernel_form", "exact"},
                                                                  {"model.experts", "0"},
                                                                  {"moe.weights", "gate"},
                                                                  {"engine.pad", "none"},
                                                                  {"activation.format", "f32"},
                                                                  {"engine.argmax_nan", "first_greater"}};
  for (const auto& [name, value] : expected) EXPECT_EQ(get_knob(config, name), value) << name;
}

TEST(Knobs, EveryListedValueIsTakenAndReadBack) {
  for (const Knob& knob : knobs()) {
    if (knob.allowed.find('|') == std::string::npos) continue;
    for (const std::string& value : listed(knob.allowed)) {
      EngineConfig config;
      ASSERT_TRUE(set_knob(config, knob.name, value)) << knob.name << "=" << value;
      EXPECT_EQ(get_knob(config, knob.name), value) << knob.name;
    }
  }
}

TEST(Knobs, EveryKnobHasANameOfItsOwnAndADoc) {
  std::set<std::string> names;
  for (const Knob& knob : knobs()) {
    EXPECT_TRUE(names.insert(knob.name).second) << knob.name;
    EXPECT_FALSE(knob.doc.empty()) << knob.name;
    EXPECT_FALSE(knob.allowed.empty()) << knob.name;
  }
}

TEST(Knobs, EachChangesItsOwnFieldAlone) {
  const EngineConfig defaults;
  for (const Knob& changed : knobs()) {
    EngineConfig config;
    const std::string before = get_knob(config, changed.name);
    for (const std::string& candidate : {std::string("7"), std::string("2"), std::string("0.5"),
                                         listed(changed.allowed).front(), listed(changed.allowed).back()}) {
      if (set_knob(config, changed.name, candidate) && get_knob(config, changed.name) != before) break;
    }
    for (const Knob& other : knobs()) {
      if (other.name != changed.name) {
        EXPECT_EQ(other.get(config), other.get(defaults)) << changed.name << " changed " << other.name;
      }
    }
    if (changed.allowed != "text") {
      EXPECT_NE(get_knob(config, changed.name), before) << changed.name << " does nothing";
    }
  }
}

TEST(Knobs, UnknownNamesAndValuesAreRefusedInOneLine) {
  EngineConfig config;
  const std::string before = config_to_json(config);
  const Status unknown = set_knob(config, "kv.formt", "bf16");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("no knob 'kv.formt'"));
  EXPECT_THAT(unknown.error().message, HasSubstr("kv.format"));
  const std::vector<std::pair<std::string, std::string>> refused{{"kv.format", "e2m1"},
                                                                 {"kv.format", "fp8"},
                                                                 {"kv.policy", "dynamic"},
                                                                 {"model.layers", "0"},
                                                                 {"model.layers", "4.5"},
                                                                 {"model.bias", "yes"},
                                                                 {"norm.eps", "small"},
                                                                 {"norm.eps", ""},
                                                                 {"model.layers", "4 "},
                                                                 {"kv.scrub", ""},
                                                                 {"model.recurrent_layers", "1,x"},
                                                                 {"kv.block_size", "99999999"}};
  for (const auto& [name, value] : refused) {
    const Status status = set_knob(config, name, value);
    ASSERT_FALSE(status) << name << "=" << value;
    EXPECT_THAT(status.error().message, HasSubstr(name));
    EXPECT_THAT(status.error().message, Not(HasSubstr("\n")));
  }
  EXPECT_EQ(config_to_json(config), before);
}

/// Recordings of 0.1.0 call it auto, as servers call an unquantized cache.
TEST(Knobs, FormerValuesAreRead) {
  EngineConfig config;
  config.kv.policy = "locked";
  ASSERT_TRUE(set_knob(config, "kv.policy", "auto"));
  EXPECT_EQ(get_knob(config, "kv.policy"), "unit_scale");
  EXPECT_EQ(config_from_json(R"({"kv.policy": "auto"})").value().kv.policy, "unit_scale");
  EXPECT_FALSE(set_knob(config, "kv.overflow", "auto"));
}

TEST(Knobs, JsonRoundTripKeepsEveryValue) {
  EngineConfig config;
  for (const Knob& knob : knobs()) {
    if (knob.allowed.find('|') == std::string::npos) continue;
    ASSERT_TRUE(set_knob(config, knob.name, listed(knob.allowed).back()));
  }
  ASSERT_TRUE(set_knob(config, "kv.scale_k", "inf"));
  ASSERT_TRUE(set_knob(config, "kv.scale_v", "-0.025"));
  ASSERT_TRUE(set_knob(config, "norm.eps", "1e-12"));
  ASSERT_TRUE(set_knob(config, "inner_norm.eps", "1e-06"));
  ASSERT_TRUE(set_knob(config, "model.seed", "18446744073709551615"));
  ASSERT_TRUE(set_knob(config, "model.recurrent_layers", "0,2"));
  ASSERT_TRUE(set_knob(config, "model.weights", "weights \"x\".safetensors"));
  const Result<EngineConfig> back = config_from_json(config_to_json(config));
  ASSERT_TRUE(back) << back.error().message;
  for (const Knob& knob : knobs()) EXPECT_EQ(knob.get(*back), knob.get(config)) << knob.name;
}

TEST(Knobs, JsonWithUnknownKnobsIsRefused) {
  EXPECT_FALSE(config_from_json("[]"));
  EXPECT_FALSE(config_from_json("{"));
  EXPECT_FALSE(config_from_json(R"({"kv.nothing": 1})"));
  EXPECT_FALSE(config_from_json(R"({"kv.format": ["bf16"]})"));
  EXPECT_TRUE(config_from_json(R"({"kv.format": "e4m3", "model.layers": 2})"));
}

TEST(Knobs, AnEmptyInnerNormFollowsTheNorm) {
  EngineConfig config;
  config.norm.variance = kernels::VarianceForm::one_pass;
  config.norm.eps = 1e-6F;
  config.inner_norm.order = kernels::SumOrder::sequential;
  const NormConfig inner = resolved_inner_norm(config);
  EXPECT_EQ(inner.variance, kernels::VarianceForm::one_pass);
  EXPECT_EQ(inner.eps, 1e-6F);
  EXPECT_EQ(inner.order, kernels::SumOrder::sequential);
  EXPECT_EQ(config.norm.order, kernels::SumOrder::warp);
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{"variance", "welford"},
                                                                                    {"contract", "true"},
                                                                                    {"clamp", "true"},
                                                                                    {"mean_by_reciprocal", "true"},
                                                                                    {"eps", "0.5"}}) {
    ASSERT_TRUE(set_knob(config, "inner_norm." + name, value));
    EngineConfig shown;
    shown.norm = resolved_inner_norm(config);
    EXPECT_EQ(get_knob(shown, "norm." + name), value);
  }
}

TEST(Knobs, ImpossibleShapesNameTheKnobs) {
  const auto message = [](std::vector<std::pair<std::string, std::string>> knobs) {
    EngineConfig config;
    for (const auto& [name, value] : knobs) EXPECT_TRUE(set_knob(config, name, value));
    const Status status = check(config);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(message({}), "");
  EXPECT_THAT(message({{"model.kv_heads", "3"}}), HasSubstr("model.kv_heads=3"));
  EXPECT_THAT(message({{"model.head_dim", "63"}}), HasSubstr("model.head_dim=63"));
  EXPECT_THAT(message({{"model.experts", "2"}, {"model.experts_per_token", "3"}}),
              HasSubstr("model.experts_per_token=3"));
  EXPECT_THAT(message({{"model.recurrent_layers", "4"}}), HasSubstr("model.recurrent_layers"));
  EXPECT_THAT(message({{"model.recurrent_layers", "1,1"}}), HasSubstr("model.recurrent_layers"));
  EXPECT_THAT(message({{"model.recurrent_layers", "0,1,2,3"}}), HasSubstr("attention"));
}

}  // namespace
}  // namespace nanscope
