#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "instrument/image/pixel_text.h"

namespace nanscope {
namespace {

constexpr Rgb kWhite{255, 255, 255};

Image black(int width, int height) {
  return {width, height,
          std::vector<std::uint8_t>(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3)};
}

/// One character a pixel.
std::string drawn(const Image& image) {
  std::string text;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      const auto at =
          (static_cast<std::size_t>(y) * static_cast<std::size_t>(image.width) + static_cast<std::size_t>(x)) * 3;
      text += image.rgb[at] != 0 ? '#' : '.';
    }
    text += '\n';
  }
  return text;
}

std::string glyph(char character) {
  Image image = black(kGlyphWidth, kGlyphHeight);
  draw_text(image, 0, 0, 1, kWhite, {&character, 1});
  return drawn(image);
}

TEST(PixelText, DrawsALetterAsItIsRead) {
  EXPECT_EQ(glyph('L'), "#....\n#....\n#....\n#....\n#....\n#....\n#####\n.....\n.....\n");
}

TEST(PixelText, HasAGlyphOfItsOwnForEachVisibleCharacter) {
  std::set<std::string> seen;
  for (char c = ' '; c <= '~'; ++c) EXPECT_TRUE(seen.insert(glyph(c)).second) << c;
  EXPECT_EQ(glyph('\n'), glyph('?'));
  EXPECT_EQ(glyph('\xff'), glyph('?'));
}

TEST(PixelText, TakesTheWidthThatItSays) {
  EXPECT_EQ(text_width("", 2), 0);
  EXPECT_EQ(text_width("LL", 1), 11);
  EXPECT_EQ(text_width("LL", 3), 33);
  Image image = black(33, 21);
  draw_text(image, 0, 0, 3, kWhite, "LL");
  const std::string last = drawn(image).substr(34 * 20);
  EXPECT_EQ(last, "###############...###############\n");
}

TEST(PixelText, LeavesOutWhatIsOutsideOfTheImage) {
  Image image = black(3, 3);
  fill_rectangle(image, -5, 1, 100, 1, kWhite);
  EXPECT_EQ(drawn(image), "...\n###\n...\n");
  draw_text(image, -100, -100, 2, kWhite, "outside");
  draw_text(image, 2, 2, 50, kWhite, "L");
  EXPECT_EQ(drawn(image), "...\n###\n..#\n");
  fill_rectangle(image, 5, 5, -3, -3, kWhite);
  EXPECT_EQ(drawn(image), "...\n###\n..#\n");
}

}  // namespace
}  // namespace nanscope
