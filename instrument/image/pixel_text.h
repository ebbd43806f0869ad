#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "instrument/image/image.h"

namespace nanscope {

using Rgb = std::array<std::uint8_t, 3>;

/// A face of 5 x 7 pixels, and two below for descenders, for words in pictures that are the same on every machine,
/// fonts installed or not.
inline constexpr int kGlyphWidth = 5;
inline constexpr int kGlyphHeight = 9;
inline constexpr int kGlyphStep = 6;  ///< from one character to the next

/// Pixels that a text takes in width, each pixel of the face being `scale` x `scale` of the image.
int text_width(std::string_view text, int scale);
/// With its top left at (x, y); what lies outside of the image is left out. A byte that is no visible ASCII is '?'.
void draw_text(Image& image, int x, int y, int scale, Rgb color, std::string_view text);
/// What lies in the image of a rectangle.
void fill_rectangle(Image& image, int x, int y, int width, int height, Rgb color);

}  // namespace nanscope
