#include "gui/prepare/story.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nanscope::gui {
namespace {

Where at(std::int64_t op, const std::string& name) {
  Where where;
  where.request = 2;
  where.step = 0;
  where.layer = 1;
  where.op = name;
  where.role = "out";
  where.op_id = op;
  where.tensor_id = op;
  where.tokens = Range{7, 9};
  where.channels = Range{3, 4};
  return where;
}

Link link(int number, LinkState state, Where where = {}) {
  return {number, "id", "title", state, std::move(where), {{"rows_looked_at", std::int64_t{20}}}, "summary"};
}

TEST(Story, TellsFoundAndMissingLinks) {
  Cascade cascade;
  cascade.links = {link(1, LinkState::found, at(5, "norm")), link(2, LinkState::not_reached)};
  const Story story = make_story({}, cascade);
  ASSERT_EQ(story.links.size(), 2U);
  EXPECT_EQ(story.links[0].place, "2/0/1/norm.out[7,3]");
  ASSERT_TRUE(story.links[0].target);
  EXPECT_EQ(to_string(story.links[0].target->place), story.links[0].place);
  EXPECT_EQ(story.links[0].evidence[0].first, "rows looked at");
  EXPECT_EQ(story.links[0].evidence[0].second, "20");
  EXPECT_FALSE(story.links[1].target) << "nothing to go to";
}

TEST(Story, EventsAreInTheOrderOfTheRunAndEachOpOnce) {
  Cascade cascade;
  cascade.links = {link(1, LinkState::found, at(9, "late")), link(2, LinkState::found, at(5, "early")),
                   link(3, LinkState::found, at(9, "late")), link(4, LinkState::not_reached, at(7, "never"))};
  const Story story = make_story({}, cascade);
  std::vector<std::int64_t> ops;
  for (const StoryEvent& event : story.events) ops.push_back(event.op);
  EXPECT_THAT(ops, ::testing::ElementsAre(5, 9));
}

TEST(Story, OriginIsWhereItBreaksElseTheCause) {
  Diagnosis diagnosis;
  Fault cause;
  cause.fault_class = "kv-scale-locked";
  cause.where = at(5, "kv_store");
  cause.summary = "why";
  cause.fix = "how";
  diagnosis.faults = {cause};
  diagnosis.root_cause = 0;
  EXPECT_EQ(make_story(diagnosis, {}).origin->place.op, "kv_store");
  Fault birth = cause;
  birth.where = at(8, "inner_norm");
  birth.breaks = true;
  diagnosis.faults.push_back(birth);
  const Story story = make_story(diagnosis, {});
  EXPECT_EQ(story.origin->place.op, "inner_norm");
  EXPECT_EQ(story.headline, "kv-scale-locked");
  EXPECT_EQ(story.cause, "why");
  EXPECT_EQ(story.fix, "how");
}

TEST(Story, CleanRunSaysSo) {
  const Story story = make_story({}, {});
  EXPECT_TRUE(story.clean);
  EXPECT_EQ(story.headline, "No fault found");
  EXPECT_FALSE(story.origin);
  EXPECT_TRUE(story.cause.empty());
}

}  // namespace
}  // namespace nanscope::gui
