#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "instrument/diagnosis/diagnosis.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope {
namespace {

using testing::constant;
using testing::Fill;
using ::testing::HasSubstr;
using testing::RunBuilder;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// A softmax over three tokens and keys, in which the scores of `key` are NaN.
class Softmax {
 public:
  explicit Softmax(std::int64_t key, const Fill& probability) {
    b.request(0, {5, 6, 7});
    b.step(0, 0, 0, 3);
    b.op(0, "scores", "attention_scores", {});
    const auto scores = b.output("out", {3, 3, 0, 1}, [=](auto, auto at) { return at == key ? kNan : 1.0F; });
    b.op(0, "softmax", "softmax", {{"scores", scores}}, R"({"heads":1,"first_position":0,"first_key":0})");
    const auto probs = b.output("probs", {3, 3, 0, 1}, probability);
    b.op(-1, "lm_head", "gemm", {{"x", probs}});
    b.output("logits", {3, 4, 0, 1}, [=](auto row, auto) { return probability(row, 0) + 1; });
  }

  Diagnosis diagnosis() {
    Result<Diagnosis> found = diagnose(b.run, b.tensors, "here");
    EXPECT_TRUE(found.has_value());
    return found.value_or(Diagnosis{});
  }

  RunBuilder b;
};

/// Rows that may see key 1 are zeros, the others as they should be.
float guarded(std::int64_t row, std::int64_t key) { return row == 0 && key == 0 ? 1.0F : 0.0F; }

TEST(NanLaundered, ASoftmaxThatMakesZerosOfAVisibleNanIsOne) {
  Softmax run(1, guarded);
  const Diagnosis found = run.diagnosis();
  ASSERT_EQ(found.faults.size(), 1U);
  EXPECT_EQ(found.faults[0].fault_class, "nan-laundered");
  EXPECT_EQ(found.faults[0].where.tokens, (Range{1, 2}));
  EXPECT_THAT(found.faults[0].summary, HasSubstr("2 rows that are NaN or Inf before 0/0/0/softmax.probs"));
}

TEST(NanLaundered, AMaskThatHidesTheNanIsNot) {
  // Key 2 is visible to the last row alone, which is NaN; the mask drops it from the others.
  Softmax run(2, [](auto row, auto key) { return row == 2 ? kNan : key <= row ? 0.5F : 0.0F; });
  for (const Fault& fault : run.diagnosis().faults) EXPECT_NE(fault.fault_class, "nan-laundered");
}

TEST(NanLaundered, WithoutElementsASoftmaxIsLeftAlone) {
  Softmax run(1, guarded);
  run.b.tensors.data.clear();
  EXPECT_TRUE(run.diagnosis().clean());
}

TEST(NanLaundered, TellsWhereTheNanWasBorn) {
  RunBuilder b;
  b.request(0, {5, 6});
  b.step(0, 0, 0, 2);
  b.op(0, "attn_norm", "layer_norm", {});
  const auto x = b.output("out", {2, 4, 0, 1}, constant(1));
  b.op(0, "k_proj", "gemm", {{"x", x}});
  const auto k = b.output("out", {2, 4, 0, 1}, [](auto row, auto) { return row == 1 ? kNan : 1.0F; });
  b.op(0, "kv_store", "kv_store", {{"k", k}});
  b.output(
      "k_codes", {2, 4, 0, 1}, [](auto row, auto) { return row == 1 ? 448.0F : 1.0F; }, Format::e4m3);
  b.op(-1, "lm_head", "gemm", {{"x", x}});
  b.output("logits", {2, 4, 0, 1}, constant(1));
  const Result<Diagnosis> found = diagnose(b.run, b.tensors, "here");
  ASSERT_TRUE(found);
  ASSERT_EQ(found->faults.size(), 1U);
  EXPECT_EQ(found->faults[0].tensor, "0/0/0/kv_store.k_codes");
  EXPECT_THAT(found->faults[0].summary, HasSubstr("1 row that is NaN or Inf before"));
  EXPECT_THAT(found->faults[0].summary, HasSubstr("born in 0/0/0/k_proj.out"));
}

}  // namespace
}  // namespace nanscope
