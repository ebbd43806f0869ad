#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "instrument/diagnosis/diagnosis.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope {
namespace {

using testing::Fill;
using ::testing::HasSubstr;
using testing::RunBuilder;

/// A softmax over three tokens with two heads and four keys, of which the last is nobody's.
Diagnosis diagnosis_of(const Fill& probability, std::int64_t first_token = 0, bool elements = true) {
  RunBuilder b;
  b.request(0, {5, 6, 7});
  b.step(0, 0, first_token, 3);
  b.op(0, "softmax", "softmax", {}, R"({"heads":2})");
  b.output("probs", {3, 2 * (first_token + 4), first_token, 2}, probability);
  if (!elements) b.tensors.data.clear();
  Result<Diagnosis> found = diagnose(b.run, b.tensors, "here");
  EXPECT_TRUE(found.has_value());
  return found.value_or(Diagnosis{});
}

TEST(FutureLeakage, ANonzeroProbabilityOfALaterKeyIsOne) {
  const Diagnosis found =
      diagnosis_of([](auto row, auto channel) { return channel % 4 <= row + (channel >= 4 ? 1 : 0) ? 0.25F : 0.0F; });
  ASSERT_EQ(found.faults.size(), 1U);
  const Fault& fault = found.faults[0];
  EXPECT_EQ(fault.fault_class, "future-leakage");
  EXPECT_EQ(fault.where.tokens, (Range{0, 1}));
  EXPECT_FALSE(fault.breaks);
  EXPECT_THAT(fault.summary, HasSubstr("token 0 gives key 1 the probability 0.25 in head 1"));
  EXPECT_EQ(found.root_cause, 0U);
}

TEST(FutureLeakage, TheCountOfZerosProvesItWithoutElements) {
  const Diagnosis found = diagnosis_of([](auto, auto) { return 0.25F; }, 0, false);
  ASSERT_EQ(found.faults.size(), 1U);
  EXPECT_THAT(found.faults[0].summary, HasSubstr("at least 10 probabilities"));
}

TEST(FutureLeakage, ACausalRowIsCleanAlsoBehindCachedTokens) {
  for (const std::int64_t first : {0, 5}) {
    const Diagnosis found = diagnosis_of(
        [=](auto row, auto channel) { return channel % (first + 4) <= first + row ? 0.25F : 0.0F; }, first);
    EXPECT_TRUE(found.clean()) << first;
  }
}

TEST(FutureLeakage, RowsOfNaNAndKeysBeyondTheLastTokenAreNone) {
  const Diagnosis found = diagnosis_of([](auto row, auto channel) {
    if (row == 0) return std::numeric_limits<float>::quiet_NaN();
    return channel % 4 <= row || (row == 2 && channel % 4 == 3) ? 0.25F : 0.0F;
  });
  for (const Fault& fault : found.faults) EXPECT_NE(fault.fault_class, "future-leakage");
}

TEST(FutureLeakage, ProbabilitiesThatUnderflowedAreNoProofOfAMask) {
  const Diagnosis found = diagnosis_of([](auto, auto channel) { return channel % 4 == 0 ? 1.0F : 0.0F; });
  EXPECT_TRUE(found.clean());
}

}  // namespace
}  // namespace nanscope
