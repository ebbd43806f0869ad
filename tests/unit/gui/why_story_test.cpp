#include "gui/prepare/why_story.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/unit/gui/built_view.h"
#include "tests/unit/instrument/diagnosis/small_cascade.h"

namespace nanscope::gui {
namespace {

using nanscope::testing::SmallCascade;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

WhyStory story_of(SmallCascade& made, const std::string& tensor) {
  const Result<WhyPath> path = why(BuiltView(made.builder), Element{made.tensor.at(tensor), 0, 0});
  EXPECT_TRUE(path) << path.error().message;
  return tell_why(BuiltView(made.builder), path.value_or(WhyPath{}));
}

TEST(WhyStory, AsksWhyAnElementIsNaN) {
  SmallCascade made;
  const WhyStory story = story_of(made, "3/-1/lm_head.logits");
  EXPECT_EQ(story.question, "Why is 3/0/-/lm_head.logits[0,0] NaN?");
  EXPECT_EQ(story.hops.front().value, "NaN");
  EXPECT_THAT(story.hops.front().bits, HasSubstr("f32 0x7F"));
  EXPECT_THAT(story.conclusion, HasSubstr("request 0 step 0"));
  EXPECT_TRUE(story.notice.empty());
}

TEST(WhyStory, MarksOneBirthAndOneSetting) {
  SmallCascade made;
  const WhyStory story = story_of(made, "3/-1/lm_head.logits");
  const auto births = std::count_if(story.hops.begin(), story.hops.end(), [](const WhyHop& hop) { return hop.birth; });
  EXPECT_EQ(births, 1);
  const auto birth = std::find_if(story.hops.begin(), story.hops.end(), [](const WhyHop& hop) { return hop.birth; });
  EXPECT_EQ(birth->place, "1/0/0/inner_norm.out[1,0]");
  EXPECT_TRUE(birth->bad);
  EXPECT_FALSE(std::next(birth)->bad);
  EXPECT_TRUE(story.hops.back().setting);
  EXPECT_EQ(story.hops.back().kind, HopKind::scale);
  EXPECT_EQ(story.hops.back().target->place.role, "v_codes") << "a place that exists, unlike the ledger's v";
}

TEST(WhyStory, HeadsEachStepThatTheWayEnters) {
  SmallCascade made;
  const WhyStory story = story_of(made, "3/-1/lm_head.logits");
  std::vector<std::string> requests;
  for (const WhyHop& hop : story.hops) {
    if (!hop.heading.empty()) requests.push_back(hop.heading.substr(0, 9));
  }
  EXPECT_THAT(requests, ElementsAre("request 3", "request 1"));
}

TEST(WhyStory, ASlotIsNamedByItsBlock) {
  SmallCascade made;
  const WhyStory story = story_of(made, "3/-1/lm_head.logits");
  const auto slot =
      std::find_if(story.hops.begin(), story.hops.end(), [](const WhyHop& hop) { return hop.kind == HopKind::slot; });
  ASSERT_NE(slot, story.hops.end());
  EXPECT_THAT(slot->place, ::testing::MatchesRegex("KV cache, block [0-9]+ slot [0-9]+"));
}

TEST(WhyStory, FindsTheHopOfAPlaceAndKeepsToTheOneThatWasClicked) {
  SmallCascade made;
  const WhyStory story = story_of(made, "3/-1/lm_head.logits");
  const Selection read = *story.hops[7].target;
  ASSERT_EQ(*story.hops[8].target, read) << "a read and the slot that was read are at one place";
  EXPECT_EQ(story.find(read), 7U);
  EXPECT_EQ(story.find(read, 8), 8U);
  EXPECT_EQ(story.find(read, 3), 7U) << "the third is elsewhere";
  EXPECT_FALSE(story.find(Selection{}));
}

/// A hop at a step of a request; without a request, one that has no place.
Hop hop_at(HopKind kind, std::optional<std::int64_t> request, std::int64_t step, std::optional<float> value = {}) {
  Hop hop;
  hop.kind = kind;
  hop.value = value;
  if (!request) return hop;
  hop.where.request = request;
  hop.where.step = step;
  hop.where.layer = 0;
  hop.where.op = "q_proj";
  hop.where.role = "out";
  return hop;
}

TEST(WhyStory, TellsInfinitiesApartAndTheirSign) {
  SmallCascade made;
  const float infinity = std::numeric_limits<float>::infinity();
  WhyPath path;
  path.hops = {hop_at(HopKind::element, 0, 0, infinity), hop_at(HopKind::element, 0, 0, -infinity)};
  const WhyStory story = tell_why(BuiltView(made.builder), path);
  EXPECT_EQ(story.question, "Why is 0/0/0/q_proj.out Inf?");
  EXPECT_EQ(story.hops[1].value, "-Inf");
}

TEST(WhyStory, AWeightAtTheEndIsASettingToo) {
  SmallCascade made;
  WhyPath path;
  path.hops = {hop_at(HopKind::weight, 0, 0), hop_at(HopKind::weight, {}, 0)};
  path.stopped = "the weight is the cause";
  const WhyStory story = tell_why(BuiltView(made.builder), path);
  EXPECT_FALSE(story.hops[0].setting) << "the way goes on";
  EXPECT_TRUE(story.hops[1].setting);
  EXPECT_EQ(story.stopped, "the weight is the cause");
}

TEST(WhyStory, HeadingsNameRequestAndStepOnceEach) {
  SmallCascade made;
  made.builder.run.request_rows[0].name = "hello";
  made.builder.step(0, 1, 2, 1);
  WhyPath path;
  path.hops = {hop_at(HopKind::element, 0, 1), hop_at(HopKind::weight, {}, 0), hop_at(HopKind::element, 0, 1),
               hop_at(HopKind::element, 0, 0)};
  std::vector<std::string> headings;
  for (const WhyHop& hop : tell_why(BuiltView(made.builder), path).hops) headings.push_back(hop.heading);
  EXPECT_THAT(headings, ElementsAre("request 0 \u00B7 hello \u00B7 decode step 1", "", "",
                                    "request 0 \u00B7 hello \u00B7 prefill"));
}

TEST(WhyStory, WithoutAWayThereIsANotice) {
  SmallCascade made;
  EXPECT_EQ(tell_why(BuiltView(made.builder), {}).notice, "Nothing is known about this element");
}

TEST(WhyStory, NumbersHaveReadableNames) {
  SmallCascade made;
  WhyPath path;
  path.hops = {hop_at(HopKind::element, 0, 0)};
  path.hops[0].numbers = {{"calibrated_tokens", std::int64_t{11}}};
  const WhyStory story = tell_why(BuiltView(made.builder), path);
  ASSERT_EQ(story.hops[0].numbers.size(), 1U);
  EXPECT_EQ(story.hops[0].numbers[0], std::pair(std::string("calibrated tokens"), std::string("11")));
}

TEST(WhyStory, AHealthyElementIsAskedForItsOrigin) {
  SmallCascade made;
  const WhyStory story = story_of(made, "0/0/q_proj.out");
  EXPECT_THAT(story.question, ::testing::StartsWith("Where does 0/0/0/q_proj.out[0,0] = "));
}

}  // namespace
}  // namespace nanscope::gui
