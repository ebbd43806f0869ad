#include "instrument/diagnosis/chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/one_step.h"
#include "tests/unit/instrument/diagnosis/small_cascade.h"

/// What a chain must hold follows from how each run is made.
namespace nanscope {
namespace {

using testing::CascadeOptions;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsSubsetOf;
using testing::kNan;
using ::testing::Not;
using testing::OneStep;
using testing::SmallCascade;

std::vector<std::string> kinds(const Diagnosis& diagnosis) {
  std::vector<std::string> all;
  for (const Event& event : diagnosis.chain) all.push_back(event.kind);
  return all;
}

/// The kinds on the way back from the first event of a kind, which comes last.
std::vector<std::string> way_to(const Diagnosis& diagnosis, const std::string& kind) {
  std::vector<std::string> way;
  const auto last = std::find_if(diagnosis.chain.begin(), diagnosis.chain.end(),
                                 [&](const Event& event) { return event.kind == kind; });
  if (last == diagnosis.chain.end()) return way;
  std::optional<std::size_t> at = static_cast<std::size_t>(last - diagnosis.chain.begin());
  for (; at; at = diagnosis.chain[*at].because) way.insert(way.begin(), diagnosis.chain[*at].kind);
  return way;
}

void expect_sound(const Diagnosis& diagnosis) {
  std::vector<std::size_t> told;
  for (std::size_t i = 0; i < diagnosis.chain.size(); ++i) {
    const Event& event = diagnosis.chain[i];
    EXPECT_TRUE(!event.because || *event.because < i) << event.kind << " comes before what it is because of";
    EXPECT_FALSE(event.text.empty()) << event.kind;
    if (!event.fault) continue;
    told.push_back(*event.fault);
    EXPECT_EQ(event.kind, diagnosis.faults.at(*event.fault).fault_class);
  }
  std::sort(told.begin(), told.end());
  ASSERT_EQ(told.size(), diagnosis.faults.size()) << "each fault is an event once";
  for (std::size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i], i);
}

TEST(Chain, AHealthyRunHasNone) {
  CascadeOptions options;
  options.image = false;
  SmallCascade run(options);
  EXPECT_TRUE(testing::diagnosis_of(run.builder).chain.empty());
}

/// From the scale that request 0 locks to the token that request 1 answers.
TEST(Chain, LeadsFromTheScaleToTheAnswer) {
  SmallCascade run;
  const Diagnosis diagnosis = testing::diagnosis_of(run.builder);
  expect_sound(diagnosis);
  EXPECT_THAT((std::vector<std::string>{"scale-computed", "scale-locked", "kv-scale-locked", "values-clipped",
                                        "values-identical", "variance-collapse", "nan-in-cache", "nan-logits",
                                        "argmax-nan-fallback", "token"}),
              IsSubsetOf(kinds(diagnosis)));
  const std::vector<std::string> way = way_to(diagnosis, "token");
  ASSERT_FALSE(way.empty());
  EXPECT_EQ(way.front(), "scale-computed");
  EXPECT_THAT(way, Contains("variance-collapse"));
}

/// A variance that is never negative: the scale clips all the same, and nothing comes of it.
TEST(Chain, EndsWhereTheNumbersEnd) {
  CascadeOptions options;
  options.one_pass = false;
  SmallCascade run(options);
  const Diagnosis diagnosis = testing::diagnosis_of(run.builder);
  expect_sound(diagnosis);
  EXPECT_THAT(kinds(diagnosis),
              ElementsAre("scale-computed", "scale-locked", "kv-scale-locked", "values-clipped", "values-identical"));
}

/// An op of a layer that makes NaN of finite values, a sum that takes it up, logits of it: no scale is in it.
TEST(Chain, IsToldForAnyClass) {
  OneStep step;
  const std::int64_t bad = step.add("down_proj", "gemm", {{"x", step.x}}, kNan);
  const std::int64_t sum = step.add("mlp_residual", "residual_add", {{"a", step.x}, {"b", bad}}, kNan);
  step.head(sum, kNan, 0);
  const Diagnosis diagnosis = testing::diagnosis_of(step.b);
  expect_sound(diagnosis);
  EXPECT_THAT(way_to(diagnosis, "argmax-nan-fallback"),
              ElementsAre("invalid-op", "nan-in-residual", "nan-logits", "argmax-nan-fallback"));
  EXPECT_THAT(kinds(diagnosis), Not(Contains("scale-computed")));
}

/// A norm of equal values, and a softmax that makes zeros of its NaN: what is laundered there came through the scores.
TEST(Chain, LeadsToWhatIsLaundered) {
  OneStep step;
  const std::int64_t bad = step.add("k_norm", "layer_norm", {{"x", step.x}}, kNan);
  const std::int64_t scores = step.add("scores", "attention_scores", {{"q", step.x}, {"k", bad}}, kNan);
  step.add("softmax", "softmax", {{"scores", scores}}, 0.0F);
  const Diagnosis diagnosis = testing::diagnosis_of(step.b);
  expect_sound(diagnosis);
  EXPECT_THAT(way_to(diagnosis, "nan-laundered"), ElementsAre("variance-collapse", "nan-in-scores", "nan-laundered"));
}

}  // namespace
}  // namespace nanscope
