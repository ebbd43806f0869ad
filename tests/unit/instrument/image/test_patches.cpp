#include <gtest/gtest.h>

#include "instrument/image/patches.h"

namespace nanscope {
namespace {

/// An image whose sample at (x, y, channel) is 30 y + 3 x + channel.
Image ramp(int width, int height) {
  Image image{width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int channel = 0; channel < 3; ++channel) {
        image.rgb.push_back(static_cast<std::uint8_t>(30 * y + 3 * x + channel));
      }
    }
  }
  return image;
}

TEST(Patches, AreCutAcrossThenDownWithChannelsLast) {
  const auto patches = make_patches(ramp(6, 4), 2, SampleRange::unit);
  ASSERT_TRUE(patches.has_value()) << patches.error().message;
  EXPECT_EQ(patches->rows, 6);
  EXPECT_EQ(patches->columns, 12);
  EXPECT_EQ(patches->across, 3);
  EXPECT_EQ(patches->down, 2);
  ASSERT_EQ(patches->values.size(), 72U);
  // Patch 4 is the middle one of the second row of patches: it starts at pixel (2, 2).
  for (int y = 0; y < 2; ++y) {
    for (int x = 0; x < 2; ++x) {
      for (int channel = 0; channel < 3; ++channel) {
        const auto column = static_cast<std::size_t>((y * 2 + x) * 3 + channel);
        const int sample = 30 * (2 + y) + 3 * (2 + x) + channel;
        EXPECT_EQ(patches->values[4 * 12 + column], static_cast<float>(sample) / 255.0F);
      }
    }
  }
}

TEST(Patches, RangesEndAtTheirBoundsExactly) {
  const Image image{1, 2, {0, 51, 255, 0, 204, 255}};
  EXPECT_EQ(make_patches(image, 1, SampleRange::unit)->values, (std::vector<float>{0, 0.2F, 1, 0, 0.8F, 1}));
  EXPECT_EQ(make_patches(image, 1)->values, (std::vector<float>{-1, -0.6F, 1, -1, 0.6F, 1}));
}

TEST(Patches, RefuseSidesThatDoNotFit) {
  EXPECT_EQ(make_patches(ramp(6, 4), 4).error().message,
            "image of 6x4 pixels cannot be cut into patches of 4: both sides must be multiples of it");
  EXPECT_FALSE(make_patches(ramp(6, 4), 0).has_value());
  EXPECT_FALSE(make_patches(ramp(6, 4), -2).has_value());
  EXPECT_FALSE(make_patches(Image{}, 1).has_value());
  EXPECT_EQ(make_patches(Image{2, 2, {1}}, 1).error().message, "image of 2x2 pixels holds 1 samples");
}

}  // namespace
}  // namespace nanscope
