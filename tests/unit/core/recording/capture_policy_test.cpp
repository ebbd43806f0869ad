#include "core/recording/capture_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nanscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(CapturePolicy, WantsWhatItSays) {
  const auto wants = [](const char* policy, const char* op, const char* role) {
    return CapturePolicy::parse(policy)->wants(op, role);
  };
  EXPECT_EQ(wants("all", "q_proj", "out"), Capture::write);
  EXPECT_EQ(wants("none", "q_proj", "out"), Capture::skip);
  EXPECT_EQ(wants("ring:3", "q_proj", "out"), Capture::hold);
  EXPECT_EQ(CapturePolicy::parse("ring:3")->ring_steps(), 3);
  const char* named = "named:scores,kv_store.k_codes,lm_head.*";
  EXPECT_EQ(wants(named, "attention", "scores"), Capture::write);
  EXPECT_EQ(wants(named, "kv_store", "k_codes"), Capture::write);
  EXPECT_EQ(wants(named, "kv_store", "v_codes"), Capture::skip);
  EXPECT_EQ(wants(named, "other", "k_codes"), Capture::skip);
  EXPECT_EQ(wants(named, "lm_head", "anything"), Capture::write);
}

TEST(CapturePolicy, TextParsesBack) {
  for (const char* text : {"all", "none", "ring:12", "named:scores", "named:kv_store.k_codes,lm_head.*,out"}) {
    EXPECT_EQ(CapturePolicy::parse(text)->text(), text);
  }
}

TEST(CapturePolicy, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"", "al", "all:", "ring", "ring:", "ring:0", "ring:-1", "ring:3x", "ring:99999999999",
                           "named", "named:", "named:a,", "named:.x", "named:x."}) {
    const auto policy = CapturePolicy::parse(text);
    ASSERT_FALSE(policy) << text;
    EXPECT_THAT(policy.error().message, HasSubstr("capture policy '" + std::string(text) + "'"));
  }
}

std::vector<std::int64_t> ids(const std::vector<CaptureRing::Tensor>& tensors) {
  std::vector<std::int64_t> out;
  for (const auto& tensor : tensors) out.push_back(tensor.id);
  return out;
}

TEST(CaptureRing, GivesOutTheStepsAroundTheFirstFault) {
  CaptureRing ring(2, 1 << 20);
  const auto push = [&](std::int64_t step, bool bad, std::int64_t id) {
    return ids(ring.push(step, bad, {id, std::vector<std::byte>(10)}));
  };
  for (std::int64_t step = 1; step <= 4; ++step) EXPECT_THAT(push(step, false, step * 10), ElementsAre());
  EXPECT_EQ(ring.held_bytes(), 30U) << "steps 2, 3 and the running one";
  EXPECT_THAT(push(5, false, 50), ElementsAre());
  EXPECT_FALSE(ring.triggered());
  EXPECT_THAT(push(5, true, 51), ElementsAre(30, 40, 50, 51));
  EXPECT_TRUE(ring.triggered());
  EXPECT_EQ(ring.held_bytes(), 0U);
  EXPECT_THAT(push(5, true, 52), ElementsAre(52));
  EXPECT_THAT(push(7, false, 70), ElementsAre(70));
  EXPECT_THAT(push(8, true, 80), ElementsAre());
  EXPECT_EQ(ring.dropped(), 0);
}

TEST(CaptureRing, KeepsToItsBudget) {
  CaptureRing ring(100, 25);
  for (std::int64_t id = 1; id <= 4; ++id) EXPECT_TRUE(ring.push(1, false, {id, std::vector<std::byte>(10)}).empty());
  EXPECT_EQ(ring.held_bytes(), 20U);
  EXPECT_EQ(ring.dropped(), 2);
  EXPECT_THAT(ids(ring.push(1, true, {5, {}})), ElementsAre(3, 4, 5));
  CaptureRing none(1, 5);
  EXPECT_TRUE(none.push(1, false, {1, std::vector<std::byte>(6)}).empty());
  EXPECT_EQ(none.held_bytes(), 0U);
}

}  // namespace
}  // namespace nanscope
