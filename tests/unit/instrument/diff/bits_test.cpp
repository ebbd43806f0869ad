#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/run/recording_view.h"
#include "instrument/diff/diff.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope {
namespace {

using testing::constant;
using ::testing::HasSubstr;
using testing::RunBuilder;

/// Two steps of two ops; the value of the second op of the second step is given.
RunBuilder small_run(float value, bool extra_op = false, std::int64_t steps = 2) {
  RunBuilder b;
  b.request(4, {1, 2});
  for (std::int64_t step = 0; step < steps; ++step) {
    b.step(4, step, step == 0 ? 0 : 1 + step, step == 0 ? 2 : 1);
    const std::int64_t tokens = step == 0 ? 2 : 1;
    b.op(0, "q_proj", "gemm", {});
    b.output("out", {tokens, 3, step == 0 ? 0 : 1 + step, 1}, constant(1));
    if (extra_op && step == 0) {
      b.op(0, "q_norm", "layer_norm", {});
      b.output("out", {tokens, 3, 0, 1}, constant(2));
    }
    b.op(0, "o_proj", "gemm", {});
    b.output("out", {tokens, 3, step == 0 ? 0 : 1 + step, 1},
             [&](auto, auto channel) { return step == 1 && channel == 2 ? value : 4.0F; });
  }
  return b;
}

DiffReport diff_of(RunBuilder& a, RunBuilder& b, std::size_t limit = 1) {
  RecordingView left(a.run, a.tensors);
  RecordingView right(b.run, b.tensors);
  Result<DiffReport> report = diff(left, right, {limit, {}, nullptr});
  EXPECT_TRUE(report.has_value());
  return report.value_or(DiffReport{});
}

TEST(Diff, EqualRunsAreTheSame) {
  RunBuilder a = small_run(5);
  RunBuilder b = small_run(5);
  const DiffReport report = diff_of(a, b);
  EXPECT_TRUE(report.same());
  EXPECT_EQ(report.compared, 4U);
  EXPECT_EQ(a.tensors.fetches, 0);  // hashes decide
}

TEST(Diff, NamesTheFirstElementThatDiffers) {
  RunBuilder a = small_run(5);
  RunBuilder b = small_run(5.0000005F);
  const DiffReport report = diff_of(a, b);
  EXPECT_EQ(report.differing, 1U);
  ASSERT_EQ(report.differences.size(), 1U);
  const Difference& first = report.differences[0];
  EXPECT_EQ(first.kind, DifferenceKind::content);
  EXPECT_EQ(place_text(first.where), "4/1/0/o_proj.out[2,2]");
  ASSERT_TRUE(first.elements && first.elements->first);
  EXPECT_EQ(first.elements->first->ulps, 1U);
  EXPECT_EQ(first.elements->differing, 1U);
  EXPECT_THAT(first.summary, HasSubstr("1 ulp apart"));
}

TEST(Diff, WithoutElementsTheHashesAreShown) {
  RunBuilder a = small_run(5);
  RunBuilder b = small_run(6);
  a.tensors.data.clear();
  b.tensors.data.clear();
  EXPECT_THAT(diff_of(a, b).differences.at(0).summary, HasSubstr("not available"));
}

TEST(Diff, AnOpOfOneSideAloneIsADivergenceWhereItStands) {
  RunBuilder a = small_run(5);
  RunBuilder b = small_run(6, true);
  const DiffReport report = diff_of(a, b, 9);
  EXPECT_EQ(report.unmatched, 1U);
  EXPECT_EQ(report.differing, 1U);
  ASSERT_EQ(report.differences.size(), 2U);
  EXPECT_EQ(report.differences[0].kind, DifferenceKind::only_in_b);
  EXPECT_EQ(place_text(report.differences[0].where), "4/0/0/q_norm.out");
  const DiffReport reversed = diff_of(b, a, 9);
  EXPECT_EQ(reversed.differences.at(0).kind, DifferenceKind::only_in_a);
}

TEST(Diff, AStepOfOneSideAlone) {
  RunBuilder a = small_run(5, false, 3);
  RunBuilder b = small_run(5, false, 2);
  EXPECT_EQ(diff_of(a, b).unmatched, 2U);
  EXPECT_EQ(diff_of(b, a).differences.at(0).kind, DifferenceKind::only_in_b);
  EXPECT_FALSE(diff_of(b, a).same());
}

TEST(Diff, ShapesAndFormatsAreCompared) {
  RunBuilder a = small_run(5);
  RunBuilder b = small_run(5);
  b.run.tensor_rows[0].format = Format::bf16;
  b.run.tensor_rows[1].channels = 9;
  const DiffReport report = diff_of(a, b, 9);
  ASSERT_EQ(report.differences.size(), 2U);
  EXPECT_EQ(report.differences[0].kind, DifferenceKind::shape);
  EXPECT_THAT(report.differences[0].summary, HasSubstr("2 x 3 f32 in A, 2 x 3 bf16 in B"));
  EXPECT_EQ(report.differences[1].kind, DifferenceKind::shape);
}

TEST(Diff, CountsAllButDescribesUpToTheLimit) {
  RunBuilder a = small_run(5);
  RunBuilder b = small_run(5);
  for (TensorRow& row : b.run.tensor_rows) row.hash ^= 1;
  const DiffReport report = diff_of(a, b, 2);
  EXPECT_EQ(report.differing, 4U);
  EXPECT_EQ(report.differences.size(), 2U);
  EXPECT_THAT(report.differences[0].summary, HasSubstr("a hash is wrong"));
}

TEST(Diff, EmptyRunsAreTheSame) {
  RunBuilder a;
  RunBuilder b;
  EXPECT_TRUE(diff_of(a, b).same());
  EXPECT_EQ(to_json(diff_of(a, b))["same"], true);
}

TEST(Diff, JsonNamesTheElement) {
  RunBuilder a = small_run(5);
  RunBuilder b = small_run(6);
  const nlohmann::ordered_json json = to_json(diff_of(a, b));
  EXPECT_EQ(json["same"], false);
  EXPECT_EQ(json["differences"][0]["first"]["code_a"], "0x40A00000");
  EXPECT_EQ(json["differences"][0]["first"]["b"], 6.0);
}

TEST(Diff, AFailedReadOfEitherSideIsAnError) {
  RunBuilder a = small_run(5);
  RunBuilder b = small_run(5);
  b.run.error = Error{"gone"};
  RecordingView left(a.run, a.tensors);
  RecordingView right(b.run, b.tensors);
  EXPECT_FALSE(diff(left, right).has_value());
  EXPECT_FALSE(diff(right, left).has_value());
}

}  // namespace
}  // namespace nanscope
