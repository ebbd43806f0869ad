#include "gui/paint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "gui/platform/platform.h"
#include "gui/theme.h"

namespace nanscope::gui {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class Wrap : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Platform>> opened = open_egl_platform({200, 200}, Drawing::when_read);
    ASSERT_TRUE(opened) << opened.error().message;
    platform_ = std::move(*opened);
    font = load_fonts(1).mono;
    platform_->begin_frame();  // only then are the letters measured
    platform_->end_frame();
    letter = text_size(font, "m").x;
  }

  std::vector<std::string> wrapped(std::string_view text, int letters, int max_lines = 0) const {
    return wrap(font, text, letter * (static_cast<float>(letters) + 0.5F), max_lines);
  }

  std::unique_ptr<Platform> platform_;
  ImFont* font = nullptr;
  float letter = 1;
};

TEST_F(Wrap, BreaksAtSpaces) { EXPECT_THAT(wrapped("one two three", 8), ElementsAre("one two", "three")); }

TEST_F(Wrap, BreaksWordsThatAreWiderThanALineAtTheirJoints) {
  EXPECT_THAT(wrapped("of model.layers.norm is", 13), ElementsAre("of", "model.layers.", "norm is"));
  EXPECT_THAT(wrapped("abcdefghij", 4), ElementsAre("abcd", "efgh", "ij"));
}

TEST_F(Wrap, EndsWhateverTheTextIs) {
  for (const std::string_view text : {"", " ", "  a", "\u00E4\u00F6\u00FC\u00DF", "a\u2026b"}) {
    for (const int letters : {0, 1, 2}) {
      std::string joined;
      for (const std::string& words : wrapped(text, letters)) joined += words;
      EXPECT_LE(joined.size(), text.size());
      for (const char c : text) EXPECT_TRUE(c == ' ' || joined.find(c) != std::string::npos);
    }
  }
}

TEST_F(Wrap, AShortenedNameKeepsItsEnds) {
  const auto short_of = [&](std::string_view text, int letters) {
    return shortened(font, text, letter * (static_cast<float>(letters) + 0.5F));
  };
  EXPECT_EQ(short_of("down_proj", 9), "down_proj");
  EXPECT_EQ(short_of("down_proj_as_read", 9), "down\u2026read");
  EXPECT_EQ(short_of("\u00E4\u00E4\u00E4\u00E4\u00E4\u00E4", 3), "\u00E4\u2026\u00E4");
  EXPECT_EQ(short_of("down_proj", 0), "");
}

TEST_F(Wrap, TheLastOfAFewLinesSaysThatThereIsMore) {
  const auto lines = wrapped("one two three four", 6, 2);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_TRUE(lines[1].ends_with("\u2026"));
}

}  // namespace
}  // namespace nanscope::gui
