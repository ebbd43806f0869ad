#include "gui/navigator.h"

#include <gtest/gtest.h>

namespace nanscope::gui {
namespace {

/// One request of two steps, each of `rows` ops of layer 0 on one token.
std::shared_ptr<const RunMap> two_steps(std::size_t rows) {
  auto map = std::make_shared<RunMap>();
  for (std::size_t r = 0; r < rows; ++r) map->rows.push_back({"op" + std::to_string(r), 0, "layer 0"});
  for (std::size_t s = 0; s < 2; ++s) {
    MapStep step;
    step.row.index = static_cast<std::int64_t>(s);
    step.first_column = static_cast<std::int64_t>(s);
    step.tokens = 1;
    step.first_op = map->ops.size();
    map->step_of.emplace(std::tuple{0, 0, step.row.index}, s);
    map->steps.push_back(step);
    for (std::size_t r = 0; r < rows; ++r) {
      map->ops.push_back({static_cast<std::int64_t>(map->ops.size()) + 1, static_cast<std::uint32_t>(s),
                          static_cast<std::uint32_t>(r)});
    }
  }
  map->columns = 2;
  map->cells.assign(rows * 2, kZero);
  return map;
}

std::shared_ptr<const Story> story_of(const RunMap& map, std::initializer_list<std::size_t> ops) {
  auto story = std::make_shared<Story>();
  for (const std::size_t op : ops) story->events.push_back({map.ops[op].id, "event", {map.place_of_op(op), {}}});
  if (!story->events.empty()) story->origin = story->events.front().target;
  return story;
}

class NavigatorTest : public ::testing::Test {
 protected:
  void SetUp() override { navigator.set_map(two_steps(50)); }
  Navigator navigator;
};

TEST_F(NavigatorTest, GoesToTheOriginUnlessAPlaceWasAskedFor) {
  navigator.set_story(story_of(*navigator.map(), {42}));
  EXPECT_EQ(navigator.position(), 42U);

  Navigator told;
  told.set_map(navigator.map());
  told.choose({navigator.map()->place_of_op(7), {}});
  told.set_story(story_of(*navigator.map(), {42}));
  EXPECT_EQ(told.position(), 7U);
}

TEST_F(NavigatorTest, ACleanRunBeginsWithItsFirstOp) {
  Navigator early;
  early.set_story(story_of(*navigator.map(), {}));
  EXPECT_EQ(early.selection(), Selection{}) << "nothing is known yet";
  early.set_map(navigator.map());
  EXPECT_EQ(early.selection().place, navigator.map()->place_of_op(0));

  navigator.set_story(story_of(*navigator.map(), {}));
  EXPECT_EQ(navigator.selection().place, navigator.map()->place_of_op(0));
}

TEST_F(NavigatorTest, AFaultWithoutAnOriginBeginsWithWhatHappenedFirst) {
  auto story = std::make_shared<Story>(*story_of(*navigator.map(), {10, 60}));
  story->origin.reset();
  navigator.set_story(story);
  EXPECT_EQ(navigator.position(), 10U);
}

TEST_F(NavigatorTest, VisitsEventsInOrderAndStartsAgain) {
  navigator.set_story(story_of(*navigator.map(), {10, 60, 90}));
  std::vector<std::size_t> visited;
  for (int i = 0; i < 4; ++i) {
    navigator.next_event();
    visited.push_back(navigator.position());
  }
  EXPECT_EQ(visited, (std::vector<std::size_t>{60, 90, 10, 60}));
}

TEST_F(NavigatorTest, VisitsEveryLinkOfTheChainAlsoTwoAtOnePlaceAndOneThatGoesBack) {
  auto story = std::make_shared<Story>(*story_of(*navigator.map(), {10, 60, 60, 20}));
  for (std::size_t i = 0; i < story->events.size(); ++i) story->events[i].target.link = static_cast<int>(i) + 1;
  story->origin = story->events[1].target;
  navigator.set_story(story);
  EXPECT_EQ(navigator.selection().link, 2);
  std::vector<int> links;
  for (int i = 0; i < 4; ++i) {
    navigator.next_event();
    links.push_back(navigator.selection().link);
  }
  EXPECT_EQ(links, (std::vector<int>{3, 4, 1, 2}));
  navigator.last_event();
  EXPECT_EQ(navigator.selection().link, 1);
  navigator.last_event();
  EXPECT_EQ(navigator.selection().link, 4);
}

TEST_F(NavigatorTest, PlaysFromTheSelectionAtTheSpeedThatWasChosen) {
  navigator.choose({navigator.map()->place_of_op(50), {}});
  navigator.change_speed(1);
  navigator.play(true);
  EXPECT_EQ(navigator.playhead(), 50U);
  navigator.advance(Navigator::kPlaySeconds / 8);
  EXPECT_EQ(navigator.playhead(), 75U) << "a quarter of the run in an eighth of the time";
  navigator.change_speed(-100);
  EXPECT_EQ(navigator.speed(), 1.0 / 16);
  EXPECT_EQ(speed_text(navigator.speed()), "\u00D7 1/16");
  navigator.choose({navigator.map()->place_of_op(99), {}});
  navigator.play(true);
  EXPECT_EQ(navigator.playhead(), 0U) << "from the end, from the start";
}

TEST_F(NavigatorTest, StepsByOpAndStopsAtTheEnds) {
  navigator.seek(98);
  navigator.step(1);
  navigator.step(1);
  EXPECT_EQ(navigator.position(), 99U);
  navigator.seek(0);
  navigator.step(-1);
  EXPECT_EQ(navigator.position(), 0U);
}

TEST_F(NavigatorTest, PlaysEveryOpOnceInItsTime) {
  navigator.play(true);
  EXPECT_EQ(navigator.playhead(), 0U);
  double seconds = 0;
  std::size_t last = 0;
  for (; navigator.playing() && seconds < 60; seconds += 1.0 / 60) {
    navigator.advance(1.0 / 60);
    if (navigator.playhead()) {
      EXPECT_LE(*navigator.playhead() - last, 1U) << "no op is passed over";
      last = *navigator.playhead();
    }
  }
  EXPECT_NEAR(seconds, Navigator::kPlaySeconds, 0.5);
  EXPECT_FALSE(navigator.playhead()) << "in the end the whole run is shown";
}

TEST_F(NavigatorTest, PausesWhereItIsAndChoosingShowsTheWholeRun) {
  navigator.play(true);
  navigator.advance(4);
  navigator.play(false);
  EXPECT_EQ(navigator.playhead(), 25U);
  navigator.play(true);
  EXPECT_EQ(navigator.playhead(), 25U);
  navigator.choose({navigator.map()->place_of_op(3), {}});
  EXPECT_FALSE(navigator.playhead());
  EXPECT_FALSE(navigator.playing());
}

TEST_F(NavigatorTest, PlayingIsOneStopOfTheHistory) {
  navigator.choose({navigator.map()->place_of_op(7), {}});
  navigator.choose({navigator.map()->place_of_op(8), {}});
  navigator.play(true);
  navigator.advance(2);
  navigator.back();
  EXPECT_EQ(navigator.position(), 7U);
}

TEST_F(NavigatorTest, AnotherStepKeepsTheOp) {
  navigator.choose({navigator.map()->place_of_op(7), {}});
  navigator.choose_step(navigator.map()->steps[1]);
  EXPECT_EQ(navigator.position(), 57U);
}

TEST(Navigator, WithoutARecordingNothingMoves) {
  Navigator navigator;
  navigator.play(true);
  navigator.advance(1);
  navigator.step(1);
  navigator.next_event();
  navigator.go_to_origin();
  EXPECT_EQ(navigator.selection(), Selection{});
  EXPECT_FALSE(navigator.playing());
}

}  // namespace
}  // namespace nanscope::gui
