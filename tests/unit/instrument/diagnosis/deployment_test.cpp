/// Faults of what a deployment puts around the model: dummy batches, grammars, checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/run/recording_view.h"
#include "instrument/diagnosis/why.h"
#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope {
namespace {

using testing::classes;
using testing::constant;
using testing::diagnosis_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kNan;
using testing::number;
using testing::RunBuilder;

void add_logits(RunBuilder& b, std::int64_t x, float value, float token) {
  b.op(-1, "lm_head", "gemm", {{"x", x}});
  const std::int64_t logits = b.output("logits", {1, 5, 0, 1}, constant(value));
  b.op(-1, "argmax", "argmax", {{"logits", logits}});
  b.output("token", {1, 1, 0, 1}, constant(token), Format::i32);
}

/// A dummy batch whose softmax row sees no key: from there on all is NaN, and it stores that, or does not.
void add_dummy_batch(RunBuilder& b, bool stored) {
  b.request(kDummyRequest, {0});
  b.step(kDummyRequest, 0, 0, 1);
  b.op(-1, "embed", "embedding", {});
  const auto x = b.output("out", {1, 4, 0, 1}, constant(1));
  b.op(0, "scores", "attention_scores", {{"q", x}, {"k", x}});
  const auto scores = b.output("out", {1, 1, 0, 1}, constant(1));
  b.op(0, "softmax", "softmax", {{"scores", scores}}, R"({"mask":"multiply","first_position":0,"first_key":1})");
  const auto probs = b.output("probs", {1, 1, 0, 1}, constant(kNan));
  b.op(0, "attn_residual", "residual_add", {{"a", x}, {"b", probs}});
  const auto sum = b.output("out", {1, 4, 0, 1}, constant(kNan));
  b.op(1, "kv_store", "kv_store", {{"k", sum}, {"v", sum}}, stored ? "{}" : R"({"stored":false})");
  b.output("k_codes", {1, 4, 0, 1}, constant(kNan), Format::bf16);
  b.output("v_codes", {1, 4, 0, 1}, constant(kNan), Format::bf16);
  if (stored) b.kv(kDummyRequest, 0, 0, 1, 0, KvAction::written, "dummy_batch", Format::bf16);
  add_logits(b, sum, kNan, 0);
}

/// A request of one token in block 1, whose block table is filled up with block 0.
void add_request(RunBuilder& b, bool poisoned) {
  b.request(0, {1}, {0});
  b.step(0, 0, 0, 1);
  b.kv(0, 1, 0, 4, 0, KvAction::allocated, "attention", Format::bf16);
  b.kv(0, 0, 0, 4, 4, KvAction::allocated, "null_block", Format::bf16);
  b.op(1, "kv_read", "kv_read", {{"pool"}});
  const auto read = [&](auto key, auto) { return poisoned && key == 4 ? kNan : 1.0F; };
  b.output("k_read", {8, 4, 0, 1}, read);
  const auto v = b.output("v_read", {8, 4, 0, 1}, read);
  b.op(1, "attn_mix", "attention_mix", {{"v", v}});
  const auto mix = b.output("out", {1, 4, 0, 1}, constant(poisoned ? kNan : 1));
  add_logits(b, mix, poisoned ? kNan : 1, 0);
}

TEST(DummyBatch, WhatItLeftInTheNullBlockComesOfItsOwnEmptySoftmax) {
  RunBuilder b;
  add_dummy_batch(b, true);
  add_request(b, true);
  const Diagnosis found = diagnosis_of(b);
  EXPECT_THAT(classes(found), ElementsAre("softmax-fully-masked", "masked-tail-poison", "argmax-nan-fallback"));
  ASSERT_EQ(found.root_cause, 1U) << "nobody asked for the dummy batch";
  EXPECT_EQ(found.faults[1].because, 0U);
  EXPECT_EQ(found.faults[1].tensor, "0/0/1/kv_read.v_read") << "nothing reads the keys here";
  EXPECT_THAT(found.faults[1].summary, HasSubstr("left by dummy_batch of the dummy batch step 0"));
  EXPECT_EQ(number(found.faults[1], "key"), "4");
}

TEST(DummyBatch, TheWayBackLeadsThroughTheNullBlock) {
  RunBuilder b;
  add_dummy_batch(b, true);
  add_request(b, true);
  const auto read = static_cast<std::int64_t>(b.run.tensor_rows.size()) - 3;  // v_read: attention, logits, token follow
  RecordingView run(b.run, b.tensors);
  const WhyPath path = why(run, Element{read, 4, 0}).value();
  std::string all;
  for (const Hop& hop : path.hops) all += hop.text + "\n";
  EXPECT_THAT(all, HasSubstr("by the dummy batch step 0 (dummy_batch, as bf16), and stands for no block in the block "
                             "table of request 0"));
  EXPECT_THAT(path.conclusion, HasSubstr("-2/0/0/softmax.probs"));
}

TEST(DummyBatch, IsFreeToBeNaNWhenItStoresNothing) {
  RunBuilder b;
  add_dummy_batch(b, false);
  add_request(b, false);
  EXPECT_THAT(classes(diagnosis_of(b)), IsEmpty());
}

/// One step whose logits are healthy and whose token is chosen from `probability` alone.
Diagnosis guided(float probability, const std::string& attributes) {
  RunBuilder b;
  b.request(0, {1}, {0});
  b.step(0, 0, 0, 1);
  b.op(-1, "lm_head", "gemm", {});
  const auto logits = b.output("logits", {1, 5, 0, 1}, constant(1));
  b.op(-1, "token_softmax", "token_softmax", {{"logits", logits}}, attributes);
  const auto probs = b.output("probs", {1, 5, 0, 1}, constant(probability));
  b.op(-1, "argmax", "argmax", {{"probs", probs}});
  b.output("token", {1, 1, 0, 1}, constant(0), Format::i32);
  return diagnosis_of(b);
}

TEST(Grammar, ARowWithoutALegalTokenIsFullyMasked) {
  const Diagnosis found = guided(kNan, R"({"legal":0,"masked":true})");
  ASSERT_THAT(classes(found), ElementsAre("softmax-fully-masked", "argmax-nan-fallback"));
  EXPECT_EQ(found.root_cause, 0U);
  EXPECT_EQ(number(found.faults[0], "legal_tokens"), "0");
  EXPECT_EQ(found.faults[1].because, 0U);
  EXPECT_THAT(found.faults[1].summary, HasSubstr("1 row of 0/0/-/token_softmax.probs is NaN throughout"));
}

TEST(Grammar, ProbabilitiesOfLegalTokensAreJudgedByTheirNumbers) {
  EXPECT_TRUE(guided(0.2F, R"({"legal":5,"masked":true})").healthy());
  EXPECT_TRUE(guided(0.2F, R"({"legal":0,"masked":false})").healthy());
  EXPECT_THAT(classes(guided(kNan, R"({"legal":3,"masked":true})")), ElementsAre("invalid-op", "argmax-nan-fallback"));
}

/// 64 x 64 weights of a root mean square, the largest element as given.
void add_weight(RunBuilder& b, const std::string& name, double rms, float largest) {
  b.weight(name);
  WeightRow& row = b.run.weight_rows.back();
  row.rows = 64;
  row.columns = 64;
  row.health.count = 64 * 64;
  row.health.absmax = largest;
  row.health.max = largest;
  row.health.min = static_cast<float>(-3 * rms);
  row.health.sum_sq = rms * rms * (64 * 64 - 1) + double{largest} * double{largest};
}

/// Three layers of one projection; that of layer 1 has these numbers, and its output reaches `reached`.
Diagnosis projections(double rms, float largest, float reached) {
  RunBuilder b;
  b.request(0, {1}, {7});
  b.step(0, 0, 0, 1);
  b.op(-1, "embed", "embedding", {});
  auto x = b.output("out", {1, 4, 0, 1}, constant(1));
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    const std::string name = "layers." + std::to_string(layer) + ".o_proj.weight";
    add_weight(b, name, layer == 1 ? rms : 0.1, layer == 1 ? largest : 0.5F);
    b.op(layer, "o_proj", "gemm", {{"x", x}, {"weight", 0, name}});
    x = b.output("out", {1, 4, 0, 1}, constant(layer == 1 ? reached : 1));
  }
  add_logits(b, x, 1, 7);
  return diagnosis_of(b);
}

TEST(Weights, AFlippedExponentBitIsOneElementBeyondAllOthers) {
  const Diagnosis found = projections(0.1, 3e37F, 3e37F);
  ASSERT_THAT(classes(found), ElementsAre("weight-corruption"));
  EXPECT_EQ(found.faults[0].tensor, "0/0/1/o_proj.out");
  EXPECT_EQ(number(found.faults[0], "weight"), "layers.1.o_proj.weight");
  EXPECT_NEAR(std::get<double>(*find(found.faults[0].evidence, "ratio")), 1e38, 1e33) << "3e37 over 0.3";
}

TEST(Weights, AnOutlierThatTrainingCouldHaveMadeOrThatNothingFeltIsClean) {
  EXPECT_TRUE(projections(0.1, 100, 100).healthy());  // a thousand times the others
  EXPECT_TRUE(projections(0.1, 1e6F, 1).healthy());   // the token's x was 0 there
}

TEST(Weights, CodesWithoutTheirScaleAreKnownByTheirLargestValue) {
  const Diagnosis found = projections(80, 448, 3000);
  ASSERT_THAT(classes(found), ElementsAre("weight-corruption"));
  EXPECT_THAT(found.faults[0].summary, HasSubstr("exactly 448, as e4m3 codes have it"));
  EXPECT_NEAR(std::get<double>(*find(found.faults[0].evidence, "ratio")),
              std::sqrt(80.0 * 80 + 448.0 * 448 / 4096) / 0.100293, 0.1);
}

TEST(Weights, ALargeLayerThatIsNoCodesOrIsNotFarFromOthersIsClean) {
  EXPECT_TRUE(projections(80, 447, 3000).healthy());
  EXPECT_TRUE(projections(4, 448, 3000).healthy());  // 40 times the others: a gain that models have
}

}  // namespace
}  // namespace nanscope
