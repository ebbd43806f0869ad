#include "instrument/diagnosis/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/run/recording_view.h"
#include "instrument/diagnosis/detectors/detector.h"
#include "instrument/recompute/arithmetic.h"
#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/one_step.h"
#include "tests/unit/instrument/diagnosis/small_cascade.h"

/// The diagnosis as a whole: which faults of a run, what led to which, how far they spread.
namespace nanscope {
namespace {

using testing::CascadeOptions;
using testing::check;
using testing::classes;
using testing::constant;
using testing::diagnosis_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kNan;
using testing::number;
using testing::OneStep;
using testing::RunBuilder;
using testing::SmallCascade;

TEST(Diagnose, TheCascadeHasTheLockedScaleAtItsRoot) {
  SmallCascade made;
  const Diagnosis found = diagnosis_of(made.builder);
  ASSERT_EQ(testing::root_of(found), "kv-scale-locked");
  EXPECT_EQ(found.root_cause, 0U);
  EXPECT_THAT(classes(found), ::testing::IsSupersetOf({"kv-scale-locked", "variance-collapse", "prefix-cache-poison",
                                                       "masked-tail-poison", "argmax-nan-fallback"}));
  const auto cause = [&](const std::string& of) -> std::string {
    const auto because = testing::fault(found, of).because;
    return because ? found.faults[*because].fault_class : "nothing";
  };
  EXPECT_EQ(cause("kv-scale-locked"), "nothing");
  EXPECT_EQ(cause("variance-collapse"), "kv-scale-locked");
  EXPECT_EQ(cause("prefix-cache-poison"), "variance-collapse");
  EXPECT_EQ(cause("masked-tail-poison"), "variance-collapse");
  EXPECT_EQ(testing::fault(found, "variance-collapse").tensor, "1/0/0/inner_norm.out");
  EXPECT_EQ(found.spread.bad_tokens, 5);  // 3 of request 1, 1 each of 2 and 3
  EXPECT_EQ(found.spread.tokens, 7);
}

TEST(Diagnose, NothingButTheRootHasNoCause) {
  SmallCascade made;
  const Diagnosis found = diagnosis_of(made.builder);
  for (std::size_t i = 0; i < found.faults.size(); ++i) {
    EXPECT_EQ(found.faults[i].because.has_value(), i != found.root_cause) << found.faults[i].fault_class;
    if (found.faults[i].because) {
      EXPECT_LT(*found.faults[i].because, i) << "a cause comes before what it led to";
    }
  }
}

TEST(Diagnose, ATwoPassVarianceLeavesTheLockedScaleAlone) {
  CascadeOptions options;
  options.one_pass = false;
  SmallCascade made(options);
  const Diagnosis found = diagnosis_of(made.builder);
  EXPECT_THAT(classes(found), ElementsAre("kv-scale-locked"));
  EXPECT_EQ(check(found, "variance-collapse").state, Checked::excluded);
  EXPECT_EQ(found.spread.first_bad_tensor, "1/0/0/kv_store.v_codes");
}

TEST(Diagnose, HealthyRunsAreClean) {
  CascadeOptions options;
  options.image = false;
  SmallCascade within(options);
  EXPECT_TRUE(diagnosis_of(within.builder).healthy());
  options = {};
  options.locked = false;
  options.one_pass = false;
  SmallCascade per_request(options);
  EXPECT_TRUE(diagnosis_of(per_request.builder).healthy());
  options.format = Format::bf16;
  SmallCascade unquantized(options);
  const Diagnosis found = diagnosis_of(unquantized.builder);
  EXPECT_TRUE(found.healthy());
  EXPECT_EQ(found.root_cause, std::nullopt);
  EXPECT_EQ(found.spread.bad_tokens, 0);
}

TEST(Diagnose, EveryClassIsCheckedAndSaysWhatItSaw) {
  SmallCascade made;
  const Diagnosis found = diagnosis_of(made.builder);
  ASSERT_EQ(found.checks.size(), detectors().size());
  for (const Check& one : found.checks) {
    const bool is_found = ::testing::Matches(::testing::Contains(one.fault_class))(classes(found));
    EXPECT_EQ(one.state == Checked::found, is_found) << one.fault_class;
    EXPECT_FALSE(one.text.empty()) << one.fault_class;
  }
}

TEST(Diagnose, JsonIsTheSchema) {
  SmallCascade made;
  const nlohmann::ordered_json json = to_json(diagnosis_of(made.builder));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("schema", "target", "verdict", "root_cause", "faults", "chain", "checks", "spread",
                                "warnings", "completeness", "recomputation", "coverage", "unread", "notes"));
  EXPECT_EQ(json["schema"], "nanscope.diagnosis/3");
  EXPECT_EQ(json["target"], "here");
  EXPECT_EQ(json["verdict"], "fault");
  EXPECT_EQ(json["root_cause"]["class"], "kv-scale-locked");
  EXPECT_TRUE(json["root_cause"]["because"].is_null());
  EXPECT_EQ(json["spread"]["bad_tokens"], 5);
  for (const auto& fault : json["faults"]) {
    for (const char* key : {"class", "tensor", "because", "evidence", "summary", "fix", "layer", "request", "step"})
      EXPECT_TRUE(fault.contains(key)) << key;
  }
  EXPECT_NO_THROW(static_cast<void>(json.dump()));
}

TEST(Diagnose, JsonOfAnEmptyRunHasNulls) {
  RunBuilder b;
  const nlohmann::ordered_json json = to_json(diagnosis_of(b));
  EXPECT_EQ(json["verdict"], "nothing-to-judge");
  EXPECT_TRUE(json["root_cause"].is_null());
  EXPECT_TRUE(json["spread"]["first_bad_tensor"].is_null());
  EXPECT_TRUE(json["completeness"]["expected"].is_null());
}

TEST(Diagnose, WorksWithoutElements) {
  SmallCascade made;
  made.builder.tensors.data.clear();
  EXPECT_EQ(testing::root_of(diagnosis_of(made.builder)), "kv-scale-locked");
}

TEST(Diagnose, ReadsOfAnUnreadableRunAreAnError) {
  testing::MemoryRun rows;
  rows.error = Error{"the disk is gone"};
  testing::MemoryTensors nothing;
  RecordingView run(rows, nothing);
  PlainArithmetic arithmetic;
  const Result<Diagnosis> found = diagnose(run, arithmetic);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().message, "the disk is gone");
}

/// A window that is closed stops the reads, between any two of them.
TEST(Diagnose, ReadingThatIsStoppedIsAnErrorWhereverItIs) {
  SmallCascade whole;
  diagnosis_of(whole.builder);
  const std::size_t most = whole.builder.run.rows_read;
  ASSERT_GT(most, 0U);
  for (std::size_t rows = 0; rows < most; rows += 7) {
    SmallCascade made;
    made.builder.run.rows_until_stop = rows;
    RecordingView run(made.builder.run, made.builder.tensors);
    PlainArithmetic arithmetic;
    DiagnoseOptions options;
    options.recompute = false;
    const bool ended = diagnose(run, arithmetic, options).has_value();
    EXPECT_EQ(ended, made.builder.run.status().has_value()) << "after " << rows;
  }
}

TEST(Diagnose, AStopThatWasAskedForIsAnError) {
  SmallCascade made;
  RecordingView run(made.builder.run, made.builder.tensors);
  PlainArithmetic arithmetic;
  std::stop_source stop;
  stop.request_stop();
  DiagnoseOptions options;
  options.stop = stop.get_token();
  EXPECT_FALSE(diagnose(run, arithmetic, options).has_value());
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
  EXPECT_THAT(classes(found), ElementsAre("invalid-op"));
  EXPECT_EQ(found.spread.bad_tokens, 300);
}

}  // namespace
}  // namespace nanscope
