#pragma once
#include <cstddef>
#include <filesystem>
#include <string>

#include "gui/platform/platform.h"

namespace nanscope::gui {

/// Empty when the file is no PNG.
Picture read_png(const std::filesystem::path& path);

/// Over what is there.
Status write_picture(const std::filesystem::path& path, const Picture& picture);

/// Between two pictures of one size.
struct Comparison {
  std::size_t pixels = 0;  ///< that differ by more than the tolerance
  int largest = 0;         ///< difference of a channel, of 255
  double worst_block = 0;  ///< the largest difference of the mean of a block of 8 x 8 pixels
  Picture difference;      ///< four times the difference of each channel
};

/// Of a channel, of 255: rounding of blended colours differs between processors.
inline constexpr int kTolerance = 2;

Comparison compare(const Picture& expected, const Picture& found);

/// What draws the pictures: they agree pixel by pixel only where this does.
std::string renderer_name();

}  // namespace nanscope::gui
