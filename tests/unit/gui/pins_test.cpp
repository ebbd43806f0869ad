#include "gui/pins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/read_text.h"
#include "tests/temporary_folder.h"

namespace nanscope::gui {
namespace {

using ::testing::HasSubstr;

Place place_of(const std::string& text) { return *parse_place(text); }

TEST(Pins, AreThereAgainWithTheirNotes) {
  const TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "a.nanscope";
  Pins pins(run);
  ASSERT_TRUE(pins.add(place_of("2/0/1/inner_norm.out[7,3]")));
  ASSERT_TRUE(pins.add(place_of("0/0/0/q_proj.out")));
  ASSERT_TRUE(pins.add(place_of("0/0/0/q_proj.out"))) << "is there already";
  ASSERT_TRUE(pins.note(0, "born \"here\"\n\xF0\x9F\x94\xA5"));
  const Pins again(run);
  EXPECT_EQ(again.all(), pins.all());
  EXPECT_EQ(again.all().size(), 2U);
  ASSERT_TRUE(pins.remove(0));
  EXPECT_EQ(Pins(run).all().size(), 1U);
}

TEST(Pins, OfAFolderLieBesideItNotInIt) {
  EXPECT_EQ(pins_file("/runs/dump/"), "/runs/dump.pins.json");
  EXPECT_EQ(pins_file("/runs/a.nanscope"), "/runs/a.nanscope.pins.json");
}

TEST(Pins, OfTwoWindowsAreAllKept) {
  const TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "a.nanscope";
  Pins first(run);
  ASSERT_TRUE(first.add(place_of("0/0/0/q_proj")));
  Pins second(run);
  ASSERT_TRUE(second.add(place_of("0/0/0/k_proj")));
  ASSERT_TRUE(first.add(place_of("0/0/0/v_proj")));
  EXPECT_EQ(Pins(run).all().size(), 3U);
  ASSERT_TRUE(second.remove(0));
  EXPECT_EQ(Pins(run).all().size(), 2U) << "what was taken away does not come back";
}

TEST(Pins, AFileThatIsNoneIsLeftAsItIs) {
  const TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "a.nanscope";
  for (const std::string text : {"[", "{}", R"({"pins":[{"note":"x"}]})", R"({"pins":[{"place":"///////"}]})",
                                 R"({"pins":[{"place":"0/0/0/q","note":7}]})"}) {
    std::ofstream(pins_file(run), std::ios::trunc) << text;
    Pins pins(run);
    const std::optional<Error> problem = pins.take_problem();
    ASSERT_TRUE(problem) << text;
    EXPECT_THAT(problem->message, HasSubstr("a.nanscope.pins.json: "));
    EXPECT_FALSE(pins.add(place_of("0/0/0/q_proj")));
    EXPECT_EQ(pins.all().size(), 1U) << "lasts as long as the window";
    EXPECT_EQ(nanscope::read_text(pins_file(run)), text);
  }
}

TEST(Pins, AreLimited) {
  const TemporaryFolder folder;
  Pins pins(folder.path() / "a.nanscope");
  EXPECT_TRUE(pins.add(place_of("0/0/0/q_proj")));
  EXPECT_FALSE(pins.note(0, std::string(kMostNote + 1, 'x')));
  EXPECT_EQ(pins.all()[0].note, "");
  EXPECT_FALSE(parse_pins(std::string(100, '[')));
}

}  // namespace
}  // namespace nanscope::gui
