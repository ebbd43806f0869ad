#include "gui/palette_items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nanscope::gui {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<Command> commands() {
  return all_commands({.titles = {"Front", "Cascade", "Tensor", "Bits"}, .tabs = {2, 3}, .shown = 2, .dark = true});
}

/// Two requests of one step with two ops each.
RunMap two_requests() {
  RunMap map;
  map.rows = {{"embed", -1, "embed"}, {"kv_store", 1, "layer 1"}};
  for (std::uint32_t r = 0; r < 2; ++r) {
    MapRequest request;
    request.row.id = r;
    request.row.name = r == 0 ? "hello" : "picture";
    request.steps = {r};
    map.requests.push_back(request);
    MapStep step;
    step.row.request = r;
    step.first_column = r;
    step.tokens = 1;
    step.first_op = map.ops.size();
    map.steps.push_back(step);
    map.step_of.emplace(std::tuple<std::int64_t, std::int64_t, std::int64_t>{0, r, 0}, r);
    for (std::uint32_t row = 0; row < 2; ++row) {
      map.ops.push_back({static_cast<std::int64_t>(map.ops.size()) + 1, r, row});
    }
  }
  map.columns = 2;
  return map;
}

std::vector<std::string> titles(const std::vector<PaletteItem>& items) {
  std::vector<std::string> all;
  for (const PaletteItem& item : items) all.push_back(item.title);
  return all;
}

TEST(PaletteItems, HoldCommandsWithTheirKeys) {
  const std::vector<PaletteItem> items = palette_items(commands(), nullptr, nullptr, {}, {});
  const auto next = std::find_if(items.begin(), items.end(),
                                 [](const PaletteItem& item) { return item.title == "To the next event"; });
  ASSERT_NE(next, items.end());
  EXPECT_EQ(next->keys, "N");
  EXPECT_EQ(std::get<Command>(next->target).action, Action::next_event);
  EXPECT_THAT(titles(items), Not(Contains(""))) << "the mouse's gestures are no commands";
}

TEST(PaletteItems, HoldTheOpsOfTheSelectedStep) {
  const RunMap map = two_requests();
  const std::vector<PaletteItem> items = palette_items({}, &map, nullptr, map.place_of_op(3), {});
  ASSERT_THAT(titles(items), ElementsAre("Request 0 hello", "Request 1 picture", "embed", "kv_store of layer 1"));
  EXPECT_EQ(items[3].detail, "1/0/1/kv_store");
  EXPECT_EQ(to_string(std::get<Selection>(items[1].target).place), "1/0/-/embed");
  EXPECT_EQ(palette_items({}, &map, nullptr, {}, {})[3].detail, "0/0/1/kv_store") << "else of the first";
}

TEST(PaletteItems, HoldLinksThatAreSomewhereAndRecentFiles) {
  Story story;
  story.links.resize(2);
  story.links[0].number = 7;
  story.links[0].title = "NaN born";
  story.links[0].target = Selection{};
  const std::vector<fs::path> recent{"/a/run.nanscope"};
  const std::vector<PaletteItem> items = palette_items({}, nullptr, &story, {}, recent);
  ASSERT_THAT(titles(items), ElementsAre("Open run.nanscope", "Show run.nanscope beside", "7 NaN born"));
  EXPECT_EQ(std::get<fs::path>(items[0].target), recent[0]);
  EXPECT_EQ(std::get<BesideFile>(items[1].target).path, recent[0]);
}

TEST(PaletteLines, OfferATypedPlaceFirst) {
  const RunMap map = two_requests();
  const std::vector<PaletteItem> items = palette_items({}, &map, nullptr, {}, {});
  const std::vector<PaletteLine> lines = palette_lines(items, " 0/0/1/kv_store[0,3] ", 10);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(std::get<TypedPlace>(lines[0].item.target).text, "0/0/1/kv_store[0,3]");
  EXPECT_THAT(palette_lines(items, "0/[[", 10), IsEmpty()) << "no place";
  EXPECT_EQ(palette_lines(items, "embed", 10).size(), 1U) << "a name is looked for, not parsed";
}

TEST(PaletteLines, OfferATypedPathFirst) {
  const std::vector<PaletteLine> lines = palette_lines({}, "open /some where/x.nanscope", 10);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(std::get<fs::path>(lines[0].item.target), "/some where/x.nanscope");
  EXPECT_EQ(std::get<fs::path>(palette_lines({}, "x.nanscope", 10).at(0).item.target), "x.nanscope");
  EXPECT_EQ(std::get<BesideFile>(palette_lines({}, "beside  x.nanscope", 10).at(0).item.target).path, "x.nanscope");
}

TEST(PaletteLines, AreAtMostSoMany) {
  const std::vector<PaletteItem> items = palette_items(commands(), nullptr, nullptr, {}, {});
  EXPECT_EQ(palette_lines(items, "", 3).size(), 3U);
  EXPECT_EQ(palette_lines(items, "", 1000).size(), items.size());
}

}  // namespace
}  // namespace nanscope::gui
