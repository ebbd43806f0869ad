#include "instrument/diagnosis/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <nlohmann/json.hpp>

#include "instrument/diagnosis/why.h"
#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/small_cascade.h"

namespace nanscope {
namespace {

using testing::CascadeOptions;
using testing::classes;
using testing::constant;
using testing::diagnosis_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::In;
using ::testing::IsEmpty;
using testing::number;
using testing::RunBuilder;
using testing::SmallCascade;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

const Hypothesis& hypothesis(const Diagnosis& diagnosis, const std::string& fault_class) {
  static const Hypothesis kNone;
  for (const Hypothesis& one : diagnosis.hypotheses) {
    if (one.fault_class == fault_class) return one;
  }
  return kNone;
}

TEST(Diagnose, TheCascadeHasTheLockedScaleAtItsRoot) {
  SmallCascade made;
  const Diagnosis found = diagnosis_of(made.builder);
  EXPECT_THAT(classes(found),
              ElementsAre("kv-scale-locked", "variance-collapse", "argmax-nan-fallback", "prefix-cache-poison",
                          "argmax-nan-fallback", "masked-tail-poison", "argmax-nan-fallback"));
  ASSERT_EQ(found.root_cause, 0U);
  EXPECT_EQ(found.faults[0].because, std::nullopt);
  EXPECT_EQ(found.faults[1].because, 0U);
  EXPECT_EQ(found.faults[2].because, 1U);
  EXPECT_EQ(found.faults[3].because, 1U);
  EXPECT_EQ(found.faults[4].because, 3U);
  EXPECT_EQ(found.faults[5].because, 1U);
  EXPECT_EQ(found.faults[6].because, 5U);
  EXPECT_EQ(found.faults[1].tensor, "1/0/0/inner_norm.out");
  EXPECT_EQ(found.spread.first_bad_tensor, "1/0/0/inner_norm.out");
  EXPECT_EQ(found.spread.bad_tokens, 5);  // 3 of request 1, 1 each of 2 and 3
  EXPECT_EQ(found.spread.tokens, 7);
}

TEST(Diagnose, TheLockedScaleIsProvedByItsNumbers) {
  SmallCascade made;
  const Diagnosis found = diagnosis_of(made.builder);
  const Fault& fault = found.faults.at(0);
  EXPECT_EQ(fault.tensor, "1/0/0/kv_store.v_codes");
  EXPECT_EQ(number(fault, "calibrated by request"), "0");
  EXPECT_EQ(number(fault, "absmax when calibrated"), "1");
  EXPECT_EQ(number(fault, "absmax now"), "47");
  EXPECT_EQ(number(fault, "clipped values"), "8");
  EXPECT_THAT(fault.fix, HasSubstr("bf16"));
}

TEST(Diagnose, ATwoPassVarianceLeavesTheLockedScaleAlone) {
  CascadeOptions options;
  options.one_pass = false;
  SmallCascade made(options);
  const Diagnosis found = diagnosis_of(made.builder);
  EXPECT_THAT(classes(found), ElementsAre("kv-scale-locked"));
  EXPECT_FALSE(hypothesis(found, "variance-collapse").supported);
  EXPECT_THAT(hypothesis(found, "variance-collapse").figure, HasSubstr("variances looked at is 0, plus eps 1e-05"));
}

TEST(Diagnose, HealthyRunsAreClean) {
  CascadeOptions options;
  options.image = false;
  SmallCascade within(options);
  EXPECT_TRUE(diagnosis_of(within.builder).clean());
  options = {};
  options.locked = false;
  options.one_pass = false;
  SmallCascade per_request(options);
  EXPECT_TRUE(diagnosis_of(per_request.builder).clean());
  options.format = Format::bf16;
  SmallCascade unquantized(options);
  const Diagnosis found = diagnosis_of(unquantized.builder);
  EXPECT_TRUE(found.clean());
  EXPECT_EQ(found.root_cause, std::nullopt);
  EXPECT_EQ(found.spread.bad_tokens, 0);
  for (const Hypothesis& one : found.hypotheses) {
    EXPECT_FALSE(one.supported) << one.fault_class;
    EXPECT_FALSE(one.figure.empty()) << one.fault_class;
  }
}

TEST(Diagnose, JsonIsTheSchema) {
  SmallCascade made;
  made.builder.run.run_info.expected_ops = 999;
  const nlohmann::ordered_json json = to_json(diagnosis_of(made.builder));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_THAT(keys,
              ElementsAre("schema", "target", "verdict", "root_cause", "faults", "chain", "spread", "completeness"));
  EXPECT_EQ(json["schema"], "nanscope.diagnosis/1");
  EXPECT_EQ(json["target"], "here");
  EXPECT_EQ(json["verdict"], "fault");
  EXPECT_EQ(json["root_cause"]["class"], "kv-scale-locked");
  keys.clear();
  for (const auto& [key, value] : json["faults"][0].items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("class", "tensor", "layer", "op", "request", "step", "tokens", "channels", "evidence",
                                "summary", "fix"));
  EXPECT_EQ(json["faults"][1]["tokens"], (nlohmann::ordered_json::array({0, 1})));
  EXPECT_EQ(json["faults"][1]["layer"], 0);
  EXPECT_TRUE(json["faults"][2]["layer"].is_null());
  EXPECT_EQ(json["chain"][1]["because"], 0);
  EXPECT_TRUE(json["chain"][0]["because"].is_null());
  EXPECT_EQ(json["spread"]["bad_tokens"], 5);
  EXPECT_EQ(json["completeness"]["expected"], 999);
  EXPECT_NO_THROW(static_cast<void>(json.dump()));
}

TEST(Diagnose, JsonOfACleanRunHasNulls) {
  RunBuilder b;
  const nlohmann::ordered_json json = to_json(diagnosis_of(b));
  EXPECT_EQ(json["verdict"], "clean");
  EXPECT_TRUE(json["root_cause"].is_null());
  EXPECT_TRUE(json["spread"]["first_bad_tensor"].is_null());
  EXPECT_TRUE(json["completeness"]["expected"].is_null());
}

TEST(Diagnose, WorksWithoutElements) {
  SmallCascade made;
  NoTensors nothing;
  const Result<Diagnosis> found = diagnose(made.builder.run, nothing, "");
  ASSERT_TRUE(found.has_value());
  ASSERT_TRUE(found->root_cause.has_value());
  EXPECT_EQ(found->faults[*found->root_cause].fault_class, "kv-scale-locked");
}

/// A step of one layer whose residual stream ends in logits.
struct OneStep {
  RunBuilder b;
  explicit OneStep(std::int64_t tokens = 2) : tokens_(tokens) {
    b.request(0, std::vector<std::int32_t>(static_cast<std::size_t>(tokens), 1), {7});
    b.step(0, 0, 0, tokens);
    b.op(-1, "embed", "embedding", {{"weight", 0, "embed.weight"}});
    x = b.output("out", {tokens, 4, 0, 1}, constant(1));
  }
  std::int64_t add(const std::string& name, const std::string& kind, const std::vector<In>& inputs, float value,
                   Format format = Format::f32, const std::string& attributes = "{}") {
    b.op(0, name, kind, inputs, attributes);
    return b.output("out", {tokens_, 4, 0, 1}, constant(value), format);
  }
  std::int64_t head(std::int64_t input, float value, float token) {
    b.op(-1, "lm_head", "gemm", {{"x", input}, {"weight", 0, "embed.weight"}});
    const std::int64_t logits = b.output("logits", {tokens_, 5, 0, 1}, constant(value));
    b.op(-1, "argmax", "argmax", {{"logits", logits}});
    b.output("token", {tokens_, 1, 0, 1}, constant(token), Format::i32);
    return logits;
  }
  std::int64_t x = 0;
  std::int64_t tokens_;
};

TEST(Classes, AResidualBeyondF16) {
  OneStep one;
  const auto a = one.add("o_proj", "gemm", {{"x", one.x}}, 58820);
  const auto c = one.add("down_proj", "gemm", {{"x", one.x}}, 33760);
  const auto sum = one.add("mlp_residual", "residual_add", {{"a", a}, {"b", c}}, kInf, Format::f16);
  one.head(sum, kNan, 0);
  const Diagnosis found = diagnosis_of(one.b);
  EXPECT_THAT(classes(found), ElementsAre("f16-overflow", "argmax-nan-fallback"));
  EXPECT_EQ(number(found.faults[0], "a + b"), "92580");
  EXPECT_EQ(found.faults[1].because, 0U);
  EXPECT_EQ(found.root_cause, 0U);
}

TEST(Classes, F16ThatStaysFiniteIsRejectedWithItsHeadroom) {
  OneStep one;
  const auto sum = one.add("mlp_residual", "residual_add", {{"a", one.x}, {"b", one.x}}, 366.4F, Format::f16);
  one.head(sum, 1, 0);
  const Diagnosis found = diagnosis_of(one.b);
  EXPECT_TRUE(found.clean());
  EXPECT_THAT(hypothesis(found, "f16-overflow").figure, HasSubstr("headroom 179"));
}

TEST(Classes, SoftmaxRowsWithoutKeys) {
  OneStep one(3);
  one.b.op(0, "scores", "attention_scores", {{"q", one.x}, {"k", one.x}});
  const auto scores = one.b.output("out", {3, 3, 0, 1}, constant(1));
  one.b.op(0, "softmax", "softmax", {{"scores", scores}},
           R"({"mask":"additive","heads":1,"first_position":0,"first_key":2})");
  const auto probs = one.b.output("probs", {3, 3, 0, 1}, [](auto row, auto) { return row < 2 ? kNan : 0.5F; });
  one.b.op(0, "attn_residual", "residual_add", {{"a", one.x}, {"b", probs}});
  const auto out = one.b.output("out", {3, 4, 0, 1}, [](auto row, auto) { return row < 2 ? kNan : 1.0F; });
  one.b.op(-1, "lm_head", "gemm", {{"x", out}});
  one.b.output("logits", {3, 5, 0, 1}, [](auto row, auto) { return row < 2 ? kNan : 1.0F; });
  const Diagnosis found = diagnosis_of(one.b);
  EXPECT_THAT(classes(found), ElementsAre("softmax-fully-masked"));
  EXPECT_EQ(found.faults[0].where.tokens, (Range{0, 1}));
}

TEST(Classes, IntendedMinusInfinityThatNothingSpreadsIsClean) {
  OneStep one;
  one.b.op(0, "scores", "attention_scores", {{"q", one.x}, {"k", one.x}});
  const auto scores = one.b.output("out", {2, 2, 0, 1}, [](auto row, auto key) { return key > row ? -kInf : 1.0F; });
  one.b.op(0, "softmax", "softmax", {{"scores", scores}}, R"({"heads":1})");
  const auto probs = one.b.output("probs", {2, 2, 0, 1}, [](auto row, auto key) { return key > row ? 0.0F : 0.5F; });
  one.head(probs, 1, 0);
  EXPECT_THAT(classes(diagnosis_of(one.b)), IsEmpty());
}

ScaleRow fixed_scale(double scale, Format format = Format::e4m3) {
  ScaleRow row;
  row.policy = "static";
  row.source = ScaleSource::fixed;
  row.scale = scale;
  row.format = format;
  row.locked = true;
  return row;
}

TEST(Classes, ACastThatDoesNotSaturate) {
  OneStep one;
  const auto v = one.add("v_proj", "gemm", {{"x", one.x}}, 600);
  one.b.op(0, "kv_store", "kv_store", {{"k", one.x}, {"v", v}});
  one.b.store("k", one.x, fixed_scale(1), Overflow::overflow);
  one.b.store("v", v, fixed_scale(1), Overflow::overflow);
  one.head(one.x, 1, 7);
  const Diagnosis found = diagnosis_of(one.b);
  EXPECT_THAT(classes(found), ElementsAre("fp8-nonsaturating-overflow"));
  EXPECT_EQ(number(found.faults[0], "x / scale"), "600");
}

TEST(Classes, AFixedScaleThatClipsIsSaturation) {
  OneStep one;
  const auto v = one.add("v_proj", "gemm", {{"x", one.x}}, 900);
  one.b.op(0, "kv_store", "kv_store", {{"k", one.x}, {"v", v}});
  one.b.store("v", v, fixed_scale(1));
  one.head(one.x, 1, 7);
  EXPECT_THAT(classes(diagnosis_of(one.b)), ElementsAre("saturation"));
}

TEST(Classes, ValuesThatRoundToTheLargestCodeAreNotClipping) {
  // 464 is half way between 448 and 480: below it 448 is the nearest code anyway.
  OneStep one;
  const auto v = one.add("v_proj", "gemm", {{"x", one.x}}, 463.9F);
  one.b.op(0, "kv_store", "kv_store", {{"k", one.x}, {"v", v}});
  one.b.store("v", v, fixed_scale(1));
  one.head(one.x, 1, 7);
  EXPECT_TRUE(diagnosis_of(one.b).clean());
}

TEST(Classes, AnAbsmaxScaleThatTouches448OnceIsClean) {
  OneStep one;
  one.b.op(0, "v_proj", "gemm", {{"x", one.x}});
  const auto v =
      one.b.output("out", {2, 4, 0, 1}, [](auto row, auto channel) { return row + channel == 4 ? 3.7F : 0.5F; });
  one.b.op(0, "kv_store", "kv_store", {{"k", one.x}, {"v", v}});
  ScaleRow scale = fixed_scale(3.7F / 448.0F);
  scale.source = ScaleSource::calibrated;
  scale.policy = "per_token";
  scale.calibrated_step = 1;
  one.b.store("v", v, scale);
  one.head(one.x, 1, 7);
  EXPECT_TRUE(diagnosis_of(one.b).clean());
}

TEST(Classes, AFewSlightlyClippedValuesAreLessThanRounding) {
  OneStep one;
  one.b.op(0, "v_proj", "gemm", {{"x", one.x}});
  const auto v =
      one.b.output("out", {2, 32, 0, 1}, [](auto row, auto channel) { return row + channel == 0 ? 500.0F : 320.0F; });
  one.b.op(0, "kv_store", "kv_store", {{"k", one.x}, {"v", v}});
  ScaleRow scale = fixed_scale(1);
  scale.source = ScaleSource::calibrated;
  scale.calibrated_step = 99;
  one.b.store("v", v, scale);
  one.head(one.x, 1, 7);
  const Diagnosis found = diagnosis_of(one.b);
  EXPECT_TRUE(found.clean());
  EXPECT_THAT(hypothesis(found, "kv-scale-locked").figure, HasSubstr("less than rounding"));
}

TEST(Classes, AScaleThatClipsItsOwnValuesIsSaturationNotStale) {
  OneStep one;
  const auto v = one.add("v_proj", "gemm", {{"x", one.x}}, 900);
  one.b.op(0, "kv_store", "kv_store", {{"k", one.x}, {"v", v}});
  ScaleRow scale = fixed_scale(1);
  scale.source = ScaleSource::calibrated;
  scale.calibrated_step = 1;
  one.b.store("v", v, scale);
  one.head(one.x, 1, 7);
  EXPECT_THAT(classes(diagnosis_of(one.b)), ElementsAre("saturation"));
}

TEST(Classes, TheLedgerAloneProvesClipping) {
  OneStep one;
  one.b.op(0, "kv_store", "kv_store", {});
  ScaleRow scale = fixed_scale(1);
  scale.step = 1;
  scale.op = one.b.run.op_rows.back().id;
  scale.target.push_back('v');
  scale.absmax = 900;
  scale.headroom = 448.0 / 900;
  one.b.run.scale_rows.push_back(scale);
  one.head(one.x, 1, 7);
  EXPECT_THAT(classes(diagnosis_of(one.b)), ElementsAre("saturation"));
}

TEST(Classes, AZeroScaleIsInvalid) {
  OneStep one;
  one.b.op(0, "kv_store", "kv_store", {{"k", one.x}, {"v", one.x}});
  one.b.store("v", one.x, fixed_scale(0));
  one.head(one.x, 1, 7);
  const Diagnosis found = diagnosis_of(one.b);
  EXPECT_THAT(classes(found), ElementsAre("scale-invalid"));
  EXPECT_EQ(number(found.faults[0], "scale"), "0");
}

TEST(Classes, AScaleComputedFromNaNIsAConsequence) {
  OneStep one;
  const auto v = one.add("v_proj", "gemm", {{"x", one.x}}, kNan);
  one.b.op(0, "kv_store", "kv_store", {{"k", one.x}, {"v", v}});
  ScaleRow scale = fixed_scale(kNan);
  scale.source = ScaleSource::calibrated;
  scale.calibrated_absmax = kNan;
  one.b.store("v", v, scale);
  one.head(v, kNan, 0);
  EXPECT_THAT(classes(diagnosis_of(one.b)), ElementsAre("invalid-op", "argmax-nan-fallback"));
}

TEST(Classes, ABadWeightThatIsUsed) {
  OneStep one;
  one.b.weight("w", 2);
  const auto out = one.add("o_proj", "gemm", {{"x", one.x}, {"weight", 0, "w"}}, kNan);
  one.head(out, kNan, 0);
  const Diagnosis found = diagnosis_of(one.b);
  EXPECT_THAT(classes(found), ElementsAre("weight-corruption", "argmax-nan-fallback"));
  EXPECT_EQ(number(found.faults[0], "weight"), "w");
}

TEST(Classes, ABadWeightThatNothingReadsIsClean) {
  OneStep one;
  one.b.weight("unused", 2);
  one.head(one.x, 1, 7);
  const Diagnosis found = diagnosis_of(one.b);
  EXPECT_TRUE(found.clean());
  EXPECT_THAT(hypothesis(found, "weight-corruption").figure, HasSubstr("1 of 1"));
}

TEST(Classes, NaNInAPaddingRowThatNothingReadsIsClean) {
  OneStep one;
  one.b.op(0, "kv_read", "kv_read", {{"pool"}});
  const auto v = one.b.output("v_read", {4, 4, 0, 1}, [](auto key, auto) { return key == 3 ? kNan : 1.0F; });
  one.b.op(0, "attn_mix", "attention_mix", {{"probs", one.x}, {"v", v}}, R"({"visible_only":true})");
  const auto mix = one.b.output("out", {2, 4, 0, 1}, constant(1));
  one.head(mix, 1, 0);
  const Diagnosis found = diagnosis_of(one.b);
  EXPECT_TRUE(found.clean());
  EXPECT_EQ(found.spread.first_bad_tensor, "0/0/0/kv_read.v_read");
}

TEST(Classes, LargeFiniteLogitsAndTokenZeroAreClean) {
  OneStep one;
  one.head(one.x, 3e38F, 0);
  EXPECT_TRUE(diagnosis_of(one.b).clean());
}

/// Request 0 leaves the states of recurrent layers 1 and 2 in block 4, request 1 gets it for its KV. The pool has the
/// regions K and V of layer 0: layer 2's state, the second one, lies in V. Slot 1 of V starts at byte 4, the state's
/// channel 1, whose lowest byte is 0xFF.
RunBuilder recycled_state(std::int64_t* values = nullptr) {
  constexpr float kStale = std::bit_cast<float>(0x3F8012FFU);
  RunBuilder b;
  b.request(0, {1, 1}, {7});
  b.step(0, 0, 0, 2);
  b.kv(0, 4, 0, 2, 0, KvAction::allocated, "recurrent_state");
  for (const std::int64_t layer : {1, 2}) {
    b.op(layer, "recurrent", "recurrent_scan", {});
    b.output("out", {2, 4, 0, 1}, [&](auto row, auto channel) { return row == 1 && channel == 1 ? kStale : 1.0F; });
    b.kv(0, 4, 0, 2, 0, KvAction::written, "recurrent_state", Format::f32, layer);
  }
  b.kv(0, 4, 0, 2, 0, KvAction::freed);
  b.request(1, {1}, {7});
  b.step(1, 0, 0, 1);
  b.kv(1, 4, 0, 2, 0, KvAction::allocated);
  b.op(0, "kv_store", "kv_store", {});
  b.output("k_codes", {1, 4, 0, 1}, constant(1), Format::e4m3);
  b.output("v_codes", {1, 4, 0, 1}, constant(1), Format::e4m3);
  b.op(0, "kv_read", "kv_read", {{"pool"}});
  b.output("k_read", {2, 4, 0, 1}, constant(1));
  const auto v = b.output("v_read", {2, 4, 0, 1}, [](auto key, auto i) { return key == 1 && i == 0 ? kNan : 1.0F; });
  b.kv(1, 4, 0, 1, 0, KvAction::written);
  b.op(-1, "lm_head", "gemm", {{"x", v}});
  b.output("logits", {1, 5, 0, 1}, constant(kNan));
  if (values != nullptr) *values = v;
  return b;
}

TEST(Classes, RecycledBitsOfAnotherFormatAreATailPoison) {
  RunBuilder b = recycled_state();
  const Diagnosis found = diagnosis_of(b);
  EXPECT_THAT(classes(found), ElementsAre("masked-tail-poison", "argmax-nan-fallback"));
  EXPECT_THAT(found.faults[0].summary, HasSubstr("last written as f32 by recurrent_state of request 0 step 0"));
  EXPECT_EQ(number(found.faults[0], "raw code that reads as NaN"), "0x7F");
  EXPECT_EQ(number(found.faults[0], "raw code"), "0xFF");
  EXPECT_EQ(number(found.faults[0], "stale f32 bits"), "0x3F8012FF");
  EXPECT_EQ(number(found.faults[0], "first bad key"), "1");
  EXPECT_EQ(number(found.faults[0], "context"), "1");
}

TEST(Classes, WithoutTheStateTheSlotsWriterIsStillNamed) {
  RunBuilder b = recycled_state();
  NoTensors nothing;
  const Result<Diagnosis> found = diagnose(b.run, nothing);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->faults.at(0).fault_class, "masked-tail-poison");
  EXPECT_EQ(number(found->faults[0], "raw code"), "-");
}

TEST(Classes, TheWalkGoesOnToTheStaleNumber) {
  std::int64_t v = 0;
  RunBuilder b = recycled_state(&v);
  const Result<WhyPath> path = why(b.run, b.tensors, Element{v, 1, 0});
  ASSERT_TRUE(path.has_value());
  ASSERT_EQ(path->hops.size(), 3U);
  EXPECT_EQ(path->origin, 1U);
  EXPECT_EQ(path->hops[1].code, 0xFFU);
  EXPECT_THAT(path->hops[1].text, HasSubstr("byte 0 of f32 1.00057971 (0x3F8012FF) is read as e4m3 0xFF, a NaN"));
  EXPECT_EQ(place_text(path->hops[2].where), "0/0/2/recurrent.out[1,1]");
}

TEST(Classes, AFormatWithoutNaNLaundersIt) {
  OneStep one;
  const auto v = one.add("v_proj", "gemm", {{"x", one.x}}, kNan);
  one.b.op(0, "kv_store", "kv_store", {{"k", one.x}, {"v", v}});
  one.b.output("k_codes", {2, 4, 0, 1}, constant(1), Format::int8);
  one.b.output("v_codes", {2, 4, 0, 1}, constant(0), Format::int8);
  one.head(one.x, 1, 7);
  const Diagnosis found = diagnosis_of(one.b);
  EXPECT_THAT(classes(found), ElementsAre("nan-laundered"));
  EXPECT_EQ(found.faults[0].tensor, "0/0/0/kv_store.v_codes");
}

TEST(Classes, ARefusingArgmaxIsNoFallback) {
  OneStep one;
  const auto bad = one.add("o_proj", "gemm", {{"x", one.x}}, kNan);
  one.head(bad, kNan, -1);
  EXPECT_THAT(classes(diagnosis_of(one.b)), ElementsAre("invalid-op"));
}

TEST(Classes, ABirthBesideInheritedNaNIsSeen) {
  // Row 0 comes in bad; row 1 is healthy before the norm and NaN after it.
  OneStep one;
  one.b.op(0, "o_proj", "gemm", {{"x", one.x}});
  const auto x = one.b.output("out", {2, 4, 0, 1}, [](auto row, auto) { return row == 0 ? kNan : 2.0F; });
  one.b.op(0, "attn_norm", "layer_norm", {{"x", x}}, R"({"eps":1e-5})");
  const auto out = one.b.output("out", {2, 4, 0, 1}, constant(kNan));
  one.b.output("stats", {2, 3, 0, 1}, [](auto row, auto i) {
    return row == 0 || i == 2 ? kNan : i == 0 ? 2.0F : -1.0F;
  });
  one.head(out, kNan, 0);
  const Diagnosis found = diagnosis_of(one.b);
  EXPECT_THAT(classes(found), ElementsAre("invalid-op", "variance-collapse", "argmax-nan-fallback"));
  EXPECT_EQ(found.faults[1].where.tokens, (Range{1, 1}));
}

TEST(Classes, TheSquareOfAHugeValueIsNoCollapse) {
  OneStep one;
  const auto x = one.add("o_proj", "gemm", {{"x", one.x}}, 1e25F);
  one.b.op(0, "attn_norm", "layer_norm", {{"x", x}}, R"({"eps":1e-5})");
  const auto out = one.b.output("out", {2, 4, 0, 1}, constant(kNan));
  one.b.output("stats", {2, 3, 0, 1}, [](auto, auto i) { return i == 0 ? 1e25F : kNan; });
  one.head(out, kNan, 0);
  EXPECT_THAT(classes(diagnosis_of(one.b)), ElementsAre("invalid-op", "argmax-nan-fallback"));
}

TEST(Diagnose, ReadsOfAnUnreadableRunAreAnError) {
  testing::MemoryRun run;
  run.error = Error{"the disk is gone"};
  NoTensors nothing;
  EXPECT_FALSE(diagnose(run, nothing).has_value());
}

TEST(Diagnose, StepsAfterARequestsFirstNaNAnswerAreCountedButNotExamined) {
  RunBuilder b;
  b.request(0, {1}, std::vector<std::int32_t>(300, 0));
  for (int i = 0; i < 300; ++i) {
    b.step(0, i, i, 1);
    for (int k = 0; k < 20; ++k) {
      b.op(0, "mlp_act", "activation", {});
      b.output("out", {1, 4, i, 1}, constant(kNan));
    }
    b.op(-1, "lm_head", "gemm", {{"x", b.run.tensor_rows.back().id}});
    b.output("logits", {1, 4, i, 1}, constant(kNan));
  }
  const Diagnosis found = diagnosis_of(b);
  EXPECT_THAT(classes(found), ElementsAre("invalid-op", "argmax-nan-fallback"));
  EXPECT_EQ(found.spread.bad_tokens, 300);
  EXPECT_LT(b.run.rows_read, 1500U);
}

TEST(Diagnose, ALargeHealthyRunIsNotScanned) {
  RunBuilder b;
  b.request(0, {1}, {7});
  for (int i = 0; i < 500; ++i) {
    b.step(0, i, i, 1);
    for (int k = 0; k < 20; ++k) {
      b.op(0, "mlp_act", "activation", {});
      b.output("out", {1, 4, i, 1}, constant(1));
    }
  }
  const Diagnosis found = diagnosis_of(b);
  EXPECT_TRUE(found.clean());
  EXPECT_LT(b.run.rows_read, 200U);
}

}  // namespace
}  // namespace nanscope
